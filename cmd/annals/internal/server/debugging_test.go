package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recall/explained"
)

// debugged is a project with something of every kind to look at.
type debugged struct {
	*harness
	key, management, other string
	send, request, node    string
	refused                string
}

func newDebugged(t *testing.T) *debugged {
	t.Helper()
	h := newTenant(t)
	d := &debugged{harness: h, management: h.createAcme().ManagementKey}
	d.key, d.other = h.newProject(d.management, "Tea"), h.newProject(d.management, "Coffee")
	d.send, d.request = h.sendOnce(d.key, "/ingest", 202, point{
		"id": "call", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana",
	})
	h.await(d.key, d.send, "completed")
	h.must(d.key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "Ana"}, nil)
	_, header, _ := h.callWithHeader(d.key, http.MethodPost, api+"/ingest", point{"content": "x", "audience": "none"})
	d.refused = header.Get("X-Request-Id")
	d.node = *h.explain(d.key, d.send).Items[0].SourceID
	return d
}

// path is a route with ids that exist.
func (d *debugged) path(r auth.Route) string {
	return strings.NewReplacer(":ingestionId", d.send, ":requestId", d.request, ":id", d.node, ":rootId", d.node).
		Replace(r.Path)
}

// debuggingReads are the routes of the contract that are built and have no row in the request log.
func debuggingReads(t *testing.T) (routes []auth.Route) {
	t.Helper()
	for _, r := range auth.Routes() {
		if r.Unlogged && r.Path != api+"/ingest/estimate" {
			routes = append(routes, r)
		}
	}
	if len(routes) != 8 {
		t.Fatalf("%d debugging reads: %v", len(routes), routes)
	}
	return routes
}

// logged returns the endpoints of all logged calls and how often they are logged, as soon as a call
// that is made now is among them.
func (d *debugged) logged() map[string]int {
	d.t.Helper()
	_, header, _ := d.callWithHeader(d.key, http.MethodGet, api+"/audiences", nil)
	last := header.Get("X-Request-Id")
	var counts map[string]int
	runtest.Await(d.t, "the log has "+last, func() bool {
		if d.t.Failed() {
			d.t.FailNow()
		}
		var found bool
		counts, found = d.readLog(last)
		return found
	})
	delete(counts, "GET "+api+"/audiences")
	return counts
}

// readLog returns how often each endpoint is logged, on all pages, and whether the call id is logged.
func (d *debugged) readLog(id string) (counts map[string]int, found bool) {
	d.t.Helper()
	counts = map[string]int{}
	for after := ""; ; {
		var page struct {
			HasMore   bool
			EndCursor string
			Requests  []struct{ RequestID, Method, Path string }
		}
		d.must(d.key, http.MethodGet, api+"/requests?first=100&after="+url.QueryEscape(after), nil, &page)
		for _, r := range page.Requests {
			counts[r.Method+" "+r.Path]++
			found = found || r.RequestID == id
		}
		if !page.HasMore {
			return counts, found
		}
		after = page.EndCursor
	}
}

// No debugging read costs anything, is logged, or is an activity of an identity. Usage and polls are
// logged.
func TestServer_DebuggingReadsLeaveNoTrace(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	seen := func() (at string) {
		var i struct{ LastSeenAt string }
		d.must(d.key, http.MethodGet, api+"/identities/Ana", nil, &i)
		return i.LastSeenAt
	}
	usage, calls, lastSeen := d.usage(d.key), d.logged(), seen()
	for _, r := range debuggingReads(t) {
		for _, key := range []string{d.key, d.other} {
			d.call(key, r.Method, d.path(r), nil)
			d.call(key, r.Method, d.path(r)+"?first=0&limit=0&from=x&reveal=x", nil)
		}
		d.must(d.key, r.Method, d.path(r), nil, nil)
		if diff := cmp.Diff(usage, d.usage(d.key)); diff != "" {
			t.Errorf("%s changes usage (-before +after):\n%s", r.Path, diff)
		}
	}
	calls["GET "+api+"/usage"] += len(debuggingReads(t))
	calls["GET "+api+"/identities/Ana"]++
	poll := "GET " + api + "/ingest/" + d.send
	d.must(d.key, http.MethodGet, api+"/ingest/"+d.send, nil, nil)
	calls[poll]++
	if diff := cmp.Diff(calls, d.logged()); diff != "" {
		t.Errorf("logged calls (-want +got):\n%s", diff)
	}
	if calls[poll] < 2 {
		t.Errorf("polls are not logged: %v", calls)
	}
	if at := seen(); at != lastSeen {
		t.Errorf("Ana was last seen at %s, before at %s", at, lastSeen)
	}
	for _, read := range []string{"/requests", "/explain", "/trace"} {
		for call := range d.logged() {
			if strings.Contains(call, read) {
				t.Errorf("%s is logged", call)
			}
		}
	}
}

// A refused call is explained by its request id at once, as long as the log keeps it, to its project
// alone.
func TestServer_ExplainARefusedCall(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	_, header, _ := d.callWithHeader(d.key, http.MethodPost, api+"/ingest", point{"content": "x", "audience": "none"})
	for _, id := range []string{d.refused, header.Get("X-Request-Id")} {
		e := d.explain(d.key, id)
		if e.IngestionID != nil || e.RequestID != id || e.Status != 400 || *e.ErrorCode != "audience-unknown" ||
			!strings.HasPrefix(e.Next, "Create the audience") {
			t.Errorf("%+v", e)
		}
		d.wants(d.other, http.MethodGet, api+"/ingest/"+id+"/explain", nil, 404, "not-found")
	}
	if e := d.explain(d.key, d.request); e.IngestionID == nil || *e.IngestionID != d.send || e.Status != 202 {
		t.Errorf("of the send: %+v", e)
	}
	// A second call with the same idempotency key finds the send of the first.
	again := point{"content": "Cy likes rain.", "idempotencyKey": "k"}
	send, first := d.sendOnce(d.key, "/ingest", 202, again)
	_, second := d.sendOnce(d.key, "/ingest", 202, again)
	if e := d.explain(d.key, second); e.IngestionID == nil || *e.IngestionID != send || e.RequestID != first {
		t.Errorf("of a repeated call: %+v", e)
	}
	d.wants(d.key, http.MethodGet, api+"/ingest/"+uuid.Must(uuid.NewV7()).String()+"/explain", nil, 404, "not-found")
}

// envelope fails unless a body is the JSON of an error.
func envelope(status int, body []byte) error {
	var e struct {
		Code, DebugMessage string
		Status             int
		Data               map[string]any
	}
	err := json.Unmarshal(body, &e)
	if err != nil || e.Code == "" || e.DebugMessage == "" || e.Status != status || e.Data == nil {
		return fmt.Errorf("%d %.300s is no envelope: %w", status, body, err)
	}
	for _, inner := range []string{"SQLSTATE", "goroutine", "pgx", "ops.", "datapoints."} {
		if strings.Contains(string(body), inner) {
			return errors.New("an answer shows " + inner)
		}
	}
	return nil
}

// What is asked wrongly, by a stranger, or very often, is refused with an envelope, shows nothing of
// another project, and stays small.
func TestServer_DebuggingReadsUnderHostileQuestions(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	values := []string{
		"", "\x00", "a\x00b", "\xff", "-1", "0", "99999999999999999999", "1e3", "%", "_", "%%__", `\`, "'", "(a+)+$", "[",
		"tea", "call", "Ana", d.send, d.request, d.node, "{" + d.node + "}", strings.ReplaceAll(d.node, "-", ""),
		uuid.Nil.String(), strings.Repeat("x", 1001), strings.Repeat("ü", 5000), "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z", "2026-02-30", strings.Repeat("A", 32), strings.Repeat("_", 42) + "8=",
		d.node + ":inputs", ":inputs", "true", "2xx",
	}
	names := []string{
		"from", "to", "status", "statusClass", "endpoint", "keyName", "search", "after", "first", "ingestionId",
		"afterMemories", "afterSources", "revealAll", "reveal", "limit",
	}
	ask := func(key, path string) {
		t.Helper()
		status, body := d.call(key, http.MethodGet, path, nil)
		if status >= 500 {
			t.Errorf("%.200s: %d %.300s", path, status, body)
		}
		if status >= 400 && len(body) > 0 && status != http.StatusRequestHeaderFieldsTooLarge {
			if err := envelope(status, body); err != nil {
				t.Errorf("%.200s: %v", path, err)
			}
		}
		if len(body) > 1<<20 {
			t.Errorf("%.200s: %d bytes", path, len(body))
		}
		if key == d.other && strings.Contains(string(body), "Rome") {
			t.Errorf("%.200s shows another project: %.300s", path, body)
		}
	}
	for _, r := range debuggingReads(t) {
		for i, name := range names {
			for j, value := range values {
				if (i+j)%3 > 0 && os.Getenv("ANNALS_HOSTILE") == "" {
					continue // a third of them for each name, all of them in make soak
				}
				ask(d.key, d.path(r)+"?"+url.Values{name: {value}}.Encode())
			}
			ask(d.other, d.path(r)+"?"+url.Values{name: {"call"}}.Encode())
			for _, value := range []string{"x", "2", d.node + ":outputs"} {
				for _, times := range []int{2, 101, 1000, 10_000} {
					ask(d.key, d.path(r)+"?"+strings.Repeat("&"+name+"="+value, times))
				}
			}
		}
		if strings.Contains(r.Path, ":") {
			for _, value := range values {
				if value != "" {
					at := strings.Index(r.Path, ":")
					end := max(strings.Index(r.Path[at:], "/"), 0)
					rest := ""
					if end > 0 {
						rest = r.Path[at+end:]
					}
					ask(d.key, r.Path[:at]+url.PathEscape(value)+rest)
				}
			}
			d.wants(d.other, r.Method, d.path(r), nil, 404, "not-found")
		}
		d.wants(d.management, r.Method, d.path(r), nil, 401, "unauthorized")
		d.wants("svc_sk_unknown", r.Method, d.path(r), nil, 401, "unauthorized")
	}
	d.setArchived("Acme", "tea", true)
	for _, r := range debuggingReads(t) {
		d.wants(d.key, r.Method, d.path(r), nil, 403, "project-archived")
	}
}

// Debugging reads are within the limit of calls per minute; only polls of a send are outside.
func TestRoutes_DebuggingReadsAreLimited(t *testing.T) {
	unraced(t)
	for _, r := range auth.Routes() {
		polls := r.Method == http.MethodGet && r.Path == api+"/ingest/:ingestionId"
		if r.Unlimited != (polls || r.Open) {
			t.Errorf("%s %s: unlimited is %t", r.Method, r.Path, r.Unlimited)
		}
	}
}

// explainedCall is the answer of explain.
type explainedCall struct {
	IngestionID  *string        `json:"ingestionId"`
	RequestID    string         `json:"requestId"`
	Status       int            `json:"status"`
	ErrorCode    *string        `json:"errorCode"`
	AcceptedAt   time.Time      `json:"acceptedAt"`
	SettledAt    *time.Time     `json:"settledAt"`
	Phase        string         `json:"phase"`
	Failure      map[string]any `json:"failure"`
	Items        []explainedItem
	ItemsOmitted int      `json:"itemsOmitted"`
	Credits      *float64 `json:"credits"`
	Next         string   `json:"next"`
}

type explainedItem struct {
	DataPointID *string `json:"dataPointId"`
	Revision    int     `json:"revision"`
	Status      string  `json:"status"`
	Searchable  bool    `json:"searchable"`
	Memories    int     `json:"memories"`
	SourceID    *string `json:"sourceId"`
}

func (h *harness) explain(key, id string) (e explainedCall) {
	h.t.Helper()
	h.must(key, http.MethodGet, api+"/ingest/"+id+"/explain", nil, &e)
	return e
}

// sendOnce sends without waiting, and returns the ids of the send and of the request.
func (h *harness) sendOnce(key, path string, status int, body any) (ingestion, request string) {
	h.t.Helper()
	got, header, answer := h.callWithHeader(key, http.MethodPost, api+path, body)
	var receipt struct {
		IngestionID string `json:"ingestionId"`
	}
	if err := json.Unmarshal(answer, &receipt); err != nil || got != status {
		h.t.Fatalf("%d %s, %v", got, answer, err)
	}
	return receipt.IngestionID, header.Get("X-Request-Id")
}

// A send is explained from the moment that it is answered until after its deletion.
func TestServer_ExplainASend(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	key, management := h.credentials()[datafolder.ProjectKeyName], h.createAcme().ManagementKey
	other := h.newProject(management, "Tea")

	id, request := h.sendOnce(key, "/ingest", 202, point{"id": "a/b", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"})
	at := h.explain(key, id)
	if at.RequestID != request || *at.IngestionID != id || at.Status != 202 || at.ErrorCode != nil ||
		at.Credits != nil || at.Next == "" {
		t.Errorf("at once: %+v", at)
	}
	h.await(key, id, "completed")
	done := h.explain(key, request)
	if done.Phase != "indexed" || done.SettledAt == nil || done.SettledAt.Before(done.AcceptedAt) || len(done.Items) != 1 {
		t.Fatalf("indexed: %+v", done)
	}
	item := done.Items[0]
	if item.Memories == 0 || item.SourceID == nil || !item.Searchable || *item.DataPointID != "a/b" || item.Status != "created" {
		t.Errorf("item %+v", item)
	}
	node := *item.SourceID
	for _, stranger := range []string{other, management} {
		status, code := 404, "not-found"
		if stranger == management {
			status, code = 401, "unauthorized"
		}
		h.wants(stranger, http.MethodGet, api+"/ingest/"+id+"/explain", nil, status, code)
		h.wants(stranger, http.MethodGet, api+"/ingest/"+request+"/explain", nil, status, code)
	}
	h.wants(key, http.MethodGet, api+"/ingest/"+uuid.NewString()+"/explain", nil, 404, "not-found")

	same, _ := h.sendOnce(key, "/ingest", 200, point{"id": "a/b", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"})
	unchanged := h.explain(key, same)
	if unchanged.Phase != "nothing-changed" || unchanged.Status != 200 || unchanged.Items[0].Status != "unchanged" ||
		*unchanged.Items[0].SourceID != node || unchanged.Items[0].Memories != item.Memories {
		t.Errorf("unchanged: %+v", unchanged)
	}

	h.must(key, http.MethodDelete, api+"/ingest/"+id, nil, nil)
	gone := h.explain(key, request)
	want := []explainedItem{{Revision: 1, Status: "deleted", SourceID: &node}}
	if diff := cmp.Diff(want, gone.Items); diff != "" || !strings.HasPrefix(gone.Next, "Nothing: what was sent is deleted") {
		t.Errorf("deleted (-want +got):\n%s%+v", diff, gone)
	}
	if again := h.explain(key, same); again.Items[0].Status != "deleted" || again.Items[0].DataPointID != nil {
		t.Errorf("the unchanged item of a deleted data point: %+v", again.Items)
	}
}

// The first 100 items of a batch are listed, and what it cost.
func TestServer_ExplainABatch(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	key := h.newProject(h.createAcme().ManagementKey, "Tea")
	items := make([]point, 130)
	for n := range items {
		items[n] = point{"id": fmt.Sprint(n), "content": fmt.Sprintf("Ana likes tea number %d.", n)}
	}
	id, _ := h.sendOnce(key, "/ingest/batch", 202, point{"items": items})
	h.await(key, id, "completed")
	e := h.explain(key, id)
	if len(e.Items) != 100 || e.ItemsOmitted != 30 || e.Credits == nil || *e.Credits != 130 {
		t.Fatalf("%d items, %d omitted, credits %v", len(e.Items), e.ItemsOmitted, e.Credits)
	}
	for n, item := range e.Items {
		if *item.DataPointID != fmt.Sprint(n) || !item.Searchable || item.Revision != 1 || item.Memories == 0 {
			t.Errorf("item %d: %+v", n, item)
		}
	}
}

// explainRecall explains a recall through the operator socket.
func (h *harness) explainRecall(q client.RecallRequest, key string, ids ...string) explained.Explanation {
	h.t.Helper()
	in, err := operatorapi.NewExplainRequest(q, key, ids)
	if err != nil {
		h.t.Fatal(err)
	}
	e, err := operatorapi.ExplainRecall.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

// shown are the ranks and sources of a recall, in its order.
func shown(results []client.RecallResult) (list []string) {
	for _, r := range results {
		list = append(list, fmt.Sprint(r.Rank, " ", r.ID, " ", r.Artifact.Kind, " ", r.Sources[0].SourceID))
	}
	return list
}

// An explanation shows what the API returns, writes nothing but that an operator read it, and names no data point of
// another project. A start records what operators read while it could not be recorded.
func TestServer_ExplainARecall(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t) // what an operator reads by a key is a visit of the first organization
	h.set = func(c *Config) { c.RateLimit = new(0) }
	runtest.Must(t, os.MkdirAll(h.dir, 0o700))
	runtest.Must(t, newOperatorLog(h.dir).add(operatorLine{
		At: time.Now(), Principal: "operator root", Reason: "ticket 7", RequestID: uuid.New(), Command: "annals export",
	}))
	h.start()
	runtest.Await(t, "the earlier read is in the log", func() bool { return h.count("visit.operator-read.v1") == 1 })
	runtest.Await(t, "the file is gone", func() bool {
		_, err := os.Stat(newOperatorLog(h.dir).path)
		return errors.Is(err, os.ErrNotExist)
	})
	management := h.createAcme().ManagementKey
	key, other := h.newProject(management, "Tea"), h.newProject(management, "Coffee")
	h.must(key, http.MethodPut, api+"/identities/ana", point{"traits": point{"team": "tea"}}, nil)
	h.must(key, http.MethodPut, api+"/audiences/tasters", point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	h.send(key, "/ingest/batch", "completed", point{"items": []point{
		{"id": "likes", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"},
		{"id": "secret", "content": "The tea of the tasters is oolong.", "audience": "tasters"},
		{"id": "rain", "content": "It rained."},
	}})
	h.send(other, "/ingest", "completed", point{"id": "foreign", "content": "Tea of the neighbour."})

	for _, identity := range []string{"ana", "ben"} {
		q := client.RecallRequest{Query: "Which tea?", Identity: identity}
		var page client.RecallResponse
		h.must(key, http.MethodPost, api+"/recall", q, &page)
		before, usage := h.events(), h.usage(key)
		e := h.explainRecall(q, key, "likes", "secret", "rain", "foreign")
		var results []client.RecallResult
		for _, r := range e.Results {
			results = append(results, client.RecallResult{
				ID: r.ID.String(), Rank: r.Rank, Artifact: client.Artifact{Kind: r.Kind},
				Sources: []client.RecallSource{{SourceID: r.SourceID}},
			})
		}
		if diff := cmp.Diff(shown(page.Results), shown(results)); diff != "" || len(results) == 0 {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
		verdicts := map[string]explained.Verdict{}
		for _, s := range e.Sources {
			verdicts[s.SourceID] = s.Verdict
			if s.SourceID == "secret" && s.Gate.Audience != "tasters" {
				t.Errorf("gate %+v", s.Gate)
			}
		}
		want := map[string]explained.Verdict{
			"likes": explained.Returned, "secret": explained.Returned, "rain": explained.NotCandidate, "foreign": explained.NotStored,
		}
		if identity == "ben" {
			want["secret"] = explained.Refused
		}
		if diff := cmp.Diff(want, verdicts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
		for _, e := range h.events() { // the pipeline may still note what is searchable, and what an operator read is noted
			if e.Position > before[len(before)-1].Position && e.Stream != stream.Pipeline &&
				stream.Category(e.Stream) != stream.Visits {
				t.Errorf("%s was appended to %s", e.Type, e.Stream)
			}
		}
		if diff := cmp.Diff(usage, h.usage(key)); diff != "" {
			t.Errorf("it is charged:\n%s", diff)
		}
	}
	for _, s := range h.explainRecall(client.RecallRequest{Query: "tea", Identity: "ana"}, other, "likes", "secret").Sources {
		if s.Verdict != explained.NotStored {
			t.Errorf("in the project of the neighbour: %+v", s)
		}
	}
	runtest.Await(t, "what the operator read is in the log", func() bool { return h.count("visit.operator-read.v1") == 4 })
	d := &debugged{harness: h, key: key}
	if logged := d.logged(); logged["POST "+api+"/recall"] != 2 || slices.ContainsFunc(keysOf(logged), func(call string) bool {
		return strings.Contains(call, "explain")
	}) {
		t.Errorf("logged %v", logged)
	}
}

func keysOf(counts map[string]int) (keys []string) {
	for key := range counts {
		keys = append(keys, key)
	}
	return keys
}

// The API explains no recall: it has no such route, and the body of a recall has no such field.
func TestServer_ExplainNoRecallOverTheAPI(t *testing.T) {
	unraced(t)
	for _, r := range auth.Routes() {
		if strings.Contains(r.Path, "recall") && strings.Contains(r.Path, "explain") {
			t.Errorf("the contract has %s %s", r.Method, r.Path)
		}
	}
	h := newTenant(t)
	key, management := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	q := point{"query": "tea", "identity": "ana", "explain": true, "sourceIds": []string{"a"}}
	for _, with := range []string{key, management} {
		for _, path := range []string{"/operator/recall/explain", api + "/operator/recall/explain", api + "/recall/explain"} {
			for _, url := range []string{h.urls.API, h.urls.Console} {
				if got := h.fetch(http.MethodPost, url+path, with, `{"recall":{"query":"tea","identity":"ana"}}`); got.status/100 == 2 {
					t.Errorf("%s%s: %s", url, path, got.body)
				}
			}
		}
	}
	status, body := h.call(key, http.MethodPost, api+"/recall", q)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || status != 200 || len(members) != 3 {
		t.Errorf("%d %s, %v", status, body, err)
	}
}
