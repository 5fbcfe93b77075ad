package embeddings

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

// Embed says where a text points to in the space of meanings.
type Embed func(ctx context.Context, text string) ([]float32, error)

const (
	// askLimit is how long a recall waits for what it means, and found what is nearest to it.
	askLimit = 300 * time.Millisecond
	// After a failure no recall asks for firstRest, then for twice as long, up to lastRest; what ends a rest is a try that no recall
	// waits for, within tryLimit.
	firstRest = time.Second
	lastRest  = time.Minute
	tryLimit  = 10 * time.Second
)

// Finder finds data points by what a text means. A dead endpoint costs those recalls the limit that are waiting when it dies, and
// no later one. It is safe for concurrent use.
type Finder struct {
	embed   Embed
	columns *Columns
	log     *slog.Logger

	mu sync.Mutex
	// until is when the rest ends, zero while the endpoint answers; trying says that somebody finds out whether it does again.
	until  time.Time
	rest   time.Duration
	trying bool
	// without counts the recalls that went by words alone.
	without uint64
}

// NewFinder makes a finder.
func NewFinder(embed Embed, columns *Columns, log *slog.Logger) *Finder {
	columns.log = log
	return &Finder{embed: embed, columns: columns, log: log}
}

// Near answers the nearest data points, each with how much nearer than ordinary ones it is.
// It is nil where nobody can tell in time.
func (f *Finder) Near(ctx context.Context, q Query, text string) []Hit {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	hits, ok := f.near(limited, ctx, q, text)
	if !ok {
		f.mu.Lock()
		f.without++
		f.mu.Unlock()
	}
	return standardize(hits)
}

// near asks within limited; the recall itself may go on for longer.
func (f *Finder) near(limited, recall context.Context, q Query, text string) (hits []Hit, ok bool) {
	if !f.answers(recall, text) {
		return nil, false
	}
	vector, err := f.embed(limited, text)
	if recall.Err() != nil {
		return nil, false // who asked has left: that says nothing about the endpoint
	}
	f.note(recall, err)
	if err != nil {
		return nil, false
	}
	hits, err = f.columns.Nearest(limited, q, vector)
	if err != nil {
		f.log.DebugContext(recall, "vectors were not read in time", "err", err)
	}
	return hits, err == nil
}

// answers says whether the endpoint may be asked. The first who asks after a rest has it tried, and does not wait for that.
func (f *Finder) answers(ctx context.Context, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return true
	}
	if !f.trying && !time.Now().Before(f.until) {
		f.trying = true
		panics.Go(ctx, f.log, "try of the model of meaning panicked", func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryLimit)
			defer cancel()
			defer func() {
				f.mu.Lock()
				f.trying = false
				f.mu.Unlock()
			}()
			began := time.Now()
			_, err := f.embed(ctx, text)
			if err == nil && time.Since(began) > askLimit {
				err = context.DeadlineExceeded // it answers, too late for a recall
			}
			f.note(ctx, err)
		})
	}
	return false
}

// note takes down whether the endpoint answered, and says so where that changes.
func (f *Finder) note(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && !f.until.IsZero():
		f.until, f.rest = time.Time{}, 0
		f.log.InfoContext(ctx, "the model of meaning answers again")
	case err != nil && f.until.IsZero():
		f.rest = firstRest
		f.until = time.Now().Add(f.rest)
		f.log.WarnContext(ctx, "the model of meaning does not answer; recall goes by words alone", "err", err)
	case err != nil && f.trying:
		f.rest = min(2*f.rest, lastRest)
		f.until = time.Now().Add(f.rest)
	}
}

// Up says whether the endpoint answered when it was asked last; Without is how many recalls went by words alone.
func (f *Finder) Up() (up bool, without uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until.IsZero(), f.without
}

// ordinary is how many deviations above the mean say nothing: of two hundred hits some are there by chance.
const ordinary = 2

// few is how many hits have no distribution: those that are near at all count by what their cosine says, as one in so many would.
const few = 8

// standardize says of each hit how much nearer than the ordinary one it is, in standard deviations, and leaves out those that are not.
func standardize(hits []Hit) []Hit {
	mean, deviation := 0.0, 0.0
	for _, h := range hits {
		mean += h.Similarity / float64(len(hits))
	}
	for _, h := range hits {
		deviation += (h.Similarity - mean) * (h.Similarity - mean) / float64(len(hits))
	}
	deviation = math.Sqrt(deviation)
	var near []Hit
	for _, h := range hits {
		switch {
		case h.Similarity <= 0:
			continue
		case len(hits) < few || deviation < 1e-9:
		default:
			h.Similarity = (h.Similarity-mean)/deviation - ordinary
		}
		if h.Similarity > 0 {
			near = append(near, h)
		}
	}
	return near
}
