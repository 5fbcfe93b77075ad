package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

const directoryOf = "/p/default/"

// A person who may write makes identities and audiences and finds out who reads what, without scripts.
func TestConsole_Directory(t *testing.T) {
	h := newConsole(t)
	r := h.as("write")
	t.Run("identities", func(t *testing.T) { walkIdentities(t, r) })
	t.Run("import", func(t *testing.T) { walkImport(t, r) })
	t.Run("audiences", func(t *testing.T) { walkAudiences(t, r) })
	t.Run("access", func(t *testing.T) { walkAccess(t, r) })
	t.Run("past", func(*testing.T) { walkPast(r) })
	t.Run("wrong inputs", func(t *testing.T) { walkWrongInputs(t, r) })
	t.Run("recalls", func(t *testing.T) {
		key, _ := h.keys()
		h.must(key, http.MethodPost, api+"/recall", map[string]any{"query": "nothing like it", "identity": "kim"}, nil)
		runtest.Await(t, "the recall is on the page of the identity", func() bool {
			return strings.Contains(r.Ask(http.MethodGet, directoryOf+"identities/kim", nil).Body, directoryOf+"requests/")
		})
		if other := r.Ask(http.MethodGet, directoryOf+"identities/lou", nil); strings.Contains(other.Body, "/requests/") {
			t.Errorf("a recall is on the page of another identity: %s", other.Body)
		}
	})
	t.Run("read", func(t *testing.T) { readsDirectory(t, h.as("read")) })
	t.Run("files", func(t *testing.T) { filesOfDirectory(t, r) })
}

func walkIdentities(t *testing.T, r *webtest.Reader) {
	r.Open(directoryOf + "identities")
	r.See("7 in all")
	r.Submit("Search", map[string]string{"Begins with": "ana"})
	r.See("1 in all")
	r.Submit("Search", map[string]string{"Begins with": "", "Has the trait": "country", "With the value": "de"})
	r.See("2 in all", "dev")
	for _, name := range []string{"a/b ?#%é", "..", "import", "~import", "~x", "<i>zoe</i>"} {
		r.Open(directoryOf + "new-identity")
		r.Submit("Save", map[string]string{"Identity": name, "key": "team", "value": "night <b>shift</b>"})
		r.Answered(http.StatusOK)
		r.See("Saved.", name, "console", "changed traits of")
		r.Open(directoryOf + "identities")
		r.Follow(name)
		if shown := r.At.Find("h1").Text(); shown != name {
			t.Fatalf("the page of %q is that of %q", name, shown)
		}
	}
	r.Submit("Save", map[string]string{"key": "team", "value": "day"})
	r.See("Saved.")
	if value := r.At.Find("input[name=value]").First().AttrOr("value", ""); value != "day" {
		t.Fatalf("the trait is %q", value)
	}
	r.Submit("Save", map[string]string{"value": ""})
	if n := r.At.Find("input[name=was]:not([value=''])").Length(); n != 0 {
		t.Fatalf("%d traits are left", n)
	}
	r.Submit("Delete", nil)
	r.See("Deleted.")
	r.Submit("Search", map[string]string{"Begins with": "<i>zoe"})
	r.See("No identity")
}

func walkImport(t *testing.T, r *webtest.Reader) {
	r.Open(directoryOf + "import-identities")
	bad := "identity;team;site\nkim;day;Oslo\nlou;night\nmax;;\n"
	r.Submit("Preview", map[string]string{"Or its text": bad})
	r.See("1 row has a problem", "has 2 cells: the header has 3", "2 rows are good: 2 identities are new")
	r.Submit("Import the 2 good rows", nil)
	r.See("2 identities are new, and the traits of 0 were replaced")
	r.Submit("Preview", map[string]string{"Or its text": "identity,team\nkim,late\n\"=a\"\"b\",\"x\ny\"\n"})
	r.See("all traits of 1 that exist are replaced")
	r.Submit("Import 2 rows", nil)
	r.See("1 identities are new, and the traits of 1 were replaced")
	r.Open(directoryOf + "identities/kim")
	r.See("csv")
	if values := r.At.Find("input[name=was]:not([value=''])").Length(); values != 1 {
		t.Fatalf("%d traits of the row", values)
	}
}

func walkAudiences(_ *testing.T, r *webtest.Reader) {
	r.Open(directoryOf + "audiences/launch")
	r.See("1 data points", "Budget")
	r.Open(directoryOf + "audiences")
	r.Follow("New rule")
	r.Submit("Preview", map[string]string{"Trait": "country", "values": "de"})
	r.See("It reaches 2 of")
	r.Submit("Add a condition", nil)
	r.Submit("Save", map[string]string{"Slug": "germany"})
	r.See("Saved.", "country is de")
	r.Follow("Change")
	r.Submit("Save", map[string]string{"values": "in", "operator": "is_one_of", "Name": "India"})
	r.See("more identities will read 0 data points that carry this audience")
	r.See("will not read them any more. Nothing is saved yet.")
	r.Submit("Save", nil)
	r.See("Saved.", "country is one of in", "wrote the audience")
	r.Submit("Count again", nil)
	r.See("Saved.")
	r.Open(directoryOf + "audiences")
	r.Follow("New list")
	r.Submit("Preview", map[string]string{"Identities, one a line": "kim\r\nnew one\r\n\r\nkim"})
	r.See("2 identities; 1 of them are new")
	r.Submit("Save", map[string]string{"Slug": "night"})
	r.See("new one")
	r.Follow("Change")
	r.Submit("Save", map[string]string{"Add identities": "lou", "Remove identities": "new one"})
	r.See("1 more identity will read 0 data points that carry this audience, and 1 identity will not read them any more.")
	r.Submit("Save", nil)
	r.Follow("kim")
	r.See("It is in the list.")
	r.Open(directoryOf + "audiences/germany")
	r.Submit("Delete", nil)
	r.See("Delete this audience?")
	r.Submit("Yes, do it", nil)
	r.See("Deleted.")
	r.Open(directoryOf + "audiences/germany")
	r.Answered(http.StatusNotFound)
}

func walkAccess(_ *testing.T, r *webtest.Reader) {
	explained := func(identity, point string, see ...string) {
		r.Open(directoryOf + "access")
		r.Submit("Explain", map[string]string{"Identity": identity, "Id of the data point": point})
		r.See(see...)
	}
	ana, ben := "ana"+markup, "ben"+markup
	explained(ben, "call-2025-05-12"+markup, "Yes", "every identity of the project reads it")
	explained(ana, "budget"+markup, "Yes", "matches its rule", "holds")
	explained(ben, "budget"+markup, "No", "does not match its rule", "fails", "sales")
	explained(ana, "board-minutes"+markup, "Yes", "is in its list")
	explained(ben, "board-minutes"+markup, "No", "is not in its list")
	explained("nobody", "budget"+markup, "No", "has no record")
	explained(ana, "unheard of", "No", "No data point of that id was sent")
}

// walkPast asks who read what at a time.
func walkPast(r *webtest.Reader) {
	before := time.Now().UTC().Format(time.RFC3339Nano)
	at := func(path, at string, see ...string) {
		r.Open(directoryOf + path + "at=" + url.QueryEscape(at))
		r.Answered(http.StatusOK)
		r.See(see...)
	}
	r.Open(directoryOf + "new-identity")
	r.Submit("Save", map[string]string{"Identity": "quitter"})
	r.Submit("Delete", nil)
	budget := "access?point=budget" + url.QueryEscape(markup) + "&identity="
	at(budget+"ana"+url.QueryEscape(markup)+"&", before, "Yes", "could read", "matched its rule of then", "The identity had")
	at(budget+"ben"+url.QueryEscape(markup)+"&", before, "No", "did not match its rule of then", "fails", "sales")
	at(budget+"quitter&", before, "Not known", "Not known any more: the identity was erased on")
	at(budget+"nobody&", before, "No", "had no record")
	at(budget+"nobody&", "2001-01-01", "No", "was sent later")
	at("audiences/launch?", before, "Who read it on", "Identities that were erased since: 1.", "It was a rule then", "still")
	at("audiences/launch?", "2001-01-01", "There was no such audience then")
	at("audiences/night?lost=1&", "2001-01-01", "Who lost access since", "new one", "Identities that were erased since: 2.")
	r.Open(directoryOf + "audiences/night")
	r.Submit("Show", map[string]string{"As of": before})
	r.See("It was a list then", "kim")
	r.Follow("30 d")
	r.See("Who lost access since", "new one")
}

func walkWrongInputs(_ *testing.T, r *webtest.Reader) {
	for path, status := range map[string]int{
		"identities?value=x": 400, "identities?after=x": 400, "identities?prefix=" + strings.Repeat("x", 201): 400,
		"identities?trait=%ff": 400, "identities/nobody": 404, "audiences/nobody": 404, "audiences?after=A": 400,
		"audiences/launch?after=x": 400, "audiences/project": 404,
		"access?identity=x&point=" + strings.Repeat("x", 1001): 400, "access?identity=x&point=y&at=soon": 400,
		"audiences/launch?at=9000-01-01": 400, "audiences/launch?lost=1": 400, "audiences/launch?at=2001-01-01&after=~x": 400,
	} {
		r.Open(directoryOf + path)
		r.Answered(status)
	}
	r.Open(directoryOf + "new-audience")
	r.Submit("Save", map[string]string{"Slug": "launch", "Trait": "team", "values": "x"})
	r.Answered(http.StatusConflict)
	r.See("choose another")
	for see, fields := range map[string]map[string]string{
		"slug has":        {"Slug": "Not a slug", "Trait": "team", "values": "x"},
		"takes 1":         {"Slug": "good", "Trait": "team", "values": "x\ny"},
		"want 1 to 20":    {"Slug": "good"},
		"contains every":  {"Slug": "project", "Trait": "team", "values": "x"},
		"rule.conditions": {"Slug": "good", "Trait": "", "values": "x"},
	} {
		r.Open(directoryOf + "new-audience")
		r.Submit("Save", fields)
		r.Answered(http.StatusBadRequest)
		r.See(see)
	}
	r.Open(directoryOf + "new-identity")
	r.Submit("Save", map[string]string{"Identity": "ana" + markup})
	r.Answered(http.StatusConflict)
	r.Open(directoryOf + "import-identities")
	for _, text := range []string{"", "name\nx\n"} {
		r.Submit("Preview", map[string]string{"Or its text": text})
		r.Answered(http.StatusBadRequest)
	}
	r.Submit("Preview", map[string]string{"Or its text": "identity\nx\nx\n"})
	form := map[string][]string{"do": {"import"}, "text": {"identity\nx\nx\n"}}
	target := *r.At.URL
	r.Request(http.MethodPost, &target, form, "same-origin")
	r.Answered(http.StatusBadRequest)
	r.See("1 rows have a problem, so nothing was imported")
}

// readsDirectory opens the pages as somebody who may not change them.
func readsDirectory(t *testing.T, r *webtest.Reader) {
	for _, path := range []string{"identities", "identities/kim", "audiences", "audiences/launch", "access"} {
		r.Open(directoryOf + path)
		r.Answered(http.StatusOK)
		if n := r.At.Find("main form[method=post]").Length(); n > 0 {
			t.Errorf("%s has %d forms that change something", path, n)
		}
		for _, text := range []string{"New ", "Import a", "Change"} {
			if strings.Contains(r.At.Find("main .actions").Text(), text) {
				t.Errorf("%s offers %q", path, text)
			}
		}
	}
}

// filesOfDirectory reads the lists as CSV and JSON.
func filesOfDirectory(t *testing.T, r *webtest.Reader) {
	for path, want := range map[string]string{
		"identities?prefix=kim&format=csv":  "identity,origin,lastSeenAt,createdAt,updatedAt,traits\nkim,csv,",
		"identities?prefix=%3Da&format=csv": "'=a", "audiences?format=csv": "slug,name,kind,members",
		"audiences/night?format=csv": "identity,memberSince,isExact,until\n",
	} {
		if got := r.Ask(http.MethodGet, directoryOf+path, nil); !strings.Contains(got.Body, want) {
			t.Errorf("%s: %s", path, got.Body)
		}
	}
	for path, want := range map[string]string{
		"identities?trait=team&format=json": "items", "identities/kim?format=json": "traits",
		"audiences?format=json": "items", "audiences/launch?format=json": "items",
		"access?identity=kim&point=x&format=json": "reading",
	} {
		var page map[string]any
		got := r.Ask(http.MethodGet, directoryOf+path, nil)
		runtest.Must(t, json.Unmarshal([]byte(got.Body), &page))
		if page[want] == nil {
			t.Errorf("%s has no %s: %s", path, want, got.Body)
		}
	}
}
