package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
)

// The request log lists each event, and its body until the data point is deleted. The token is nowhere in
// clear.
func TestWebhook_RequestLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	var logged lines
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

	type row struct {
		RequestID, Path, Outcome string
		Status                   int
		IngestionID, Verdict     *string
		Key                      struct{ Name, Prefix string }
		Webhook                  struct {
			ID, Name           string
			EventID, DroppedBy *string
		}
		Payload *struct{ Request, Response string }
	}
	read := func(r received) (got row) {
		t.Helper()
		id := r.header.Get("X-Request-Id")
		runtest.Await(t, "the row is written", func() bool {
			status, _ := h.call(own, http.MethodGet, api+"/requests/"+id, nil)
			return status == http.StatusOK
		})
		h.must(own, http.MethodGet, api+"/requests/"+id, nil, &got)
		if got.Path != api+"/webhooks/"+w.ID || got.Key.Name != "CI" || got.Key.Prefix != w.ID || got.Webhook.ID != w.ID ||
			got.Webhook.Name != "CI" || got.Webhook.EventID == nil || r.EventID != "" && *got.Webhook.EventID != r.EventID {
			t.Errorf("row %+v", got)
		}
		return got
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if r := read(ingested); r.Outcome != "Accepted" || text(r.Verdict) != "ingested" || text(r.IngestionID) != ingested.IngestionID.String() ||
		r.Payload == nil || !strings.Contains(r.Payload.Request, "greenhouse") || r.Webhook.DroppedBy != nil {
		t.Errorf("ingested: %+v", r)
	}
	if r := read(dropped); r.Outcome != "Dropped" || text(r.Verdict) != "dropped" || text(r.Webhook.DroppedBy) != "$.text exists" ||
		r.IngestionID != nil || r.Payload == nil {
		t.Errorf("dropped: %+v", r)
	}
	if r := read(refused); r.Outcome != "Rejected" || r.Verdict != nil || r.Status != http.StatusConflict {
		t.Errorf("refused: %+v", r)
	}
	var list struct{ Requests []row }
	h.must(own, http.MethodGet, api+"/requests?endpoint=POST+/api/v1/webhooks/%7BwebhookId%7D/%7Btoken%7D", nil, &list)
	if len(list.Requests) != 3 {
		t.Errorf("%d rows, want the three events", len(list.Requests))
	}
	h.must(own, http.MethodDelete, api+"/data-points/b-1", nil, nil)
	if r := read(ingested); r.Payload != nil {
		t.Errorf("the body is kept after the deletion: %+v", r.Payload)
	}
	h.tokenNowhere(token, &logged)
}

// tokenNowhere checks that a token is in no event, no row of any table and no line of the log.
func (h *harness) tokenNowhere(token string, logged *lines) {
	h.t.Helper()
	h.nowhereInClear(token)
	rows, err := h.storage.db.Query(h.t.Context(), `select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables
		where schemaname not in ('pg_catalog', 'information_schema')`)
	if err != nil {
		h.t.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			h.t.Fatal(err)
		}
		tables = append(tables, table)
	}
	for _, table := range tables {
		var n int
		err := h.storage.db.QueryRow(h.t.Context(), `select count(*) from `+table+` x where strpos(x::text, $1) > 0
			or strpos(x::text, encode($1::bytea, 'hex')) > 0`, token).Scan(&n)
		if err != nil || n > 0 {
			h.t.Errorf("%d rows of %s hold the token, %v", n, table, err)
		}
	}
	if len(tables) < 20 {
		h.t.Errorf("only %d tables were searched", len(tables))
	}
	if text := logged.text(); !strings.Contains(text, "/webhooks/:webhookId/:token") || strings.Contains(text, token) {
		h.t.Error("the log of the process holds the token, or no event")
	}
	if strings.Contains(h.metrics(), token) {
		h.t.Error("the metrics hold the token")
	}
}

// lines is a log that goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
