package server

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

func TestConsole_SettingsOfAnOrganization(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	const page = "/settings/organization"
	owner := h.as("owner")
	owner.Open(page)
	owner.See("self-hosted")
	owner.See("kept for 14 days")
	owner.Submit("Save the cap", map[string]string{"Credits in a month": "1,200.5"})
	if got := owner.At.Find("input[name=spendCap]").AttrOr("value", ""); got != "1200.5" {
		t.Errorf("the cap is %q: %.500s", got, owner.At.Text())
	}
	owner.See("set the spend cap to 1200.5 credits a month")
	owner.See(h.mail("owner"))
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
	for key, want := range map[string]int{before: http.StatusUnauthorized, shown[0]: http.StatusOK} {
		if status, _ := h.call(key, http.MethodGet, api+"/projects", nil); status != want {
			t.Errorf("a key is answered %d, want %d", status, want)
		}
	}
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
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	for n := range 60 {
		h.setCaps("Annals", "default", new(int64(n)), nil)
	}
	const page = "/settings/history"
	admin := h.as("admin")
	count := func() int { return admin.At.Find("tbody tr").Length() }
	admin.Open(page)
	admin.See(" set the caps of default")
	first := count()
	admin.Follow("Next")
	admin.See("a member with the role")
	admin.See("created the project default")
	if first != 50 || count() == 0 {
		t.Errorf("the pages have %d and %d events", first, count())
	}
	if admin.Follow("Previous"); count() != 50 {
		t.Errorf("Previous leads to %s with %d events", admin.At.URL, count())
	}
	admin.Open(page)
	admin.Submit("Show", map[string]string{"Project": "default"})
	admin.Follow("Next")
	admin.See("created the key")
	if strings.Contains(admin.At.Text(), "a member with the role") || admin.At.URL.Query().Get("project") != "default" {
		t.Errorf("the events of a project are those of %s: %.300s", admin.At.URL, admin.At.Text())
	}
	file, err := csv.NewReader(strings.NewReader(admin.Ask(http.MethodGet, page+"?format=csv", nil).Body)).ReadAll()
	if err != nil || len(file) < 60 || file[0][4] != "what" {
		t.Errorf("the file has %d rows, %v", len(file), err)
	}
	var list struct {
		Items []struct {
			Kind string `json:"kind"`
		} `json:"items"`
		Pager struct {
			Next string `json:"next"`
		} `json:"pager"`
	}
	runtest.Must(t, json.Unmarshal([]byte(admin.Ask(http.MethodGet, page+"?format=json", nil).Body), &list))
	if len(list.Items) != 50 || list.Pager.Next == "" || list.Items[0].Kind != "project.caps-set" {
		t.Errorf("the list has %d events, and then %q", len(list.Items), list.Pager.Next)
	}
	for _, path := range []string{"?after=x", "?after=-1"} {
		if got := admin.Ask(http.MethodGet, page+path, nil); got.Status != http.StatusBadRequest {
			t.Errorf("%s is answered %d", path, got.Status)
		}
	}
	if got := admin.Ask(http.MethodGet, page+"?project=theirs", nil); got.Status != http.StatusNotFound {
		t.Errorf("the events of a foreign project are answered %d", got.Status)
	}
	if theirs := h.as("foreign").Open(page).Text(); strings.Contains(theirs, "the caps of") || !strings.Contains(theirs, "Theirs") {
		t.Errorf("the owner of another organization sees %.500s", theirs)
	}
}

func TestConsole_ErasureOfAPerson(t *testing.T) {
	unraced(t)
	t.Parallel()
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
	sent := admin.Ask(http.MethodPost, "/p/"+other+"/identity", url.Values{
		"new": {"1"}, "identity": {ana}, "key": {"team"}, "value": {"x"},
	})
	if sent.Status != http.StatusSeeOther {
		t.Fatalf("an identity of another project: %d %s", sent.Status, problemOf(sent.Body))
	}
	admin.Open(page)
	admin.Submit("See what there is", map[string]string{"Identity": ana})
	admin.See(webtest.Plain(ana))
	for _, text := range []string{
		"since a name may be written in many ways", "1 event of webhooks that was dropped", "1 text of others has this name",
		"What other projects have of this identity: " + other, "Sends 1 of them again",
	} {
		admin.See(text)
	}
	admin.Submit("Replay the dropped ones first", nil)
	admin.See("1 event was replayed: 0 became data points, 1 was dropped again.")
	admin.See(webtest.Plain(ana))
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
			Phase    string `json:"phase"`
			Receipts []struct {
				DataPoints int `json:"dataPoints"`
			} `json:"receipts"`
		} `json:"status"`
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
		if got := admin.Ask(http.MethodGet, path, nil); got.Status != http.StatusNotFound {
			t.Errorf("%s is answered %d", path, got.Status)
		}
	}
	if got := h.as("write").Ask(http.MethodPost, page, url.Values{"identity": {"ben"}, "again": {"ben"}}); got.Status != 403 {
		t.Errorf("somebody who may write erases: %d", got.Status)
	}
}
