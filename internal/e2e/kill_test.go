package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/client"
)

// kills is how often TestKill kills the service: as often as ANNALS_KILLS says, else 20 times, few in a short run.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("ANNALS_KILLS"))
	switch {
	case err == nil:
	case testing.Short():
		n = 4
	default:
		n = 20
	}
	t.Logf("%d kills (ANNALS_KILLS)", n)
	return n
}

// ledger is what was acknowledged.
type ledger struct {
	mu    sync.Mutex
	sends map[string]string // ingestion id → the word that recall must find
	texts map[string]string // source id → word
}

func (l *ledger) add(ingestionID, sourceID, word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sends[ingestionID] = word
	l.texts[sourceID] = word
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sends)
}

// What was acknowledged is there after a kill -9, completes and is recalled, and nothing is there twice.
func TestKill(t *testing.T) {
	s := newService(t)
	s.start()
	l := &ledger{sends: make(map[string]string), texts: make(map[string]string)}
	for round := range kills(t) {
		before := l.len()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var serial atomic.Int64
		load := func(work func(ctx context.Context, c *client.Client, word string) error) {
			// A connection that the kill cuts off is nothing to hold against the document.
			c := s.client(client.Options{Attempts: 1, Timeout: 10 * time.Second, Transport: http.DefaultTransport})
			group.Go(func() {
				for ctx.Err() == nil {
					word := fmt.Sprintf("w%dx%d", round, serial.Add(1))
					if err := work(ctx, c, word); err != nil && ctx.Err() == nil {
						// A refusal is a fault of the service; no answer is what a kill looks like.
						var refused *client.Error
						if errors.As(err, &refused) {
							t.Errorf("round %d: %v", round, err)
						}
						return
					}
				}
			})
		}
		for range 6 {
			load(func(ctx context.Context, c *client.Client, word string) error {
				r, err := c.Ingest(ctx, client.DataPoint{Content: "The code word is " + word, ID: "s-" + word, Identity: "ana"}, "")
				if err == nil {
					l.add(r.IngestionID, r.SourceID, word)
				}
				return err
			})
		}
		for range 2 {
			load(func(ctx context.Context, c *client.Client, word string) error {
				items := make([]json.RawMessage, 20)
				for i := range items {
					items[i] = json.RawMessage(fmt.Sprintf(`{"content":"The code word is %[1]sn%[2]d","id":"b-%[1]s-%[2]d"}`, word, i))
				}
				r, err := c.IngestBatch(ctx, items, "key-"+word)
				if err == nil {
					for i := range items {
						l.add(r.IngestionID, fmt.Sprintf("b-%s-%d", word, i), fmt.Sprintf("%sn%d", word, i))
					}
				}
				return err
			})
		}
		await(t, func() bool { return l.len() >= before+50+round*7 })
		s.kill()
		cancel()
		group.Wait()
		s.start()
	}
	c := s.client(client.Options{})
	for id := range l.sends {
		completed(t.Context(), t, c, id)
	}
	checked := 0
	for sourceID, word := range l.texts {
		if checked++; checked > 400 {
			break
		}
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: word, Identity: "ana", Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, r := range page.Results {
			if r.Artifact.Kind == "source" && r.Sources[0].SourceID == sourceID {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s is recalled %d times by %q", sourceID, found, word)
		}
	}
	// What was sent again is unchanged: no revision was lost, none doubled.
	for sourceID, word := range l.texts {
		r, err := c.Ingest(t.Context(), client.DataPoint{Content: "The code word is " + word, ID: sourceID}, "")
		if err != nil || r.Unchanged == nil || !*r.Unchanged {
			t.Fatalf("%s sent again: %+v, %v", sourceID, r, err)
		}
		if checked--; checked < 0 {
			break
		}
	}
	t.Logf("%d sends of %d data points were acknowledged", len(l.sends), len(l.texts))
}

// await waits for a condition of the test's own making.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.After(readyLimit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatal("the condition does not come about")
		case <-tick.C:
		}
	}
}
