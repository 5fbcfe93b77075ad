package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
)

// The sizes of the measurement of how soon a send is recalled.
const (
	// senders is how many clients make the load.
	senders = 16
	// probers is how many sends are awaited at once, and probeEvery the pause between two recalls for
	// one.
	probers    = 4
	probeEvery = 10 * time.Millisecond
	// probeLimit is how long a send is awaited.
	probeLimit = 30 * time.Second
)

// Searchable makes perSecond single sends for a while, and measures how long after its receipt a
// send is first recalled. probes bounds how many are measured.
func Searchable(
	ctx context.Context, to *client.Client, perSecond float64, lasts time.Duration, probes int, run string,
) (Times, error) {
	load, stop := context.WithTimeout(ctx, lasts+probeLimit)
	defer stop()
	over := make(chan struct{})
	group, load := errgroup.WithContext(load)
	for s := range senders {
		group.Go(func() error { return steady(load, to, perSecond/senders, over, fmt.Sprintf("%s/steady/%d", run, s)) })
	}
	end := time.Now().Add(lasts)
	var mu sync.Mutex
	var times Times
	var waiting sync.WaitGroup
	for p := range probers {
		waiting.Add(1)
		group.Go(func() error {
			defer waiting.Done()
			texts := NewTexts(uint64(p) + 500)
			for n := 0; n < probes/probers && time.Now().Before(end); n++ {
				took, err := probe(load, to, texts, fmt.Sprintf("%s/probe/%d/%d", run, p, n))
				if err != nil {
					return err
				}
				mu.Lock()
				times = append(times, took)
				mu.Unlock()
			}
			return nil
		})
	}
	group.Go(func() error { waiting.Wait(); close(over); return nil })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return times, nil
}

// steady sends at a rate until over is closed. A slower server slows it down.
func steady(ctx context.Context, to *client.Client, perSecond float64, over <-chan struct{}, run string) error {
	texts := NewTexts(900)
	tick := time.NewTicker(time.Duration(float64(time.Second) / max(perSecond, 0.1)))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return fmt.Errorf("steady load: %w", ctx.Err())
		case <-over:
			return nil
		case <-tick.C:
		}
		p := client.DataPoint{ID: fmt.Sprintf("%s/%d", run, n), Content: texts.Text(shortWords), Identity: identity}
		if _, err := to.Ingest(ctx, p); err != nil {
			return fmt.Errorf("steady load: %w", err)
		}
	}
}

// probe sends a text with a unique word, and recalls the word until it finds the text.
func probe(ctx context.Context, to *client.Client, texts *Texts, id string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	word := texts.Rare()
	p := client.DataPoint{ID: id, Content: texts.Text(shortWords) + " " + word, Identity: identity}
	if _, err := to.Ingest(ctx, p); err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	accepted := time.Now()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		page, err := to.Recall(ctx, client.RecallRequest{Query: word, Identity: identity, Limit: 1})
		if err != nil {
			return 0, fmt.Errorf("probe: %w", err)
		}
		if len(page.Results) > 0 {
			return time.Since(accepted), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("what was accepted was not recalled within %v: %w", probeLimit, ctx.Err())
		case <-tick.C:
		}
	}
}
