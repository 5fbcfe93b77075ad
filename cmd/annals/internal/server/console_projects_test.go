package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// recallStatus is what the API answers to a recall with a key.
func (h *consoleHarness) recallStatus(key string) int {
	h.t.Helper()
	status, _ := h.call(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"})
	return status
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
	unraced(t)
	t.Parallel()
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
	admin.See("Saved.")
	admin.See("What we are <i>")
	for _, text := range []string{"created the project", "described the project", h.mail("admin")} {
		admin.See(text)
	}

	admin.Follow("Create a key")
	admin.Submit("Create key", map[string]string{"Name": strings.Repeat("x", 65)})
	admin.Answered(http.StatusBadRequest)
	admin.Submit("Create key", map[string]string{"Name": "bot"})
	admin.Answered(http.StatusOK)
	leaked := admin.At.Secrets()[0]
	if len(admin.Open("/p/"+slug+"/keys").Secrets()) > 0 || h.recallStatus(leaked) != http.StatusOK {
		t.Error("the key is shown a second time, or does not work")
	}
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
	admin.See("revealed the key")
	admin.See(h.mail("admin"))
	admin.Submit("Create the replacement", map[string]string{"Name": "bot 2"})
	replacement := admin.At.Secrets()[0]
	admin.Follow("see whether the old one is still used")
	if got := admin.Ask(http.MethodPost, path+"/revoke", nil); got.Status != http.StatusBadRequest {
		t.Errorf("revoked without a tick: %d", got.Status)
	}
	admin.Submit("Revoke the key", map[string]string{"sure": "yes"})
	admin.See("Revoked. It is refused from now on.")
	if h.recallStatus(leaked) != http.StatusUnauthorized || h.recallStatus(replacement) != http.StatusOK {
		t.Error("the leaked key works, or its replacement does not")
	}
	for _, do := range []string{"/reveal", "/revoke"} {
		if got := admin.Ask(http.MethodPost, path+do, url.Values{"sure": {"yes"}}); got.Status != http.StatusNotFound {
			t.Errorf("%s of a revoked key: %d", do, got.Status)
		}
		elsewhere := "/p/default/keys" + path[strings.LastIndex(path, "/"):] + do
		if got := admin.Ask(http.MethodPost, elsewhere, url.Values{"sure": {"yes"}}); got.Status != http.StatusNotFound {
			t.Errorf("%s of a key of another project: %d", do, got.Status)
		}
	}
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

func TestConsole_CapsAndArchive(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	admin := h.as("admin")
	for _, wrong := range []url.Values{
		{"ingestionCap": {"-1"}},
		{"ingestionCap": {"1.5"}},
		{"ingestionCap": {"<b>"}},
		{"creditCap": {"0.55"}},
		{"creditCap": {"-2"}},
		{"creditCap": {"many"}},
		{"ingestionCap": {"99999999999999999999"}},
	} {
		if got := admin.Ask(http.MethodPost, "/p/default/caps", wrong); got.Status != http.StatusBadRequest ||
			strings.Contains(got.Body, "<b>") {
			t.Errorf("%v: %d %s", wrong, got.Status, got.Body)
		}
	}
	admin.Open("/p/default/caps")
	admin.Submit("Save caps", map[string]string{"Ingestion cap": "40", "Credit cap": "0.5"})
	admin.See("Saved.")
	admin.See("of 40")
	admin.See("set the caps of")
	admin.See(h.mail("admin"))
	if _, meta := h.lastEvent("project.caps-set.v1"); !strings.Contains(meta, "person:"+h.ids["admin"].String()) {
		t.Errorf("who set the caps is not recorded: %s", meta)
	}
	key, _ := h.keys()
	status, refused := h.call(key, http.MethodPost, api+"/ingest", point{"id": "x", "content": strings.Repeat("tea ", 1000)})
	if status != http.StatusTooManyRequests {
		t.Errorf("beyond the cap: %d %s", status, refused)
	}
	admin.Submit("Save caps", map[string]string{"Ingestion cap": "", "Credit cap": ""})
	if got := admin.Ask(http.MethodGet, "/p/default/caps?format=json", nil); !strings.Contains(got.Body, `"creditCap": null`) {
		t.Errorf("the caps are %s", got.Body)
	}
	admin.Open("/p/default")
	admin.Submit("Archive", nil)
	admin.See("Nothing is done yet.")
	admin.Submit("Yes, do it", nil)
	admin.See("This project is archived")
	if got := h.recallStatus(key); got != http.StatusForbidden {
		t.Errorf("a key of an archived project: %d", got)
	}
	admin.Submit("Unarchive", nil)
	if got := h.recallStatus(key); got != http.StatusOK {
		t.Errorf("a key of an unarchived project: %d", got)
	}
	if got := admin.Ask(http.MethodPost, "/p/default/archived", url.Values{"archived": {"maybe"}}); got.Status != http.StatusBadRequest {
		t.Errorf("archived maybe: %d", got.Status)
	}
}

// The list has what somebody may read, by a filter, as CSV that no spreadsheet runs, and as JSON.
func TestConsole_ListOfProjects(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	readers := map[string]*webtest.Reader{"admin": h.as("admin"), "read": h.as("read"), "member": h.as("member")}
	admin := readers["admin"]
	for _, name := range []string{"=1+1 cmd", "Zulu"} {
		admin.Open("/")
		admin.Submit("Create project", map[string]string{"Name": name})
	}
	readers["read"].Open("/p/default")
	readers["read"].SeeLater("up to date")
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
		answer := readers[c.who].Ask(http.MethodGet, c.path, nil)
		if answer.Status != http.StatusOK || !strings.Contains(answer.Body, c.has) ||
			strings.Contains(answer.Body, c.hasNot) {
			t.Errorf("%s of %s: %d %s", c.path, c.who, answer.Status, answer.Body)
		}
	}
}
