package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/metering"
)

// usageAnswer is the answer of GET /usage with either key.
type usageAnswer struct {
	Month struct {
		ResetsAt *string `json:"resetsAt"`
	} `json:"month"`
	Balance  map[string]any `json:"balance"`
	Project  map[string]any `json:"project"`
	Projects []map[string]any
	Metered  bool `json:"metered"`
}

func (h *harness) usage(key string) (u usageAnswer) {
	h.t.Helper()
	h.must(key, http.MethodGet, api+"/usage", nil, &u)
	return u
}

func (h *harness) newProject(management, name string) (key string) {
	h.t.Helper()
	var project struct{ Slug string }
	h.must(management, http.MethodPost, api+"/projects", point{"name": name}, &project)
	var created struct{ Key string }
	h.must(management, http.MethodPost, api+"/projects/"+project.Slug+"/keys", point{"name": "k"}, &created)
	return created.Key
}

func (h *harness) refusedRecall(key string) (status int, code string, data map[string]any) {
	h.t.Helper()
	status, body := h.call(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"})
	var answer struct {
		Code string
		Data map[string]any
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		h.t.Errorf("%s: %v", body, err)
	}
	return status, answer.Code, answer.Data
}

func wantFields(t testing.TB, what string, got map[string]any, want map[string]any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// projectUsage is the usage of a project without caps.
func projectUsage(slug string, credits, ingestions, recalls any) map[string]any {
	return map[string]any{
		"slug": slug, "credits": credits, "ingestions": ingestions, "recalls": recalls,
		"creditCap": nil, "creditCapLeft": nil, "ingestionCap": nil, "ingestionCapLeft": nil,
	}
}

func usageBalance(left, spent float64) map[string]any {
	return map[string]any{"left": left, "included": 400000.0, "bought": 0.0, "rolledOver": 0.0, "spent": spent}
}

func withSpendCap(balance map[string]any, spendCap any) map[string]any {
	balance["spendCap"] = spendCap
	return balance
}

// usageTest is an organization with three projects, and the first organization of the service.
type usageTest struct {
	*harness
	own, ownManagement            string
	management, tea, coffee, gone string
}

// A usage read includes every call that was answered before, with either key, only of its own
// organization, also after a restart.
func TestServer_Usage(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := usageTest{harness: newHarness(t)}
	h.start()
	h.own, h.ownManagement = h.keys()
	h.management = h.createAcme().ManagementKey
	h.tea, h.coffee, h.gone = h.newProject(h.management, "Tea"), h.newProject(h.management, "Coffee"),
		h.newProject(h.management, "Gone")
	h.countsEveryCall()
	h.countsAfterARestart()
	h.showsCaps()
	h.spendsToTheEnd()
	h.leavesTheNeighbourAlone()
}

// countsEveryCall checks that every call counts in the next read, with either key.
func (h usageTest) countsEveryCall() {
	h.t.Helper()
	u := h.usage(h.tea)
	wantFields(h.t, "at first", u.Balance, usageBalance(400000, 0))
	wantFields(h.t, "at first", u.Project, projectUsage("tea", 0.0, 0.0, 0.0))
	if !u.Metered || u.Month.ResetsAt == nil || u.Projects != nil {
		h.t.Errorf("at first: %+v", u)
	}

	h.must(h.tea, http.MethodPost, api+"/ingest", point{"id": "a", "content": strings.Repeat("x", 351)}, nil)
	wantFields(h.t, "sent", h.usage(h.tea).Project, projectUsage("tea", 2.0, 1.0, 0.0))
	for n := range 3 {
		h.must(h.tea, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
		wantFields(h.t, "recalled", h.usage(h.tea).Project, projectUsage("tea", 2+float64(n+1)/10, 1.0, float64(n+1)))
	}
	h.must(h.tea, http.MethodPost, api+"/ingest", point{"id": "a", "content": strings.Repeat("x", 351)}, nil) // unchanged
	if status, _ := h.call(h.tea, http.MethodPost, api+"/recall", point{"query": "tea"}); status != http.StatusBadRequest {
		h.t.Errorf("a recall for nobody: %d", status)
	}
	items := []point{{"id": "b", "content": strings.Repeat("y", 700)}, {"id": "c", "content": "z"}}
	h.must(h.coffee, http.MethodPost, api+"/ingest/batch", point{"items": items}, nil)
	h.must(h.gone, http.MethodPost, api+"/ingest", point{"content": "w"}, nil)
}

// wantUsage checks what was used before the caps.
func (h usageTest) wantUsage(when string) {
	h.t.Helper()
	wantFields(h.t, when, h.usage(h.tea).Project, projectUsage("tea", 2.3, 1.0, 3.0))
	wantFields(h.t, when, h.usage(h.coffee).Project, projectUsage("coffee", 3.0, 2.0, 0.0))
	wantFields(h.t, when, h.usage(h.coffee).Balance, usageBalance(400000-6.3, 6.3))
	all := h.usage(h.management)
	wantFields(h.t, when, all.Balance, withSpendCap(usageBalance(400000-6.3, 6.3), nil))
	if diff := cmp.Diff([]map[string]any{projectUsage("coffee", 3.0, 2.0, 0.0), projectUsage("tea", 2.3, 1.0, 3.0)},
		all.Projects); diff != "" || !all.Metered {
		h.t.Errorf("%s, projects (-want +got):\n%s", when, diff)
	}
}

// countsAfterARestart checks the usage before and after a flush, and after a restart.
func (h usageTest) countsAfterARestart() {
	h.t.Helper()
	h.setArchived("Acme", "gone", true) // is not listed, and was charged all the same
	h.wantUsage("used")
	if err := h.background.metering.Flush(h.t.Context()); err != nil || h.count("usage.charged.v1") == 0 {
		h.t.Errorf("the recalls are not in the log: %v", err)
	}
	h.wantUsage("flushed")
	before := h.count("usage.charged.v1")
	h.must(h.own, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	h.stop()
	h.start()
	var left int
	if err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from ops.charges`).Scan(&left); err != nil || left != 0 || h.count("usage.charged.v1") <= before {
		h.t.Errorf("%d sums were not in the log when the service ended, %v", left, err)
	}
	h.wantUsage("started again")
}

// showsCaps checks that a cap and what is left of it are shown.
func (h usageTest) showsCaps() {
	h.t.Helper()
	h.setCaps("Acme", "tea", new(int64(5)), new(int64(25)))
	h.setSpendCap("Acme", new(int64(64)))
	want := projectUsage("tea", 2.3, 1.0, 3.0)
	want["creditCap"], want["creditCapLeft"], want["ingestionCap"], want["ingestionCapLeft"] = 2.5, 0.2, 5.0, 4.0
	wantFields(h.t, "capped", h.usage(h.tea).Project, want)
	wantFields(h.t, "capped", h.usage(h.management).Balance, withSpendCap(usageBalance(400000-6.3, 6.3), 6.4))
	var list struct{ Projects []map[string]any }
	h.must(h.management, http.MethodGet, api+"/projects", nil, &list)
	for i, want := range []map[string]any{
		{"slug": "tea", "ingestionCap": 5.0, "monthIngestions": 1.0, "creditCap": 2.5, "monthCredits": 2.3},
		{"slug": "coffee", "ingestionCap": nil, "monthIngestions": 2.0, "creditCap": nil, "monthCredits": 3.0},
		{"slug": "gone", "ingestionCap": nil, "monthIngestions": 1.0, "creditCap": nil, "monthCredits": 1.0},
	} {
		for field, value := range want {
			if list.Projects[i][field] != value {
				h.t.Errorf("project %v: %s is %v, want %v", want["slug"], field, list.Projects[i][field], value)
			}
		}
	}
}

// spendsToTheEnd spends the last tenth of the cap, then the last credits.
func (h usageTest) spendsToTheEnd() {
	h.t.Helper()
	h.must(h.coffee, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	if status, code, data := h.refusedRecall(h.tea); status != http.StatusTooManyRequests ||
		code != "spend-cap-reached" || data["cap"] != 6.4 || data["spent"] != 6.4 || data["resetsAt"] == nil {
		h.t.Errorf("over the spend cap: %d %s %v", status, code, data)
	}
	h.setSpendCap("Acme", nil)
	h.grant("Acme", -3999935)
	h.must(h.tea, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	status, code, data := h.refusedRecall(h.tea)
	if status != http.StatusPaymentRequired || code != "out-of-credits" {
		h.t.Errorf("out of credits: %d %s", status, code)
	}
	wantFields(h.t, "out of credits", data, map[string]any{"creditsLeft": 0.0, "creditsNeeded": 0.1})
	h.setPlan("Acme", "flex")
	h.must(h.tea, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	b := h.usage(h.management).Balance
	wantFields(h.t, "spent", b, map[string]any{
		"left": 0.0, "included": 400000.0, "bought": -399993.5,
		"rolledOver": 0.0, "spent": 6.5, "spendCap": nil,
	})
}

// leavesTheNeighbourAlone checks that the neighbour is not metered and is not affected.
func (h usageTest) leavesTheNeighbourAlone() {
	h.t.Helper()
	nothing := map[string]any{"left": nil, "included": nil, "bought": nil, "rolledOver": nil, "spent": nil}
	u := h.usage(h.own)
	wantFields(h.t, "the neighbour", u.Balance, nothing)
	wantFields(h.t, "the neighbour", u.Project, projectUsage("default", nil, 0.0, 1.0))
	if u.Metered || u.Month.ResetsAt != nil {
		h.t.Errorf("the neighbour: %+v", u)
	}
	u = h.usage(h.ownManagement)
	wantFields(h.t, "the neighbour", u.Balance, withSpendCap(nothing, nil))
	if diff := cmp.Diff([]map[string]any{projectUsage("default", nil, 0.0, 1.0)}, u.Projects); diff != "" {
		h.t.Errorf("the neighbour's projects (-want +got):\n%s", diff)
	}
	h.setCaps("Annals", "default", nil, new(int64(20)))
	h.must(h.own, http.MethodPost, api+"/ingest", point{"id": "a", "content": "x"}, nil)
	u = h.usage(h.own)
	want := projectUsage("default", nil, 1.0, 1.0)
	want["creditCap"], want["creditCapLeft"] = 2.0, 1.0
	wantFields(h.t, "the neighbour, capped", u.Project, want)
	if u.Month.ResetsAt == nil {
		h.t.Error("a cap of the neighbour resets never")
	}
}

// Usage before the first metered plan is not charged.
func TestServer_UsageBeforeAPlan(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.set = func(s *Config) {
		var err error
		if s.PlanTerms, err = metering.DefaultPlanTerms().Override(`{"flex":{"allowanceTenths":50}}`); err != nil {
			t.Fatal(err)
		}
	}
	h.start()
	own, _ := h.keys()
	h.must(own, http.MethodPost, api+"/ingest", point{"content": strings.Repeat("x", 700)}, nil)
	h.setPlan("", "flex")
	h.must(own, http.MethodPost, api+"/ingest", point{"content": "y"}, nil)
	u := h.usage(own)
	left := u.Balance["left"].(float64)
	if u.Project["credits"] != 3.0 || u.Balance["spent"] != 1.0 || u.Balance["included"] != left+1 || !u.Metered {
		t.Errorf("usage %+v", u)
	}
	if granted := h.count("organization.credits-granted.v1"); u.Balance["included"] != 150000.0*float64(granted)+5 {
		t.Errorf("with %d grants: %+v", granted, u.Balance)
	}
	h.backsUpRecalls(own)
	h.showsWhoSent(own)
}

// backsUpRecalls checks that a backup, which is made from the log alone, has the recalls counted
// outside it.
func (h *harness) backsUpRecalls(key string) {
	h.t.Helper()
	before := h.count("usage.charged.v1")
	h.must(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	if _, err := h.backups.Make(h.t.Context(), filepath.Join(h.t.TempDir(), "backup")); err != nil {
		h.t.Error(err)
	}
	if got := h.count("usage.charged.v1"); got != before+1 {
		h.t.Errorf("after a backup the log has %d sums, want %d", got, before+1)
	}
}

// showsWhoSent checks that the first read of an identity after a completed send shows that send.
func (h *harness) showsWhoSent(key string) {
	h.t.Helper()
	for n := range 8 {
		began := time.Now().Truncate(time.Microsecond)
		h.send(key, "/ingest", "completed", point{"id": "seen", "content": fmt.Sprintf("Tea at %d.", n), "identity": "ivo"})
		var ivo struct{ LastSeenAt time.Time }
		h.must(key, http.MethodGet, api+"/identities/ivo", nil, &ivo)
		if ivo.LastSeenAt.Before(began) {
			h.t.Errorf("send %d is completed, and its author was last seen %s before it", n, began.Sub(ivo.LastSeenAt))
		}
	}
}

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

// A batch of an estimate is accepted as it is, once, at the price of the estimate, and recall finds it.
func TestServer_EstimateIsSent(t *testing.T) {
	unraced(t)
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
