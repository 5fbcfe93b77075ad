package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/runtest"
)

// usageAnswer is the answer of GET /usage with either key.
type usageAnswer struct {
	Balance, Project map[string]any
	Projects         []map[string]any
	Metered          bool
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

// Usage before the first metered plan is not charged. Every call counts in the next read, once, with either key, only
// of its own organization, also after a flush and a restart.
func TestServer_Usage(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.set = func(s *Config) {
		var err error
		s.PlanTerms, err = metering.DefaultPlanTerms().Override(`{"flex":{"allowanceTenths":50}}`)
		runtest.Must(t, err)
	}
	h.start()
	own, _ := h.keys()
	h.chargesFromThePlanOn(own)
	h.backsUpRecalls(own)
	h.showsWhoSent(own)

	management := h.createAcme().ManagementKey
	tea, gone := h.newProject(management, "Tea"), h.newProject(management, "Gone")
	charged := h.count("usage.charged.v1")
	recall := func() { h.must(tea, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil) }
	text := point{"id": "a", "content": strings.Repeat("x", 351)}
	h.must(tea, http.MethodPost, api+"/ingest", text, nil)
	for n := range 3 {
		recall()
		wantFields(t, "recalled", h.usage(tea).Project, projectUsage("tea", 2+float64(n+1)/10, 1.0, float64(n+1)))
	}
	h.must(tea, http.MethodPost, api+"/ingest", text, nil) // unchanged
	h.wants(tea, http.MethodPost, api+"/recall", point{"query": "tea"}, http.StatusBadRequest, "identity-required")
	h.must(gone, http.MethodPost, api+"/ingest/batch", point{"items": []point{
		{"id": "b", "content": strings.Repeat("y", 700)}, {"id": "c", "content": "z"},
	}}, nil)
	h.setArchived("Acme", "gone", true) // is not listed, and was charged all the same
	want := func(when string, recalls, spent float64) {
		t.Helper()
		project := projectUsage("tea", 2+recalls/10, 1.0, recalls)
		wantFields(t, when, h.usage(tea).Project, project)
		all, balance := h.usage(management), usageBalance(400000-spent, spent)
		wantFields(t, when, h.usage(tea).Balance, balance)
		balance["spendCap"] = nil
		wantFields(t, when, all.Balance, balance)
		if diff := cmp.Diff([]map[string]any{project}, all.Projects); diff != "" || !all.Metered {
			t.Errorf("%s, projects (-want +got):\n%s", when, diff)
		}
	}
	want("used", 3, 5.3)
	if err := h.background.metering.Flush(t.Context()); err != nil || h.count("usage.charged.v1") == charged {
		t.Errorf("the recalls are not in the log: %v", err)
	}
	want("flushed", 3, 5.3)
	recall()
	h.stop()
	h.start()
	var left int
	if err := h.storage.db.QueryRow(t.Context(), `select count(*) from ops.charges`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d sums were not in the log when the service ended, %v", left, err)
	}
	want("started again", 4, 5.4)
}

// chargesFromThePlanOn sends before and after the plan of an organization, the only one, is metered.
func (h *harness) chargesFromThePlanOn(key string) {
	h.t.Helper()
	h.must(key, http.MethodPost, api+"/ingest", point{"content": strings.Repeat("x", 700)}, nil)
	h.setPlan("", "flex")
	h.must(key, http.MethodPost, api+"/ingest", point{"content": "y"}, nil)
	u := h.usage(key)
	left := u.Balance["left"].(float64)
	if u.Project["credits"] != 3.0 || u.Balance["spent"] != 1.0 || u.Balance["included"] != left+1 || !u.Metered {
		h.t.Errorf("usage %+v", u)
	}
	if granted := h.count("organization.credits-granted.v1"); u.Balance["included"] != 150000.0*float64(granted)+5 {
		h.t.Errorf("with %d grants: %+v", granted, u.Balance)
	}
}

// backsUpRecalls checks that a backup, which is made from the log alone, has the recalls counted
// outside it.
func (h *harness) backsUpRecalls(key string) {
	h.t.Helper()
	before := h.count("usage.charged.v1")
	h.must(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	_, err := h.backups.Make(h.t.Context(), filepath.Join(h.t.TempDir(), "backup"))
	runtest.Must(h.t, err)
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

func estimateFiles() point {
	return point{"points": "full", "timeZone": "Europe/Rome", "files": []point{
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

// A batch of an estimate is accepted as it is, once, at the price of the estimate, and recall finds it.
func TestServer_EstimateIsSent(t *testing.T) {
	unraced(t)
	d := newDebugged(t)
	var e client.Estimate
	d.must(d.key, http.MethodPost, api+"/ingest/estimate", estimateFiles(), &e)
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
	if cost, err := e.Credits.Float64(); err != nil || after-before != cost {
		t.Errorf("it cost %v credits, the estimate is %v, %v", after-before, e.Credits, err)
	}
	var page client.RecallResponse
	d.must(d.key, http.MethodPost, api+"/recall", point{"query": "Where does Emil live?", "identity": "Ana"}, &page)
	if !slices.ContainsFunc(page.Results, func(r client.RecallResult) bool { return strings.Contains(r.Content, "Oslo") }) {
		t.Errorf("recall returns %+v", page.Results)
	}
	d.must(d.key, http.MethodGet, api+"/identities/dora@example.com", nil, nil)
}
