package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/runtest"
)

// The body of a refused send leaves the log with each data point that it carried, whatever was wrong with it.
func TestRequestLog_BodyOfRefusedSend(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	own, _ := h.keys()
	var refused []string
	for path, bodies := range map[string][]point{
		"/ingest": {{"id": "a", "content": "Ana likes tea.", "audiance": "board"}},
		"/ingest/batch": {
			{"idempotncyKey": "k", "items": []point{{"id": "b", "content": "x"}, {"id": "a", "content": "Ana likes tea."}}},
			{"items": []point{{"id": "b", "content": "x", "audiance": "board"}, {"id": "a", "content": "Ana likes tea."}}},
			{"items": []any{7, point{"id": "a", "content": "Ana likes tea."}}},
		},
	} {
		for _, body := range bodies {
			got := h.fetchAPI(own, http.MethodPost, api+path, body)
			got.want(t, http.StatusBadRequest)
			refused = append(refused, got.header.Get("X-Request-Id"))
		}
	}
	payload := func(id string) (detail struct{ Payload *struct{ Request string } }) {
		runtest.Await(t, "the call is in the log", func() bool {
			status, answer := h.call(own, http.MethodGet, api+"/requests/"+id, nil)
			return status == http.StatusOK && json.Unmarshal(answer, &detail) == nil
		})
		return detail
	}
	for _, id := range refused {
		if got := payload(id).Payload; got == nil || !strings.Contains(got.Request, "Ana likes tea.") {
			t.Errorf("the log has %+v of a refused send", got)
		}
	}
	h.send(own, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	h.must(own, http.MethodDelete, api+"/data-points/a", nil, nil)
	for _, id := range refused {
		if got := payload(id).Payload; got != nil {
			t.Errorf("after the deletion the log has %+v of a refused send", got)
		}
	}
}

// Whatever spelling of the path of a webhook comes with a key of the project, the token is in no row.
func TestRequestLog_NoTokenInAnySpelling(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{Name: "CI", ContentPath: "$.text"})
	base, token, _ := strings.Cut(w.URL, "/webhooks/"+w.ID+"/")
	escaped := func(format func(byte) string) (all string) {
		for _, b := range []byte(token) {
			all += format(b)
		}
		return all
	}
	upper := escaped(func(b byte) string { return "%" + string("0123456789ABCDEF"[b>>4]) + string("0123456789ABCDEF"[b&15]) })
	id := w.ID
	paths := []string{
		"/%77ebhooks/" + id + "/" + token, "/%77%65%62hooks/" + id + "/" + token, "/WEBHOOKS/" + id + "/" + token,
		"/webhooks/" + id + "%2F" + token, "/webhooks%2F" + id + "/" + token, "/webhooks%2f" + id + "%2f" + token,
		"//webhooks/" + id + "/" + token, "/webhooks//" + id + "/" + token, "/webhooks/" + id + "//" + token,
		"/webhooks/" + id + "/" + token + "/", "/webhooks/" + id + "/" + token + "/x", "/webhooks/" + id + "/" + token + "%2F",
		"/webhooks/" + id + "/" + upper, "/webhooks/" + id + "/" + strings.ToLower(upper), "/%77ebhooks/" + id + "/" + upper,
		"/./webhooks/" + id + "/" + token, "/x/../webhooks/" + id + "/" + token, "/" + token,
	}
	asked := 0
	for _, path := range paths {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut} {
			for _, at := range slices.Compact([]string{h.urls.API + api, base}) {
				h.fetch(method, at+path, own, "")
				asked++
			}
		}
	}
	last, err := uuid.Parse(h.fetch(http.MethodGet, h.urls.API+api+"/audiences", own, "").header.Get("X-Request-Id"))
	runtest.Must(t, err)
	h.loggedAs(own, last) // and so are the calls before it
	rows, err := h.storage.db.Query(t.Context(), `select r.path, r::text || coalesce(convert_from(substr(p.response, 2), 'UTF8'), '')
		from ops.requests r left join ops.request_payloads p using (project_id, received_at, request_id)
		where project_id = $1`, h.projectID("default"))
	runtest.Must(t, err)
	defer rows.Close()
	read := 0
	for rows.Next() {
		var path, text string
		runtest.Must(t, rows.Scan(&path, &text))
		if read++; strings.Contains(text, token) || strings.Contains(strings.ToUpper(text), strings.ToUpper(upper)) {
			t.Errorf("a row holds the token, its path is %s", path)
		}
	}
	runtest.Must(t, rows.Err())
	if read < asked/4 {
		t.Errorf("only %d rows of %d calls", read, asked)
	}
}

// The request log lists each event, and its body until the data point is deleted. The token is nowhere in
// clear. Events are charged.
func TestWebhook_RequestLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	var logged runtest.Output
	h.set = func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	h.start()
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{
		Name: "CI", ContentPath: "$.text", IDPath: "$.id", Filters: []webhook.Filter{filterOf(t, "$.text exists")},
	})
	_, token, _ := strings.Cut(w.URL, w.ID+"/")
	ingested := h.ingested(own, w.URL, `{"id":"b-1","text":"The build of the greenhouse failed."}`)
	dropped := h.event(w.URL, strings.NewReader(`{"id":"b-2"}`))
	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID, Pause: true})
	refused := h.refused(w.URL, `{"id":"b-3","text":"x"}`, http.StatusConflict, "webhook-paused")

	read := func(r received) loggedCall {
		t.Helper()
		got := h.loggedAs(own, uuid.MustParse(r.header.Get("X-Request-Id")))
		if got.Path != api+"/webhooks/"+w.ID || got.Key.Name != "CI" || got.Key.Prefix != w.ID || got.Webhook.ID != w.ID ||
			got.Webhook.Name != "CI" || got.Webhook.EventID == "" || r.EventID != "" && got.Webhook.EventID != r.EventID {
			t.Errorf("row %+v", got)
		}
		return got
	}
	if r := read(ingested); r.Outcome != "Accepted" || r.Verdict != "ingested" || r.IngestionID != ingested.IngestionID.String() ||
		r.Payload == nil || !strings.Contains(r.Payload.Request, "greenhouse") || r.Webhook.DroppedBy != "" {
		t.Errorf("ingested: %+v", r)
	}
	if r := read(dropped); r.Outcome != "Dropped" || r.Verdict != "dropped" || r.Webhook.DroppedBy != "$.text exists" ||
		r.IngestionID != "" || r.Payload == nil {
		t.Errorf("dropped: %+v", r)
	}
	if r := read(refused); r.Outcome != "Rejected" || r.Verdict != "" || r.Status != http.StatusConflict {
		t.Errorf("refused: %+v", r)
	}
	var list struct{ Requests []loggedCall }
	h.must(own, http.MethodGet, api+"/requests?endpoint=POST+/api/v1/webhooks/%7BwebhookId%7D/%7Btoken%7D", nil, &list)
	if len(list.Requests) != 3 {
		t.Errorf("%d rows, want the three events", len(list.Requests))
	}
	h.must(own, http.MethodDelete, api+"/data-points/b-1", nil, nil)
	if r := read(ingested); r.Payload != nil {
		t.Errorf("the body is kept after the deletion: %+v", r.Payload)
	}
	h.tokenNowhere(token, &logged)
	h.chargesEvents()
}

// tokenNowhere checks that a token is in no event, no row of any table and no line of the log.
func (h *harness) tokenNowhere(token string, logged *runtest.Output) {
	h.t.Helper()
	h.nowhereInClear(token)
	if text := logged.String(); !strings.Contains(text, "/webhooks/:webhookId/:token") || strings.Contains(text, token) {
		h.t.Error("the log of the process holds the token, or no event")
	}
	if strings.Contains(h.metrics(), token) {
		h.t.Error("the metrics hold the token")
	}
}

// Callers at once, and how long each load of a round lasts.
const (
	logBenchCallers = 16
	logBenchLasts   = 4 * time.Second
)

// BenchmarkRequestLog measures the throughput of ingest and of recall of a service that logs its calls
// as a ratio to one that does not. Both run in this process, each on a data folder and a database of
// its own, and take turns, so that what else happens on the machine meets both. An iteration is one
// turn of each; the ratios are medians over all iterations.
func BenchmarkRequestLog(b *testing.B) {
	logged, unlogged := newLogBench(b, false), newLogBench(b, true)
	var ingest, recall, ingestRates, recallRates []float64
	for n := 0; b.Loop(); n++ {
		turns := []*logBench{logged, unlogged}
		if n%2 == 1 {
			slices.Reverse(turns)
		}
		for _, s := range turns {
			s.sends = s.single(b, n)
		}
		for _, s := range turns {
			s.recalls = s.recallFor(b, logBenchLasts)
		}
		ingest, ingestRates = append(ingest, logged.sends/unlogged.sends), append(ingestRates, logged.sends)
		recall, recallRates = append(recall, logged.recalls/unlogged.recalls), append(recallRates, logged.recalls)
	}
	for unit, values := range map[string][]float64{
		"ingest-ratio": ingest, "recall-ratio": recall, "sends/s": ingestRates, "recalls/s": recallRates,
	} {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], unit)
	}
}

// logBench is one of the two services.
type logBench struct {
	*client.Client
	// sends and recalls are calls a second of the last turn.
	sends, recalls float64
}

func newLogBench(b *testing.B, unlogged bool) *logBench {
	b.Helper()
	h := newHarness(b)
	h.set = func(cfg *Config) { cfg.RateLimit, cfg.NoRequestLog = new(int), unlogged }
	h.start()
	key, _ := h.keys()
	c, err := client.New(h.urls.API, key)
	runtest.Must(b, err)
	return &logBench{Client: c}
}

// single sends for a while and waits until all of it is derived.
func (s *logBench) single(b *testing.B, round int) (perSecond float64) {
	b.Helper()
	rate, err := load.Single(b.Context(), s.Client, logBenchCallers, logBenchLasts, fmt.Sprint("round ", round))
	runtest.Must(b, err)
	last, err := s.Ingest(b.Context(), client.DataPoint{ID: fmt.Sprint("last of ", round), Content: "The end."})
	runtest.Must(b, err)
	_, err = s.WaitSettled(b.Context(), last.IngestionID, nil)
	runtest.Must(b, err)
	return rate.PerSecond
}

func (s *logBench) recallFor(b *testing.B, lasts time.Duration) (perSecond float64) {
	b.Helper()
	var answered atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	began := time.Now()
	for c := range logBenchCallers {
		group.Go(func() error {
			texts := load.NewTexts(uint64(c) + 1)
			for time.Since(began) < lasts {
				page, err := s.Recall(ctx, client.RecallRequest{Query: texts.Query(), Identity: "load", Limit: 10})
				if err != nil {
					return fmt.Errorf("recall: %w", err)
				}
				if len(page.Results) > 0 {
					answered.Add(1)
				}
			}
			return nil
		})
	}
	runtest.Must(b, group.Wait())
	if answered.Load() == 0 {
		b.Fatal("no recall found anything: nothing was measured")
	}
	return float64(answered.Load()) / time.Since(began).Seconds()
}
