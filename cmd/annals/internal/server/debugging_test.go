package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
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
	d.node = *h.explain(d.key, d.send).Items[0].SourceID
	return d
}

// path is a route with ids that exist.
func (d *debugged) path(r auth.Route) string {
	return strings.NewReplacer(":ingestionId", d.send, ":requestId", d.request, ":id", d.node, ":rootId", d.node).
		Replace(r.Path)
}

// debuggingReads are the routes of the contract that have no row in the request log: reads, and the estimate.
func debuggingReads(t *testing.T) (routes []auth.Route) {
	t.Helper()
	for _, r := range auth.Routes() {
		if r.Unlogged {
			routes = append(routes, r)
		}
	}
	if len(routes) != 9 {
		t.Fatalf("%d debugging reads: %v", len(routes), routes)
	}
	return routes
}

// logged returns the endpoints of all calls that are made before this one, and how often they are logged.
func (d *debugged) logged() map[string]int {
	d.t.Helper()
	last := d.fetchAPI(d.key, http.MethodGet, api+"/audiences", nil)
	d.loggedAs(d.key, uuid.MustParse(last.header.Get("X-Request-Id")))
	counts := map[string]int{}
	for after := ""; ; {
		var page struct {
			HasMore   bool
			EndCursor string
			Requests  []struct{ Method, Path string }
		}
		d.must(d.key, http.MethodGet, api+"/requests?first=100&after="+url.QueryEscape(after), nil, &page)
		for _, r := range page.Requests {
			counts[r.Method+" "+r.Path]++
		}
		if !page.HasMore {
			delete(counts, "GET "+api+"/audiences")
			return counts
		}
		after = page.EndCursor
	}
}

// No debugging read and no estimate costs anything, is logged, appends an event, makes an identity or is an activity of
// one. Usage and polls are logged.
func TestServer_DebuggingReadsLeaveNoTrace(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	seen := func() (at string) {
		var i struct{ LastSeenAt string }
		d.must(d.key, http.MethodGet, api+"/identities/Ana", nil, &i)
		return i.LastSeenAt
	}
	usage, calls, lastSeen, events := d.usage(d.key), d.logged(), seen(), len(d.events())
	reads := debuggingReads(t)
	for _, r := range reads {
		var body any
		if r.Method == http.MethodPost {
			body = estimateFiles()
		}
		for _, key := range []string{d.key, d.other} {
			d.call(key, r.Method, d.path(r), body)
			d.call(key, r.Method, d.path(r)+"?first=0&limit=0&from=x&reveal=x", body)
		}
		d.must(d.key, r.Method, d.path(r), body, nil)
		if diff := cmp.Diff(usage, d.usage(d.key)); diff != "" {
			t.Errorf("%s changes usage (-before +after):\n%s", r.Path, diff)
		}
	}
	for _, e := range d.events()[events:] {
		// Recalls that were counted before may be appended while the test runs.
		if !strings.HasPrefix(e.Type, "usage.") && !strings.HasPrefix(e.Type, "pipeline.") {
			t.Errorf("a read appended %s", e.Type)
		}
	}
	d.wants(d.key, http.MethodGet, api+"/identities/Emil", nil, 404, "not-found") // of the estimate
	d.must(d.key, http.MethodGet, api+"/ingest/"+d.send, nil, nil)
	calls["GET "+api+"/usage"] += len(reads)
	calls["GET "+api+"/identities/Ana"]++
	calls["GET "+api+"/identities/Emil"]++
	calls["GET "+api+"/ingest/"+d.send]++
	if diff := cmp.Diff(calls, d.logged()); diff != "" {
		t.Errorf("logged calls (-want +got):\n%s", diff)
	}
	if at := seen(); at != lastSeen {
		t.Errorf("Ana was last seen at %s, before at %s", at, lastSeen)
	}
}

func (h *harness) explain(key, id string) (e client.Explanation) {
	h.t.Helper()
	h.must(key, http.MethodGet, api+"/ingest/"+id+"/explain", nil, &e)
	return e
}

// sendOnce sends without waiting, and returns the ids of the send and of the request.
func (h *harness) sendOnce(key, path string, status int, body any) (ingestion, request string) {
	h.t.Helper()
	got := h.fetchAPI(key, http.MethodPost, api+path, body)
	got.want(h.t, status)
	var receipt struct{ IngestionID string }
	runtest.Must(h.t, json.Unmarshal([]byte(got.body), &receipt))
	return receipt.IngestionID, got.header.Get("X-Request-Id")
}

// A call is explained by its own id and that of its send, from the moment that it is answered until after its deletion,
// to its project alone.
func TestServer_ExplainASend(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	unknown := point{"content": "x", "audience": "none"}
	refused := d.fetchAPI(d.key, http.MethodPost, api+"/ingest", unknown).header.Get("X-Request-Id")
	if e := d.explain(d.key, refused); e.IngestionID != nil || e.RequestID != refused || e.Status != 400 ||
		*e.ErrorCode != "audience-unknown" || !strings.HasPrefix(e.Next, "Create the audience") {
		t.Errorf("refused: %+v", e)
	}
	text := point{"id": "call", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana", "idempotencyKey": "k"}
	same, request := d.sendOnce(d.key, "/ingest", 200, text)
	if e := d.explain(d.key, same); e.Phase != client.PhaseNothingChanged || e.RequestID != request || e.Status != 200 {
		t.Errorf("at once: %+v", e)
	}
	_, again := d.sendOnce(d.key, "/ingest", 200, text)
	if e := d.explain(d.key, again); e.IngestionID == nil || *e.IngestionID != same || e.RequestID != request {
		t.Errorf("of a repeated call: %+v", e)
	}
	done := d.explain(d.key, d.request)
	if done.Phase != client.PhaseIndexed || done.SettledAt == nil || len(done.Items) != 1 || done.Items[0].Memories == 0 ||
		!done.Items[0].Searchable || *done.Items[0].SourceID != d.node || *done.Credits != "1" {
		t.Fatalf("indexed: %+v", done)
	}
	for _, id := range []string{d.send, d.request, refused} {
		d.wants(d.other, http.MethodGet, api+"/ingest/"+id+"/explain", nil, 404, "not-found")
	}
	d.wants(d.key, http.MethodGet, api+"/ingest/"+uuid.Must(uuid.NewV7()).String()+"/explain", nil, 404, "not-found")
	d.must(d.key, http.MethodDelete, api+"/ingest/"+d.send, nil, nil)
	want := []client.ExplainedItem{{Revision: 1, Status: "deleted", SourceID: &d.node}}
	for _, id := range []string{d.request, same} {
		if diff := cmp.Diff(want, d.explain(d.key, id).Items); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
	}
}

// explainRecall explains a recall through the operator socket.
func (h *harness) explainRecall(q client.RecallRequest, key string, ids ...string) explained.Explanation {
	h.t.Helper()
	in, err := operatorapi.NewExplainRequest(q, key, ids)
	runtest.Must(h.t, err)
	e, err := operatorapi.ExplainRecall.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	runtest.Must(h.t, err)
	return e
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
	}})
	h.send(other, "/ingest", "completed", point{"id": "foreign", "content": "Tea of the neighbour."})

	for _, identity := range []string{"ana", "ben"} {
		q := client.RecallRequest{Query: "Which tea?", Identity: identity}
		var page client.RecallResponse
		h.must(key, http.MethodPost, api+"/recall", q, &page)
		before, usage := h.events(), h.usage(key)
		e := h.explainRecall(q, key, "likes", "secret", "foreign")
		var shown, results []string
		for _, r := range page.Results {
			shown = append(shown, fmt.Sprint(r.Rank, " ", r.ID, " ", r.Artifact.Kind, " ", r.Sources[0].SourceID))
		}
		for _, r := range e.Results {
			results = append(results, fmt.Sprint(r.Rank, " ", r.ID, " ", r.Kind, " ", r.SourceID))
		}
		if diff := cmp.Diff(shown, results); diff != "" || len(results) == 0 {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
		verdicts := map[string]explained.Verdict{}
		for _, s := range e.Sources {
			verdicts[s.SourceID] = s.Verdict
		}
		want := map[string]explained.Verdict{
			"likes": explained.Returned, "secret": explained.Returned, "foreign": explained.NotStored,
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
	logged := d.logged()
	if logged["POST "+api+"/recall"] != 2 || strings.Contains(fmt.Sprint(logged), "explain") {
		t.Errorf("logged %v", logged)
	}
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
