package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
)

// identity is the identity of the load.
const identity = "load"

// shortWords is the length of a short text: about 120 bytes.
const shortWords = 20

// Times are durations of one kind of call.
type Times []time.Duration

// Percentile returns a percentile in milliseconds. It sorts the times.
func (t Times) Percentile(p float64) float64 {
	slices.Sort(t)
	return float64(score.Percentile(t, p).Microseconds()) / 1000
}

// Rate is the result of a load.
type Rate struct {
	PerSecond float64
	Lasted    time.Duration
	Times     Times
}

// Single sends data points one after the other from a number of clients for a while, at least one
// each. A send counts once it is acknowledged.
func Single(ctx context.Context, to *client.Client, clients int, lasts time.Duration, run string) (Rate, error) {
	times := make([]Times, clients)
	texts := make([]*Texts, clients)
	for c := range texts {
		texts[c] = NewTexts(uint64(c) + 100)
	}
	began := time.Now()
	end := began.Add(lasts)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				start := time.Now()
				_, err := to.Ingest(ctx, client.DataPoint{
					ID: fmt.Sprintf("%s/single/%d/%d", run, c, n), Content: texts[c].Text(shortWords), Identity: identity,
				})
				if err != nil {
					return fmt.Errorf("single send: %w", err)
				}
				times[c] = append(times[c], time.Since(start))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, err
	}
	all, lasted := slices.Concat(times...), time.Since(began)
	return Rate{float64(len(all)) / lasted.Seconds(), lasted, all}, nil
}

// Batches sends count batches of size short texts, parallel at a time. The rate counts items. A
// caller can wait for the sends with the receipt of the last batch.
func Batches(
	ctx context.Context, to *client.Client, count, size, words, parallel int, run string,
) (Rate, client.BatchReceipt, error) {
	var mu sync.Mutex
	var times Times
	var last client.BatchReceipt
	var next atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for w := range parallel {
		group.Go(func() error {
			texts := NewTexts(uint64(w) + 10_000)
			for {
				n := int(next.Add(1)) - 1
				if n >= count {
					return nil
				}
				items := batch(texts, n, size, words, run)
				start := time.Now()
				receipt, err := to.IngestBatch(ctx, client.Batch{Items: items})
				if err != nil {
					return fmt.Errorf("batch: %w", err)
				}
				mu.Lock()
				times, last = append(times, time.Since(start)), *receipt
				mu.Unlock()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, client.BatchReceipt{}, err
	}
	lasted := time.Since(began)
	return Rate{float64(count*size) / lasted.Seconds(), lasted, times}, last, nil
}

// epoch is the time of the first text of a batch. Each next one occurred a minute later.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func batch(texts *Texts, number, size, words int, run string) []client.DataPoint {
	items := make([]client.DataPoint, size)
	for i := range items {
		items[i] = client.DataPoint{
			ID: fmt.Sprintf("%s/batch/%d/%d", run, number, i), Content: texts.Text(words), Identity: identity,
			Timestamp: epoch.Add(time.Duration(number*size+i) * time.Minute).Format(time.RFC3339),
		}
	}
	return items
}

// WarmRecalls is how many queries Recalls makes before those that it measures.
const WarmRecalls = 20

// Recalls sends count queries one after the other, each within a window of time, after WarmRecalls.
func Recalls(ctx context.Context, to *client.Client, count int, from, until time.Time) (Times, error) {
	texts := NewTexts(7)
	var times Times
	var found int
	for i := range WarmRecalls + count {
		start := time.Now()
		results, err := ask(ctx, to, texts, from, until)
		if err != nil {
			return nil, err
		}
		if i >= WarmRecalls {
			times = append(times, time.Since(start))
			found += results
		}
	}
	if found == 0 {
		return nil, errNothingFound
	}
	return times, nil
}

var errNothingFound = errors.New("no recall found anything: nothing was measured")

// ask makes the next query of texts within a window of time, and counts its results.
func ask(ctx context.Context, to *client.Client, texts *Texts, from, until time.Time) (results int, err error) {
	page, err := to.Recall(ctx, client.RecallRequest{
		Query: texts.Query(), Identity: identity, Limit: 100,
		OccurredFrom: from.Format(time.RFC3339), OccurredTo: until.Format(time.RFC3339),
	})
	if err != nil {
		return 0, fmt.Errorf("recall: %w", err)
	}
	return len(page.Results), nil
}

// RecallsBy makes the queries of Recalls from a number of clients for a while, each one after the other.
func RecallsBy(
	ctx context.Context, to *client.Client, clients int, lasts time.Duration, from, until time.Time,
) (Rate, error) {
	times, found := make([]Times, clients), make([]int, clients)
	began := time.Now()
	end := began.Add(lasts)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			texts := NewTexts(uint64(c) + 7)
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				start := time.Now()
				results, err := ask(ctx, to, texts, from, until)
				if err != nil {
					return err
				}
				times[c], found[c] = append(times[c], time.Since(start)), found[c]+results
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, err
	}
	if slices.Max(found) == 0 {
		return Rate{}, errNothingFound
	}
	all, lasted := slices.Concat(times...), time.Since(began)
	return Rate{float64(len(all)) / lasted.Seconds(), lasted, all}, nil
}

// Window returns the middle half of the time of the texts of Batches.
func Window(texts int) (from, until time.Time) {
	span := time.Duration(texts) * time.Minute
	return epoch.Add(span / 4), epoch.Add(3 * span / 4)
}
