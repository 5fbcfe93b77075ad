package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/bench/load"
)

// The comparison of events of webhooks with sends. A webhook takes limit.WebhookEvents a minute, which all rounds
// together stay below.
const (
	eventRounds  = 6
	eventsRound  = 1600
	eventClients = 16
	// eventCost is how much more than a send an event may cost.
	eventCost = 1.3
)

// eventRun sends the same texts as events and by ingest.
type eventRun struct {
	*loadRun
	texts  *load.Texts
	hooks  []string // URLs
	events *client.Client
	sends  *client.Client
	http   http.Client
}

// webhooks measures the processor time of an event of a webhook, and of the same text by ingest, in turns. It needs
// the operator socket of a separate server.
func (m *loadRun) webhooks(ctx context.Context) (err error) {
	if m.own == nil {
		return nil
	}
	r := &eventRun{loadRun: m, texts: load.NewTexts(7)}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = eventClients
	defer transport.CloseIdleConnections()
	r.http = http.Client{Transport: transport, Timeout: time.Minute}
	if r.sends, err = m.project(ctx, "sends"); err != nil {
		return err
	}
	if err := r.createWebhooks(ctx); err != nil {
		return err
	}
	var event, send float64 // seconds
	for round := range eventRounds {
		texts := make([]string, eventsRound)
		for n := range texts {
			texts[n] = r.texts.Text(shortWords)
		}
		turns := []func() error{
			func() error { return r.turn(ctx, &send, round, texts, r.sends, r.send) },
			func() error { return r.turn(ctx, &event, round, texts, r.events, r.event) },
		}
		if round%2 == 1 {
			turns[0], turns[1] = turns[1], turns[0]
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
	}
	const count = eventRounds * eventsRound / 1e6
	m.row(load.Row{What: "a text by ingest, processor time of service and Postgres", Value: send / count, Unit: "µs"})
	m.row(load.Row{
		What: "the same text as event of a webhook", Value: event / count, Unit: "µs", Must: eventCost * send / count,
		Bare: send / count, BareOf: "by ingest",
	})
	return nil
}

func (r *eventRun) createWebhooks(ctx context.Context) error {
	slug, key, err := r.newProject(ctx, "events")
	if err != nil {
		return err
	}
	if r.events, err = clientOf(r.Manager.BaseURL(), key); err != nil {
		return err
	}
	for range limit.Webhooks {
		var w struct{ URL string }
		err := operate(ctx, r.Program, r.DataDir, &w, "webhook", "create", "--project", slug, "--name", "bench",
			"--content-path", "$.note.text", "--id-path", "$.note.id", "--occurred-at-path", "$.at",
			"--filter", "$.type is note")
		if err != nil {
			return fmt.Errorf("create a webhook: %w", err)
		}
		r.hooks = append(r.hooks, w.URL)
	}
	return nil
}

// turn sends texts and adds the processor time until all of them are derived.
func (r *eventRun) turn(
	ctx context.Context, seconds *float64, round int, texts []string, of *client.Client,
	send func(ctx context.Context, id, text string, n int) error,
) error {
	before, err := r.processor(ctx)
	if err != nil {
		return err
	}
	group, sending := errgroup.WithContext(ctx)
	for c := range eventClients {
		group.Go(func() error {
			for n := c; n < len(texts); n += eventClients {
				if err := send(sending, fmt.Sprintf("%s/%d/%d", r.run, round, n), texts[n], n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if _, err := r.awaitSettled(ctx, of); err != nil {
		return err
	}
	after, err := r.processor(ctx)
	*seconds += after.service - before.service + after.postgres - before.postgres
	return err
}

func (r *eventRun) send(ctx context.Context, id, text string, _ int) error {
	_, err := r.sends.Ingest(ctx, client.DataPoint{ID: id, Content: text})
	return err
}

func (r *eventRun) event(ctx context.Context, id, text string, n int) error {
	body, err := json.Marshal(map[string]any{
		"type": "note", "at": time.Now().UnixMilli(), "note": map[string]any{"id": id, "text": text},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.hooks[n%len(r.hooks)], bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, limit.WebhookBody))
	if err == nil && res.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("an event was answered with %d: %s", res.StatusCode, answer)
	}
	return err
}
