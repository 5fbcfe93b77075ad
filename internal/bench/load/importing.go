package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
)

// Import sends batches in a closed loop: each client sends its next batch once the previous one is
// answered. A refused batch is not repeated.
type Import struct {
	// To makes each call once.
	To                     *client.Client
	Batches, Size, Clients int
	Run                    string
}

// Imported is the result of an Import.
type Imported struct {
	// Accepted and Refused count batches.
	Accepted, Refused int
	// Lasted is the time until the last answer.
	Lasted time.Duration
	// Times are those of the accepted batches, Sent their ids.
	Times Times
	Sent  []string
}

// Start sends the batches. An error other than a temporary refusal ends it.
func (i Import) Start(ctx context.Context) (Imported, error) {
	var (
		mu   sync.Mutex
		out  Imported
		next atomic.Int64
	)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for c := range i.Clients {
		group.Go(func() error {
			texts := NewTexts(uint64(c) + 20_000)
			for n := int(next.Add(1)) - 1; n < i.Batches; n = int(next.Add(1)) - 1 {
				items := batch(texts, n, i.Size, shortWords, i.Run)
				start := time.Now()
				receipt, err := i.To.IngestBatch(ctx, client.Batch{Items: items})
				took := time.Since(start)
				_, refused := refusedForNow(err)
				if err != nil && !refused {
					return fmt.Errorf("import: %w", err)
				}
				mu.Lock()
				if refused {
					out.Refused++
				} else {
					out.Accepted++
					out.Times, out.Sent = append(out.Times, took), append(out.Sent, receipt.IngestionID)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	out.Lasted = time.Since(began)
	return out, err
}

// AwaitCompleted waits until each of the sends is shown as completed.
func AwaitCompleted(ctx context.Context, to *client.Client, sent []string) error {
	for _, id := range sent {
		if _, err := ended(ctx, to, id, time.Now()); err != nil {
			return fmt.Errorf("send %s: %w", id, err)
		}
	}
	return nil
}
