package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// feeders is how many callers send without a pause: with a dozen callers or more the derivation
// once had a single lane.
const feeders = 16

// While one project sends without a pause, its own sends complete and so do a neighbour's, and the
// neighbour settles. Once the feed ends, its project settles too.
func TestDerivation_FeedThatNeverPauses(t *testing.T) {
	t.Parallel()
	s := newService(t, sharedPostgres(t))
	s.start()
	busy := s.client()
	neighbour, _, _ := s.neighbour()

	ctx, stop := context.WithCancel(t.Context())
	var feed sync.WaitGroup
	accepted := make(chan string, feeders)
	for f := range feeders {
		feed.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprintf("Caller %d prefers tea number %d.", f, n)
				r, err := busy.Ingest(t.Context(), client.DataPoint{Content: text})
				if err != nil {
					t.Errorf("the feed was refused: %v", err)
					return
				}
				select {
				case accepted <- r.IngestionID:
				default: // nobody waits for this one
				}
			}
		})
	}
	defer feed.Wait()
	defer stop()

	// The first sends of each caller, and later ones, complete while the others send on.
	var last string
	for range 3 * feeders {
		last = <-accepted
		completed(t.Context(), t, busy, last)
	}
	r, err := neighbour.Ingest(t.Context(), client.DataPoint{Content: "Bo's favourite editor is Helix."})
	if err != nil {
		t.Fatal(err)
	}
	settled(t.Context(), t, neighbour, r.IngestionID)
	stop()
	feed.Wait()
	settled(t.Context(), t, busy, last)
}

// settled waits until a send is completed and its project is settled.
func settled(ctx context.Context, t *testing.T, c *client.Client, id string) {
	t.Helper()
	completed(ctx, t, c, id)
	runtest.Await(t, "the project is settled", func() bool {
		status, err := c.GetIngestion(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return status.Settled
	})
}
