package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

func TestConsole_SettingsOfAnOrganization(t *testing.T) {
	h := newStaff(t)
	const page = "/settings/organization"
	owner := h.as("owner")
	owner.Open(page)
	owner.See("self-hosted", "kept for 14 days")
	owner.Submit("Save the cap", map[string]string{"Credits in a month": "1,200.5"})
	if got := owner.At.Find("input[name=spendCap]").AttrOr("value", ""); got != "1200.5" {
		t.Errorf("the cap is %q: %.500s", got, owner.At.Text())
	}
	owner.See("set the spend cap to 1200.5 credits a month", h.mail("owner"))
	for _, wrong := range []string{"-1", "1.25", "many", "NaN", "1e30", "<b>"} {
		owner.Open(page)
		owner.Submit("Save the cap", map[string]string{"Credits in a month": wrong})
		owner.Answered(http.StatusBadRequest)
		if owner.At.Find("p.problem").Length() != 1 {
			t.Errorf("%q is refused without a reason", wrong)
		}
	}
	owner.Open(page)
	owner.Submit("Save the cap", map[string]string{"Credits in a month": ""})
	if got := owner.At.Find("input[name=spendCap]").AttrOr("value", ""); got != "" {
		t.Errorf("the cap is %q", got)
	}

	t.Log("the time for visits, and what auditors see")
	for _, wrong := range []string{"29", "3651", "many"} {
		owner.Open(page)
		owner.Submit("Save the days", map[string]string{"Days": wrong})
		owner.Answered(http.StatusBadRequest)
	}
	owner.Open(page)
	owner.Submit("Save the days", map[string]string{"Days": "400"})
	owner.See("400 days after the end of their month")
	owner.Submit("Save what auditors see", map[string]string{"Auditors see texts, and may recall": "yes"})
	if _, is := owner.At.Find("input[name=allowed]").Attr("checked"); !is {
		t.Errorf("auditors see no texts: %.900s", owner.At.Text())
	}

	t.Log("an admin replaces the management key, which is shown once")
	_, before := h.keys()
	admin := h.as("admin")
	admin.Open(page)
	if admin.At.Find("form[action$=spend-cap], form[action$=second-factor]").Length() > 0 {
		t.Error("an admin may change the cap")
	}
	admin.Submit("Replace the management key", nil)
	admin.See("The present one is refused at once. Nothing is done yet.")
	admin.Submit("Yes, do it", nil)
	shown := admin.At.Secrets()
	if len(shown) != 1 || shown[0] == before {
		t.Fatalf("the page shows %d keys", len(shown))
	}
	h.wants(before, http.MethodGet, api+"/projects", nil, http.StatusUnauthorized, "")
	h.wants(shown[0], http.MethodGet, api+"/projects", nil, http.StatusOK, "")
	if again := admin.Open(page); len(again.Secrets()) > 0 {
		t.Error("the key is shown again")
	}

	t.Log("the owner requires a second factor")
	owner.Open(page)
	owner.Submit("Save the second factor", map[string]string{"required": "yes"})
	for _, role := range []string{"owner", "admin", "read"} {
		got := h.as(role).Ask(http.MethodGet, "/", nil)
		if got.Status != http.StatusSeeOther || got.Location != "/account/second-factor" {
			t.Errorf("%s opens the projects without one: %d, %s", role, got.Status, got.Location)
		}
	}
}

func TestConsole_History(t *testing.T) {
	h := newStaff(t)
	h.setCaps("Annals", "default", new(int64(1)), nil)
	const page = "/settings/history"
	admin := h.as("admin")
	admin.Open(page)
	admin.See(" set the caps of default", "a member with the role", "created the project default")
	admin.Submit("Show", map[string]string{"Project": "default"})
	admin.See("created the key")
	if strings.Contains(admin.At.Text(), "a member with the role") || admin.At.URL.Query().Get("project") != "default" {
		t.Errorf("the events of a project are those of %s: %.300s", admin.At.URL, admin.At.Text())
	}
	for path, want := range map[string]int{"?after=x": 400, "?after=-1": 400, "?project=theirs": 404} {
		h.get("admin", page+path).want(t, want)
	}
	h.get("foreign", page).want(t, http.StatusOK, "Theirs").lacks(t, "the caps of")
}

func TestConsole_ErasureOfAPerson(t *testing.T) {
	h := newConsole(t)
	const page = "/p/default/erasures"
	ana := "ana" + markup
	admin := h.as("admin")
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "about", "content": "Ana asked ben." + markup, "identity": "ben"})
	var other string
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select slug from access.projects where slug like 'support-desk%' and organization_id = $1`,
		h.home()).
		Scan(&other))
	h.submit("admin", "/p/"+other+"/identity", "new", "1", "identity", ana, "key", "team", "value", "x").
		want(t, http.StatusSeeOther)
	admin.Open(page)
	admin.Submit("See what there is", map[string]string{"Identity": ana})
	admin.See(webtest.Plain(ana), "since a name may be written in many ways", "1 event of webhooks that was dropped",
		"1 text of others has this name", "What other projects have of this identity: "+other, "Sends 1 of them again")
	admin.Submit("Replay the dropped ones first", nil)
	admin.See("1 event was replayed: 0 became data points, 1 was dropped again.", webtest.Plain(ana))
	runtest.Await(t, "the replay is dropped in its turn", func() bool {
		return strings.Contains(admin.Open(page+"?identity="+url.QueryEscape(ana)).Text(), "1 event of webhooks")
	})
	if strings.Contains(admin.At.Text(), "was replayed") {
		t.Error("what a replay did is shown twice")
	}
	admin.Submit("Erase all of it", map[string]string{"Write the identity again": "ana"})
	admin.Answered(http.StatusBadRequest)
	admin.Submit("Erase all of it", map[string]string{"Write the identity again": ana})
	admin.Answered(http.StatusOK)
	receipt := admin.At.URL.RequestURI()
	admin.SeeLater("Keep the address of this page")
	if strings.Contains(admin.At.Text(), "zebra") {
		t.Errorf("the receipt holds the name: %.900s", admin.At.Text())
	}
	var status struct {
		Status struct {
			Phase    string
			Receipts []struct{ DataPoints int }
		}
	}
	got := admin.Ask(http.MethodGet, receipt+"?format=json", nil)
	runtest.Must(t, json.Unmarshal([]byte(got.Body), &status))
	if status.Status.Phase != "ended" || len(status.Status.Receipts) == 0 {
		t.Errorf("the receipt is %+v", status)
	}
	admin.Open(page)
	admin.Follow(receipt[len(page)+1:])
	admin.See("Keep the address of this page")
	for _, path := range []string{
		strings.Replace(receipt, "default", "support-desk", 1), page + "/x", page + "/" + h.ids["admin"].String(),
	} {
		h.get("admin", path).want(t, http.StatusNotFound)
	}
	h.submit("write", page, "identity", "ben", "again", "ben").want(t, http.StatusForbidden)
}

// recalls checks what the API answers to a recall with a key.
func (h *consoleHarness) recalls(key string, status int) {
	h.t.Helper()
	h.wants(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, status, "")
}

// lastEvent returns the newest event of a type, as it is stored.
func (h *consoleHarness) lastEvent(typ string) (data, meta string) {
	h.t.Helper()
	for _, e := range h.events() {
		if e.Type == typ {
			data, meta = string(e.Data), string(e.Meta)
		}
	}
	return data, meta
}

// An Admin makes a project, and replaces a key of it that leaked.
func TestConsole_ProjectAndItsKeys(t *testing.T) {
	h := newStaff(t)
	admin := h.as("admin")
	admin.Open("/")
	admin.Submit("Create project", map[string]string{"Name": "!"})
	admin.Answered(http.StatusBadRequest)
	admin.See("at least two of them letters or digits")
	admin.Submit("Create project", map[string]string{"Name": "Über uns <b>"})
	admin.Answered(http.StatusOK)
	admin.See("Nothing was sent in the last 7 days.")
	slug := strings.TrimPrefix(admin.At.URL.Path, "/p/")
	admin.Submit("Save", map[string]string{"Name": "About us", "Description": strings.Repeat("x", 1001)})
	admin.Answered(http.StatusBadRequest)
	admin.Submit("Save", map[string]string{"Name": "About us", "Description": "What we are <i>"})
	admin.See("Saved.", "What we are <i>")
	admin.See("created the project", "described the project", h.mail("admin"))

	admin.Follow("Create a key")
	admin.Submit("Create key", map[string]string{"Name": strings.Repeat("x", 65)})
	admin.Answered(http.StatusBadRequest)
	admin.Submit("Create key", map[string]string{"Name": "bot"})
	admin.Answered(http.StatusOK)
	leaked := admin.At.Secrets()[0]
	if len(admin.Open("/p/"+slug+"/keys").Secrets()) > 0 {
		t.Error("the key is shown a second time")
	}
	h.recalls(leaked, http.StatusOK)
	admin.Follow("bot")
	path := admin.At.URL.Path
	runtest.Await(t, "the last use is shown", func() bool { return !strings.Contains(admin.Open(path).Text(), "not in 90 days") })
	if shown := admin.Submit("Reveal the key", nil).Secrets(); len(shown) != 1 || shown[0] != leaked {
		t.Errorf("revealed %q", shown)
	}
	data, meta := h.lastEvent("project.key-revealed.v1")
	if !strings.Contains(path, "/"+between(data, `"keyId":"`, `"`)) || !strings.Contains(meta, "person:"+h.ids["admin"].String()) {
		t.Errorf("the event of the reveal is %s %s", data, meta)
	}
	admin.Open(path)
	admin.See("revealed the key", h.mail("admin"))
	admin.Submit("Create the replacement", map[string]string{"Name": "bot 2"})
	replacement := admin.At.Secrets()[0]
	admin.Follow("see whether the old one is still used")
	h.submit("admin", path+"/revoke").want(t, http.StatusBadRequest) // without a tick
	admin.Submit("Revoke the key", map[string]string{"sure": "yes"})
	admin.See("Revoked. It is refused from now on.")
	h.recalls(leaked, http.StatusUnauthorized)
	h.recalls(replacement, http.StatusOK)
	for _, do := range []string{"/reveal", "/revoke"} {
		h.submit("admin", path+do, "sure", "yes").want(t, http.StatusNotFound)
		elsewhere := "/p/default/keys" + path[strings.LastIndex(path, "/"):] + do
		h.submit("admin", elsewhere, "sure", "yes").want(t, http.StatusNotFound)
	}
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

func TestConsole_CapsAndArchive(t *testing.T) {
	h := newStaff(t)
	admin := h.as("admin")
	for name, wrong := range map[string][]string{
		"ingestionCap": {"-1", "1.5", "<b>", "99999999999999999999"}, "creditCap": {"0.55", "-2", "many"},
	} {
		for _, value := range wrong {
			h.submit("admin", "/p/default/caps", name, value).want(t, http.StatusBadRequest).lacks(t, "<b>")
		}
	}
	admin.Open("/p/default/caps")
	admin.Submit("Save caps", map[string]string{"Ingestion cap": "40", "Credit cap": "0.5"})
	admin.See("Saved.", "of 40", "set the caps of", h.mail("admin"))
	if _, meta := h.lastEvent("project.caps-set.v1"); !strings.Contains(meta, "person:"+h.ids["admin"].String()) {
		t.Errorf("who set the caps is not recorded: %s", meta)
	}
	key, _ := h.keys()
	beyond := point{"id": "x", "content": strings.Repeat("tea ", 1000)}
	h.wants(key, http.MethodPost, api+"/ingest", beyond, http.StatusTooManyRequests, "")
	admin.Submit("Save caps", map[string]string{"Ingestion cap": "", "Credit cap": ""})
	h.get("admin", "/p/default/caps?format=json").want(t, http.StatusOK, `"creditCap": null`)
	admin.Open("/p/default")
	admin.Submit("Archive", nil)
	admin.See("Nothing is done yet.")
	admin.Submit("Yes, do it", nil)
	admin.See("This project is archived")
	h.recalls(key, http.StatusForbidden)
	admin.Submit("Unarchive", nil)
	h.recalls(key, http.StatusOK)
	h.submit("admin", "/p/default/archived", "archived", "maybe").want(t, http.StatusBadRequest)
}

// The list has what somebody may read, by a filter, as CSV that no spreadsheet runs, and as JSON.
func TestConsole_ListOfProjects(t *testing.T) {
	h := newStaff(t)
	for _, name := range []string{"=1+1 cmd", "Zulu"} {
		h.submit("admin", "/", "name", name).want(t, http.StatusSeeOther)
	}
	read := h.as("read")
	read.Open("/p/default")
	read.SeeLater("up to date")
	for _, c := range []struct {
		who, path   string
		has, hasNot string
	}{
		{"admin", "/", "zulu", "theirs"},
		{"admin", "/?q=ZUL", "zulu", "/p/default"},
		{"admin", "/?q=nothing", "No project has that", "/p/"},
		{"admin", "/?format=csv", "'=1+1 cmd", ",=1"},
		{"admin", "/?format=json", `"slug": "zulu"`, "<"},
		{"read", "/", "/p/default", "zulu"},
		{"read", "/?format=csv", "default", "zulu"},
		{"read", "/p/default", "Last sends", "Archive"},
		{"member", "/", "There is no project that you may read", "/p/"},
		{"member", "/", "There is no project that you may read", "Create project"},
	} {
		h.get(c.who, c.path).want(t, http.StatusOK, c.has).lacks(t, c.hasNot)
	}
}
