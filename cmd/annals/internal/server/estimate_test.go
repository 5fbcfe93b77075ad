package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/hostilefiles"
)

// estimated is what a test reads of an estimate.
type estimated struct {
	DataPoints, FitsFirst int
	Credits               *float64
	Fits, Metered         bool
	Balance               map[string]any
	Batches               []struct {
		Points         int
		IdempotencyKey string
	}
	Points []point
}

const estimatePath = api + "/ingest/estimate"

func estimateFiles(points string) point {
	return point{"points": points, "timeZone": "Europe/Rome", "files": []point{
		{"path": "mail.eml", "content": "From: Dora <dora@example.com>\nSubject: Tea\nDate: Mon, 12 May 2025 10:15:00 +0200\nMessage-ID: <1@x>\n\nDora likes tea.\n"},
		{"path": "chat.txt", "content": "[12/05/2025, 10:15] Emil: I live in Oslo.\n[13/05/2025, 10:15] Emil: Hello.\n[13/05/2025, 10:16] Fay: Hi.\n"},
		{"path": "call.vtt", "content": "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Gus>Hello.\n"},
		{"path": "tasks.csv", "content": "id,title,date\n1,Water the garden,2025-05-12\n2,Buy tea,\n"},
		{"path": "log.jsonl", "content": "{\"id\":1,\"message\":\"disk full\"}\n"},
		{"path": "brew.py", "content": "def brew():\n    return 1\n"},
		{"path": "guide.md", "content": "# Tea\n\nBoil water.\n\n## Milk\n\nNever first.\n"},
		{"path": "notes.txt", "content": "The kettle is old."},
		{"path": "bad.json", "content": "{"},
	}}
}

// An estimate appends no event, costs nothing, is not logged, makes no identity, and returns the same again.
func TestServer_EstimateLeavesNoTrace(t *testing.T) {
	unraced(t)
	t.Parallel()
	d := newDebugged(t)
	_ = d.logged() // what came before is flushed
	events, usage, calls := len(d.events()), d.usage(d.key), d.logged()
	var first, again estimated
	for _, points := range []string{"none", "summary", "full"} {
		d.must(d.key, http.MethodPost, estimatePath, estimateFiles(points), nil)
	}
	d.must(d.key, http.MethodPost, estimatePath, estimateFiles("full"), &first)
	d.must(d.key, http.MethodPost, estimatePath, estimateFiles("full"), &again)
	d.wants(d.key, http.MethodPost, estimatePath, point{}, 400, "invalid-request")
	d.wants(d.key, http.MethodPost, estimatePath, point{"files": []point{{"path": "a", "content": "x", "kind": "pdf"}}}, 400, "invalid-request")
	d.wants(d.management, http.MethodPost, estimatePath, estimateFiles("none"), 401, "unauthorized")
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a second estimate differs: %s", diff)
	}
	if diff := cmp.Diff(usage, d.usage(d.key)); diff != "" {
		t.Errorf("usage (-before +after):\n%s", diff)
	}
	calls["GET "+api+"/usage"]++
	if diff := cmp.Diff(calls, d.logged()); diff != "" {
		t.Errorf("logged calls (-want +got):\n%s", diff)
	}
	d.wants(d.key, http.MethodGet, api+"/identities/Emil", nil, 404, "not-found")
	for _, e := range d.events()[events:] {
		// Recalls that were counted before may be appended while the test runs.
		if !strings.HasPrefix(e.Type, "usage.") && !strings.HasPrefix(e.Type, "pipeline.") {
			t.Errorf("an estimate appended %s", e.Type)
		}
	}
}

// Hostile files of every kind, and a chat that nests without end, are estimated or skipped.
func TestServer_EstimateOfHostileFiles(t *testing.T) {
	unraced(t)
	t.Parallel()
	d := newDebugged(t)
	files := []point{{"path": "chat.json", "kind": "chat", "content": strings.Repeat(`{"chats":{"list":[`, 100_000)}}
	for _, f := range hostilefiles.Make(8, 1000) {
		files = append(files, point{"path": f.Path, "content": f.Content, "kind": string(f.Kind)})
	}
	var e struct {
		Files  []struct{ Skipped *string }
		Points []point
	}
	d.must(d.key, http.MethodPost, estimatePath, point{"files": files, "points": "full"}, &e)
	if len(e.Files) != len(files) || len(e.Points) == 0 || e.Files[0].Skipped == nil ||
		!strings.Contains(*e.Files[0].Skipped, "1000 levels") {
		t.Errorf("%d files, %d data points, %+v", len(e.Files), len(e.Points), e.Files[:1])
	}
}

// A batch of an estimate is accepted as it is, once, at the price of the estimate, and recall finds it.
func TestServer_EstimateIsSent(t *testing.T) {
	unraced(t)
	t.Parallel()
	d := newDebugged(t)
	var e estimated
	d.must(d.key, http.MethodPost, estimatePath, estimateFiles("full"), &e)
	if e.DataPoints != 11 || len(e.Batches) != 1 || !e.Metered || !e.Fits || e.FitsFirst != 11 || e.Credits == nil {
		t.Fatalf("%+v", e)
	}
	before, _ := d.usage(d.key).Project["credits"].(float64)
	batch := point{"items": e.Points, "idempotencyKey": e.Batches[0].IdempotencyKey}
	send, _ := d.sendOnce(d.key, "/ingest/batch", 202, batch)
	d.await(d.key, send, "completed")
	if again, _ := d.sendOnce(d.key, "/ingest/batch", 202, batch); again != send {
		t.Errorf("the same key made %s and %s", send, again)
	}
	after, _ := d.usage(d.key).Project["credits"].(float64)
	if after-before != *e.Credits {
		t.Errorf("it cost %v credits, the estimate is %v", after-before, *e.Credits)
	}
	var page struct{ Results []struct{ Content string } }
	d.must(d.key, http.MethodPost, api+"/recall", point{"query": "Where does Emil live?", "identity": "Ana"}, &page)
	found := false
	for _, r := range page.Results {
		found = found || strings.Contains(r.Content, "Oslo")
	}
	if !found {
		t.Errorf("recall returns %+v", page.Results)
	}
	d.must(d.key, http.MethodGet, api+"/identities/dora@example.com", nil, nil)
}

// What fits follows the balance and the caps of the project and the organization.
func TestServer_EstimateFitsCaps(t *testing.T) {
	unraced(t)
	t.Parallel()
	d := newDebugged(t)
	want := func(when string, fits bool, first int, balance point) {
		t.Helper()
		var e estimated
		d.must(d.key, http.MethodPost, estimatePath, estimateFiles("none"), &e)
		if e.Fits != fits || e.FitsFirst != first {
			t.Errorf("%s: fits %v, the first %d", when, e.Fits, e.FitsFirst)
		}
		for name, value := range balance {
			if e.Balance[name] != value {
				t.Errorf("%s: %s is %v, want %v", when, name, e.Balance[name], value)
			}
		}
	}
	want("without caps", true, 11, point{"projectCapLeft": nil, "ingestionCapReached": false})
	used, _ := d.usage(d.key).Project["credits"].(float64)
	slug, _ := d.usage(d.key).Project["slug"].(string)
	d.setCaps("Acme", slug, nil, new(int64(used*10)+30))
	want("with a credit cap", false, 3, point{"projectCapLeft": 3.0, "ingestionCapReached": false})
	ingested, _ := d.usage(d.key).Project["ingestions"].(float64)
	d.setCaps("Acme", slug, new(int64(ingested)), new(int64(1_000_000)))
	want("with an ingestion cap", false, 0, point{"ingestionCapReached": true})
	d.setCaps("Acme", slug, new(int64(1_000_000)), nil)
	want("with high caps", true, 11, point{"ingestionCapReached": false})
	d.setSpendCap("Acme", new(int64(used*10)+50))
	want("with a spend cap", false, 5, nil)
}
