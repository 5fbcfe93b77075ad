package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/why"
)

// readRecords returns the read records of the log.
func (h *harness) readRecords() (list []reads.Record) {
	h.t.Helper()
	for _, e := range h.events() {
		if e.Type != (reads.Recorded{}).EventType() {
			continue
		}
		var batch reads.Recorded
		runtest.Must(h.t, json.Unmarshal(e.Data, &batch))
		list = append(list, batch.Records...)
	}
	return list
}

// Once an Owner has switched it on, each way to a text leaves a record of who was shown it, and the page shows them. No
// way leaves one before that.
func TestReads_EachWayIsRecorded(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := startConsole(t)
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "tea/1", "content": "Ana drinks oolong tea.", "identity": "ana"})
	h.sendTeaAndRecall()
	h.submit("admin", "/p/default/reads/setting", "mode", "kept", "days", "365").want(t, http.StatusForbidden)
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "7").want(t, http.StatusBadRequest, "30 to 3650")
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "30").want(t, http.StatusSeeOther)
	if n := len(h.readRecords()); n != 0 {
		t.Fatalf("%d records before", n)
	}
	ways := h.waysToTexts(key)
	for way, ask := range ways {
		if a := ask(); a.status != http.StatusOK || !a.shows && way != reads.Roots && way != reads.Body {
			t.Errorf("%s: %+v", way, a)
		}
	}
	var records []reads.Record
	runtest.Await(t, "each way is recorded", func() bool {
		records = h.readRecords()
		return !slices.ContainsFunc(reads.Ways(), func(way reads.Way) bool {
			return !slices.ContainsFunc(records, func(r reads.Record) bool { return r.Way == way })
		})
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
	h.opensReads()
	h.provesReads(key, ways)
}

// opensReads opens the texts of a record: as an Admin, as those who may not, and as an operator. Each is a visit, and
// of a person another read.
func (h *consoleHarness) opensReads() {
	h.t.Helper()
	records := h.readRecords()
	first := records[slices.IndexFunc(records, func(r reads.Record) bool { return r.Way == reads.Recall })]
	path := "/p/default/reads/" + first.ID.String() + "/texts"
	h.get("read", path).want(h.t, http.StatusForbidden)
	h.get("auditor", path).want(h.t, http.StatusForbidden) // the organization shows auditors no texts
	h.get("foreign", path).want(h.t, http.StatusNotFound)
	h.get("admin", "/p/default/reads/"+uuid.NewString()+"/texts").want(h.t, http.StatusNotFound)
	h.get("admin", path).want(h.t, http.StatusOK, "as it was stored", "drinks", "ana could read it then", "checked")
	found, err := operatorapi.ShowRead.Call(h.t.Context(), operatorapi.Dial(h.dir),
		operatorapi.ShowReadRequest{Request: first.ID})
	if err != nil || len(found.Shown) != len(first.Shown) || found.Shown[0].Kept != why.KeptAsStored || !found.Rooted ||
		found.Shown[0].Reading == nil || !found.Shown[0].Reading.MayRead || found.Project != "default" {
		h.t.Errorf("an operator is shown %+v, %v", found, err)
	}
	runtest.Await(h.t, "each is a visit, with the one of the ways, and what the page showed another read", func() bool {
		return h.count("visit.read-opened.v1") == 2 && h.count("visit.operator-read.v1") == 1 &&
			slices.ContainsFunc(h.readRecords(), func(r reads.Record) bool { return r.Way == reads.Past })
	})
}

// provesReads asks in each way while reads are proved: the record is in the log once there is an answer, and with the
// log away there is none.
func (h *consoleHarness) provesReads(key string, ways map[reads.Way]func() textAnswer) {
	h.t.Helper()
	log := &cutLog{Store: h.reads.Journal.Store}
	h.reads.Journal.Store = log
	h.submit("owner", "/p/default/reads/setting", "mode", "proved", "days", "30").want(h.t, http.StatusSeeOther)
	h.get("owner", "/p/default/reads/setting").want(h.t, http.StatusOK, "An append takes")
	ways["a recall of an agent"] = h.byTool(key, "recall", map[string]any{"query": "oolong", "identity": "ana"})
	for way, ask := range ways {
		before := len(h.readRecords())
		a := ask()
		after := h.readRecords()
		if a.status != http.StatusOK || len(after) == before {
			h.t.Errorf("%s: %+v, %d records before and %d after", way, a, before, len(after))
		}
	}
	charged, _ := h.usage(key).Project["recalls"].(float64)
	before := len(h.readRecords())
	log.cut.Store(true)
	for way, ask := range ways {
		if a := ask(); a.status != http.StatusServiceUnavailable || a.shows || !a.waits {
			h.t.Errorf("%s with the log away: %+v", way, a)
		}
	}
	log.cut.Store(false)
	if now, _ := h.usage(key).Project["recalls"].(float64); now != charged {
		h.t.Errorf("%v recalls were charged that were not answered", now-charged)
	}
	if n := len(h.readRecords()); n != before {
		h.t.Errorf("%d records of what was not shown", n-before)
	}
}

// cutLog is a log that can be cut off.
type cutLog struct {
	eventstore.Store

	cut atomic.Bool
}

func (l *cutLog) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if l.cut.Load() {
		return eventstore.Appended{}, eventstore.ErrUnavailable
	}
	return l.Store.Append(ctx, name, at, events)
}

// recorded waits until the page has the record of a recall, and returns its request.
func (h *consoleHarness) recorded() (request string) {
	h.t.Helper()
	runtest.Await(h.t, "the record of a recall is projected", func() bool {
		var list struct {
			Items []struct{ RequestID, Way string }
		}
		runtest.Must(h.t, json.Unmarshal([]byte(h.get("admin", "/p/default/reads?format=json").Body), &list))
		for _, r := range list.Items {
			if r.Way == string(reads.Recall) {
				request = r.RequestID
			}
		}
		return request != ""
	})
	return request
}

// textAnswer is an answer: its status, and whether it shows the text or refuses with the time to wait.
type textAnswer struct {
	status       int
	shows, waits bool
}

// byTool asks for a text by a tool of an agent.
func (h *consoleHarness) byTool(key, tool string, args map[string]any) func() textAnswer {
	a := h.agent(key)
	return func() textAnswer {
		text, refusal := a.use(tool, args, nil)
		if strings.HasPrefix(refusal, "service-unavailable: ") {
			return textAnswer{http.StatusServiceUnavailable, strings.Contains(refusal, "drinks"), true}
		}
		return textAnswer{http.StatusOK, strings.Contains(text, "drinks"), false}
	}
}

// waysToTexts asks for a text in each way.
func (h *consoleHarness) waysToTexts(key string) map[reads.Way]func() textAnswer {
	h.t.Helper()
	call := func(method, path string, body any) textAnswer {
		got := h.fetchAPI(key, method, path, body)
		return textAnswer{got.status, strings.Contains(got.body, "drinks"), got.header.Get("Retry-After") != ""}
	}
	open := func(role, path string) func() textAnswer {
		return func() textAnswer {
			p := h.get(role, path)
			return textAnswer{p.Status, strings.Contains(p.Body, "drinks"), p.RetryAfter != ""}
		}
	}
	var found struct{ Results []struct{ ID string } }
	var list struct{ Requests []struct{ RequestID string } }
	recall := point{"query": "oolong", "identity": "ana"}
	h.must(key, http.MethodPost, api+"/recall", recall, &found)
	h.must(key, http.MethodGet, api+"/requests?endpoint=POST+/api/v1/recall", nil, &list)
	id, asked := found.Results[0].ID, list.Requests[0].RequestID
	return map[reads.Way]func() textAnswer{
		reads.Past:     open("admin", "/p/default/reads/"+h.recorded()+"/texts"),
		reads.Recall:   func() textAnswer { return call(http.MethodPost, api+"/recall", recall) },
		reads.Node:     func() textAnswer { return call(http.MethodGet, api+"/trace/nodes/"+id, nil) },
		reads.Timeline: func() textAnswer { return call(http.MethodGet, api+"/trace/timeline/"+id, nil) },
		reads.Body:     func() textAnswer { return call(http.MethodGet, api+"/requests/"+asked, nil) },
		reads.Lineage:  open("read", "/p/default/trace/"+id+"/lineage"),
		reads.Roots:    open("read", "/p/default/trace"),
		reads.Point:    open("read", "/p/default/data/tea%2F1"),
		reads.List:     open("read", "/p/default/data"),
		reads.Export:   open("admin", "/p/default/export/with-memories.jsonl"),
		reads.Explain:  open("read", "/p/default/recall/explain?query=oolong&identity=ana"),
		reads.Text:     h.byTool(key, "read", map[string]any{"sourceId": "tea/1", "identity": "ana", "offset": 4}),
		reads.Newest:   h.byTool(key, "recall", map[string]any{"query": "*", "identity": "ana"}),
	}
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

// What is in the operator log stays until it is recorded. A line that a crash cut is passed over, and the file is
// bounded.
func TestOperatorLog(t *testing.T) {
	t.Parallel()
	log := newOperatorLog(t.TempDir())
	runtest.Must(t, log.take(func(operatorLine) error { return errors.New("there is no line") }))
	want := []operatorLine{
		{At: time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC), Principal: "operator root", Command: "annals export", RequestID: uuid.New()},
		{Principal: "operator root (says: Ruth)", Reason: "ticket 7", Command: "annals events read", Of: readOf{Stream: "registry"}},
	}
	for _, line := range want {
		runtest.Must(t, log.add(line))
	}
	away := errors.New("away")
	if err := log.take(func(operatorLine) error { return away }); !errors.Is(err, away) {
		t.Errorf("while nothing is recorded: %v", err)
	}
	file, err := os.OpenFile(log.path, os.O_APPEND|os.O_WRONLY, 0)
	runtest.Must(t, err)
	_, err = file.WriteString(`{"at":"2026`)
	runtest.Must(t, errors.Join(err, file.Close()))
	var got []operatorLine
	runtest.Must(t, log.take(func(line operatorLine) error {
		got = append(got, line)
		return nil
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(log.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	runtest.Must(t, os.WriteFile(log.path, []byte(strings.Repeat("x", maxOperatorLog)), 0o600))
	if err := log.add(want[0]); err == nil {
		t.Error("a full file takes a line")
	}
}
