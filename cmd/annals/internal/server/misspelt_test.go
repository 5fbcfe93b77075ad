package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// acceptedBodies are bodies that the routes accept. Together they have every object of the document whose names are
// known.
var acceptedBodies = map[string][]string{
	"POST /ingest":                 {`{"content":"A secret.","metadata":{"audiance":{"lable":1}}}`},
	"POST /ingest/batch":           {`{"items":[{"content":"First."},{"content":"Second."}]}`},
	"POST /ingest/estimate":        {`{"files":[{"path":"a.txt","content":"Text."}]}`, `{"items":[{"content":"Text."}]}`},
	"POST /data-points/delete":     {`{"ids":["tea"]}`},
	"POST /recall":                 {`{"query":"tea","identity":"ana"}`},
	"PUT /identities/{identity}":   {`{"traits":{"traist":"a","Traits":"b"}}`},
	"PATCH /identities/{identity}": {`{"traits":{"traist":"a","Traits":null}}`},
	"POST /identities/bulk":        {`[{"identity":"bo"},{"identity":"ana","traits":{"identty":"x"}}]`},
	"PUT /audiences/{slug}": {
		`{"kind":"fixed","identities":["ana"]}`,
		`{"kind":"rule","rule":{"match":"all","conditions":[{"trait":"team","operator":"is","values":["a"]}]}}`,
	},
	"POST /projects":             {`{"name":"Next door"}`},
	"POST /projects/{slug}/keys": {`{"name":"agent"}`},
}

// TestServer_MisspeltNames misspells every field and every parameter of the document, one in each call. No call
// changes anything. Names that misspell nothing are ignored.
func TestServer_MisspeltNames(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	m := &misspeller{harness: h, contract: apitest.Load(t, readapi.OpenAPI), table: auth.NewTable()}
	m.own, m.management = h.keys()
	sent := h.send(m.own, "/ingest", "completed", point{"id": "tea", "content": "I like green tea.", "identity": "ana"})
	h.must(m.own, http.MethodPut, api+"/audiences/team", json.RawMessage(acceptedBodies["PUT /audiences/{slug}"][0]), nil)
	m.path = strings.NewReplacer("{ingestionId}", sent, "{sourceId}", "tea", "{identity}", "ana", "{keyId}", uuid.NewString(),
		"projects/{slug}", "projects/default", "{slug}", "team", "{requestId}", uuid.NewString(), "{id}", uuid.NewString(),
		"{rootId}", uuid.NewString())
	before := len(h.events())
	for path, item := range m.contract.Document().Paths.Map() {
		for method, op := range item.Operations() {
			if m.table.Find(method, templateOf(path)).Webhook {
				continue
			}
			m.parameters(method, path, op)
			if op.RequestBody != nil {
				m.body(method, path, op.RequestBody.Value.Content.Get("application/json").Schema.Value)
			}
		}
	}
	for _, e := range h.events()[before:] {
		t.Errorf("a refused call appended %s", e.Type)
	}
	if m.calls < 2000 {
		t.Errorf("only %d names were misspelt", m.calls)
	}
	m.unrelated()
}

// templateOf is a path of the document as the table of routes has it.
func templateOf(path string) string {
	return strings.NewReplacer("{path}", "*", "{", ":", "}", "").Replace(path)
}

type misspeller struct {
	*harness
	contract *apitest.Contract
	table    auth.Table
	path     *strings.Replacer
	// own and management are keys.
	own, management string
	calls           int
}

// ask calls a route with a key that it takes, and holds the answer against the contract.
func (m *misspeller) ask(method, path, query, body string) answer {
	m.t.Helper()
	key := m.management
	if m.table.Find(method, templateOf(path)).Takes(auth.ProjectKey) {
		key = m.own
	}
	got := m.fetch(method, m.urls.API+m.path.Replace(path)+query, key, body)
	if err := m.contract.Check(got.request, got.status, got.header, []byte(got.body)); err != nil {
		m.t.Errorf("%s %s%s %s: %v", method, path, query, body, err)
	}
	return got
}

// refuses makes a call in which a name of a place is misspelt.
func (m *misspeller) refuses(method, path, query, body, field string, known []string) {
	m.t.Helper()
	m.calls++
	got := m.ask(method, path, query, body)
	var refusal struct {
		Code, DebugMessage string
		Data               struct {
			Errors    []struct{ Field, Message string }
			Item, Row *int
		}
	}
	if err := json.Unmarshal([]byte(got.body), &refusal); err != nil || got.status != http.StatusBadRequest ||
		refusal.Code != "invalid-request" || len(refusal.Data.Errors) != 1 {
		m.t.Errorf("%s %s%s %s: %d %s, %v", method, path, query, body, got.status, got.body, err)
		return
	}
	is := refusal.Data.Errors[0]
	meant := strings.TrimSuffix(strings.TrimPrefix(is.Message, "did you mean "), "?")
	if is.Field != field || !slices.Contains(known, meant) || refusal.DebugMessage != field+": "+is.Message {
		m.t.Errorf("%s %s%s %s: %s, want %s of %q", method, path, query, body, got.body, field, known)
	}
	second := strings.HasPrefix(field, "items[1]") && !strings.HasSuffix(path, "estimate")
	if item := refusal.Data.Item; (item != nil && *item == 1) != second {
		m.t.Errorf("%s: the item is %v", field, item)
	}
	if row := refusal.Data.Row; (row != nil && *row == 1) != strings.HasPrefix(field, "rows[1]") {
		m.t.Errorf("%s: the row is %v", field, row)
	}
}

// parameters misspells each parameter of the query.
func (m *misspeller) parameters(method, path string, op *openapi3.Operation) {
	m.t.Helper()
	var known []string
	for _, p := range op.Parameters {
		if p.Value.In == "query" {
			known = append(known, p.Value.Name)
		}
	}
	if m.table.Find(method, templateOf(path)).Takes(auth.ProjectKey) && !slices.Contains(known, "project") {
		known = append(known, "project")
	}
	for name := range misspellings(known) {
		m.refuses(method, path, "?x=1&"+url.QueryEscape(name)+"=default", "", name, known)
	}
}

// body misspells each name of each object in a body.
func (m *misspeller) body(method, path string, schema *openapi3.Schema) {
	m.t.Helper()
	visited := map[string]bool{}
	for _, body := range acceptedBodies[method+" "+strings.TrimPrefix(path, api)] {
		var value any
		runtest.Must(m.t, json.Unmarshal([]byte(body), &value))
		root := ""
		if _, is := value.([]any); is {
			root = "rows"
		}
		eachObject(schema, value, root, func(at string, object map[string]any, known []string) {
			visited[strings.NewReplacer("[0]", "[]", "[1]", "[]").Replace(at)] = true
			for name := range misspellings(known) {
				object[name] = nil
				changed, err := json.Marshal(value)
				runtest.Must(m.t, err)
				delete(object, name)
				m.refuses(method, path, "", string(changed), strings.TrimPrefix(at+"."+name, "."), known)
			}
		})
		if m.t.Failed() {
			m.t.FailNow()
		}
	}
	for _, at := range objectsOf(schema, "") {
		if at = strings.TrimPrefix(at, "."); !visited[at] && !visited["rows"+at] {
			m.t.Errorf("no body of %s %s has the object at %q", method, path, at)
		}
	}
}

// unrelated sends every body with more names that misspell nothing. The rest of a URL of a webhook is free.
func (m *misspeller) unrelated() {
	m.t.Helper()
	for route, bodies := range acceptedBodies {
		method, path, _ := strings.Cut(route, " ")
		schema := m.contract.Document().Paths.Find(api + path).GetOperation(method).RequestBody.Value.Content.
			Get("application/json").Schema.Value
		for _, body := range bodies {
			var value any
			runtest.Must(m.t, json.Unmarshal([]byte(body), &value))
			eachObject(schema, value, "", func(_ string, object map[string]any, _ []string) {
				for _, name := range []string{"projectId", "title", "x", "", "idd", "custom_field", "\u0000"} {
					object[name] = map[string]any{"audiance": 1}
				}
			})
			changed, err := json.Marshal(value)
			runtest.Must(m.t, err)
			if got := m.ask(method, api+path, "?_=1&tt=2&t0=3&%FF=4", string(changed)); got.status/100 != 2 {
				m.t.Errorf("%s %s: %d %s", route, changed, got.status, got.body)
			}
		}
	}
	hook := m.createWebhook("", "default", webhook.Settings{ContentPath: "$.content", IDPath: "$.id"})
	m.ingested(m.own, hook.URL+"?audiance=board&projct=x", `{"content":"An event.","id":"e1","audiance":"board","contnet":1}`)
}

// eachObject calls yield for each object of a body whose names the schema knows. It takes the last element of an array.
func eachObject(schema *openapi3.Schema, value any, at string, yield func(string, map[string]any, []string)) {
	switch value := value.(type) {
	case map[string]any:
		known := propertiesOf(schema)
		if len(known) > 0 {
			yield(at, value, slices.Sorted(maps.Keys(known)))
		}
		for name, p := range known {
			eachObject(p, value[name], strings.TrimPrefix(at+"."+name, "."), yield)
		}
	case []any:
		if items := schema.Items; items != nil {
			eachObject(items.Value, value[len(value)-1], fmt.Sprintf("%s[%d]", at, len(value)-1), yield)
		}
	}
}

// objectsOf returns the paths of all objects of a schema whose names it knows.
func objectsOf(schema *openapi3.Schema, at string) (paths []string) {
	known := propertiesOf(schema)
	if len(known) > 0 {
		paths = append(paths, at)
	}
	for name, p := range known {
		paths = append(paths, objectsOf(p, at+"."+name)...)
	}
	if schema.Items != nil {
		paths = append(paths, objectsOf(schema.Items.Value, at+"[]")...)
	}
	return paths
}

func propertiesOf(schema *openapi3.Schema) map[string]*openapi3.Schema {
	known := map[string]*openapi3.Schema{}
	for name, p := range schema.Properties {
		known[name] = p.Value
	}
	for _, part := range schema.AllOf {
		maps.Copy(known, propertiesOf(part.Value))
	}
	return known
}

// misspellings returns what the names of a place become by one wrong key or two.
func misspellings(known []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range known {
		all[strings.ToUpper(name)] = true
		all[strings.ToUpper(name[:1])+name[1:]] = true
		for i := range len(name) + 1 {
			all[name[:i]+"_"+name[i:]] = true
		}
		all[name[:1]+"-"+strings.ToUpper(name[1:])+"_"] = true
		if len(name) < 4 {
			continue
		}
		for i := range len(name) {
			without := name[:i] + name[i+1:]
			all[without] = true
			all[name[:i]+"é"+name[i+1:]] = true
			if i == 0 {
				continue
			}
			swapped := name[:i-1] + name[i:i+1] + name[i-1:i] + name[i+1:]
			all[swapped] = true
			if len(name) >= 8 {
				all[swapped[:i]+"x"+swapped[i:]] = true
				all[swapped+"s"] = true
				all[without[1:]] = true
				all[without[:len(without)-1]+"\u00fc"] = true
			}
		}
	}
	for _, name := range known {
		delete(all, name)
	}
	return all
}

// TestServer_AnswersSentBack sends what the service answered: names that only answers have are ignored.
func TestServer_AnswersSentBack(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	own, _ := h.keys()
	back := func(method, path string, from json.RawMessage) {
		t.Helper()
		h.must(own, method, api+path, from, nil)
	}
	var estimate struct{ Points json.RawMessage }
	h.must(own, http.MethodPost, api+"/ingest/estimate", point{
		"points": "full", "files": []point{{"path": "a.eml", "content": "From: ana@example.com\nSubject: Tea\n\nI like tea.\n"}},
	}, &estimate)
	if !strings.Contains(string(estimate.Points), `"preview"`) {
		t.Fatalf("the points are %s", estimate.Points)
	}
	items := append(append([]byte(`{"items":`), estimate.Points...), '}')
	back(http.MethodPost, "/ingest/batch", items)
	back(http.MethodPost, "/ingest/estimate", items)

	for slug, bodies := range map[string]string{"listed": acceptedBodies["PUT /audiences/{slug}"][0], "ruled": acceptedBodies["PUT /audiences/{slug}"][1]} {
		var record json.RawMessage
		h.must(own, http.MethodPut, api+"/audiences/"+slug, json.RawMessage(bodies), &record)
		back(http.MethodPut, "/audiences/"+slug, record)
		h.must(own, http.MethodGet, api+"/audiences/"+slug, nil, &record)
		back(http.MethodPut, "/audiences/"+slug, record)
	}
	var record json.RawMessage
	h.must(own, http.MethodGet, api+"/identities/ana", nil, &record)
	back(http.MethodPut, "/identities/ana", record)
	back(http.MethodPatch, "/identities/ana", record)
	var list struct{ Identities json.RawMessage }
	h.must(own, http.MethodGet, api+"/identities", nil, &list)
	back(http.MethodPost, "/identities/bulk", list.Identities)
}
