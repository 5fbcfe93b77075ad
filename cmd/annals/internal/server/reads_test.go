package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/runtest"
)

// readRecords returns the read records of the log.
func (h *harness) readRecords() (list []reads.Record) {
	h.t.Helper()
	for _, e := range h.events() {
		if e.Type != (reads.Recorded{}).EventType() {
			continue
		}
		var batch reads.Recorded
		if err := json.Unmarshal(e.Data, &batch); err != nil {
			h.t.Fatal(err)
		}
		list = append(list, batch.Records...)
	}
	return list
}

// Once an Owner has switched it on, each way to a text leaves a record of who was shown it, and the page shows them. No
// way leaves one before that.
func TestReads_EachWayIsRecorded(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "tea/1", "content": "Ana drinks oolong tea.", "identity": "ana"})
	h.sendTeaAndRecall()
	h.submit("admin", "/p/default/reads/setting", "mode", "kept", "days", "365").want(t, http.StatusForbidden)
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "7").want(t, http.StatusBadRequest, "30 to 3650")
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "30").want(t, http.StatusSeeOther)
	if n := len(h.readRecords()); n != 0 {
		t.Fatalf("%d records before", n)
	}
	var found struct {
		Results []struct{ ID string }
	}
	ways := map[reads.Way]func(){
		reads.Recall: func() {
			h.must(key, http.MethodPost, api+"/recall", point{"query": "oolong", "identity": "ana"}, &found)
		},
	}
	ways[reads.Recall]()
	id := found.Results[0].ID
	for way, do := range map[reads.Way]func(){
		reads.Node:     func() { h.must(key, http.MethodGet, api+"/trace/nodes/"+id, nil, nil) },
		reads.Lineage:  func() { h.get("read", "/p/default/trace/"+id+"/lineage").want(t, http.StatusOK) },
		reads.Timeline: func() { h.must(key, http.MethodGet, api+"/trace/timeline/"+id, nil, nil) },
		reads.Roots:    func() { h.get("read", "/p/default/trace").want(t, http.StatusOK) },
		reads.Point:    func() { h.get("read", "/p/default/data/tea%2F1").want(t, http.StatusOK, "oolong") },
		reads.List:     func() { h.get("read", "/p/default/data").want(t, http.StatusOK, "oolong") },
		reads.Export:   func() { h.get("admin", "/p/default/export/with-memories.jsonl").want(t, http.StatusOK, "oolong") },
		reads.Explain: func() {
			h.get("read", "/p/default/recall/explain?query=oolong&identity=ana").want(t, http.StatusOK, "oolong")
		},
		reads.Text: func() {
			h.agent(key).must("read", map[string]any{"sourceId": "tea/1", "identity": "ana", "offset": 4}, nil)
		},
		reads.Newest: func() { h.agent(key).must("recall", map[string]any{"query": "*", "identity": "ana"}, nil) },
		reads.Body: func() {
			var list struct{ Requests []struct{ RequestID string } }
			h.must(key, http.MethodGet, api+"/requests?endpoint=POST+/api/v1/recall", nil, &list)
			h.must(key, http.MethodGet, api+"/requests/"+list.Requests[0].RequestID, nil, nil)
		},
	} {
		ways[way] = do
		do()
	}
	var records []reads.Record
	runtest.Await(t, "each way is recorded", func() bool {
		records = h.readRecords()
		return len(records) >= len(ways)
	})
	for _, way := range reads.Ways() {
		n := slices.IndexFunc(records, func(r reads.Record) bool { return r.Way == way })
		if n < 0 || ways[way] == nil {
			t.Errorf("no record of %s", way)
			continue
		}
		r := records[n]
		if len(r.Shown) == 0 && r.Call == uuid.Nil || !strings.Contains(r.By, ":") {
			t.Errorf("record of %s: %+v", way, r)
		}
		for _, s := range r.Shown {
			if way != reads.Body && (len(s.Leaf) != 32 || s.Revision == 0) {
				t.Errorf("a text of %s has no leaf: %+v", way, s)
			}
		}
		if way == reads.Text && (len(r.Shown) != 1 || !slices.Equal(r.Shown[0].Spans, []reads.Span{{4, 22}})) {
			t.Errorf("what read showed: %+v", r.Shown)
		}
	}
	h.readsOfPages()
}

// readsOfPages looks at the records as an Admin does.
func (h *consoleHarness) readsOfPages() {
	h.t.Helper()
	const page = "/p/default/reads"
	runtest.Await(h.t, "the records are projected", func() bool {
		var list struct{ Items []any }
		return json.Unmarshal([]byte(h.get("admin", page+"?format=json").Body), &list) == nil && len(list.Items) == len(h.readRecords())
	})
	h.get("read", page).want(h.t, http.StatusForbidden)
	first := h.readRecords()[0]
	h.get("admin", page+"/"+first.ID.String()).want(h.t, http.StatusOK, "tea/1")
	h.get("admin", page+"/"+first.ID.String()+"?part=7").want(h.t, http.StatusNotFound)
	h.get("admin", page+"?as=ana&data=tea%2F1").want(h.t, http.StatusOK, "recall", "newest")
	h.get("admin", page+"?by=nobody").want(h.t, http.StatusOK, "No record matches")
	h.get("admin", page+"?from=never").want(h.t, http.StatusBadRequest)
	h.get("admin", page+"?after=~x").want(h.t, http.StatusBadRequest)
	h.get("admin", page+"/setting").want(h.t, http.StatusOK, "An Owner of the organization may change this", "kept")
	h.get("admin", "/p/default/data/tea%2F1").want(h.t, http.StatusOK, "who read it")
}
