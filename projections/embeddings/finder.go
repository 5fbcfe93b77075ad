package embeddings

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

// Embed returns the embedding of a text.
type Embed func(ctx context.Context, text string) ([]float32, error)

const (
	// searchTimeout is how long a recall waits for the embedding of its text and the search by it.
	searchTimeout = 300 * time.Millisecond
	// After a failure no recall calls the model for firstPause, then for twice as long, up to
	// maxPause. The next recall starts a probe, which it does not wait for, with probeTimeout.
	firstPause   = time.Second
	maxPause     = time.Minute
	probeTimeout = 10 * time.Second
)

// Finder finds data points by semantic search. If the endpoint of the model fails, only the recalls
// that wait at that moment lose searchTimeout, and none until it replies again. It is safe for
// concurrent use.
type Finder struct {
	embed   Embed
	columns *Columns
	logger  *slog.Logger

	mu sync.Mutex
	// until is the end of the current pause, zero while the endpoint replies. probing is set while
	// a probe runs.
	until   time.Time
	pause   time.Duration
	probing bool
	// without counts the recalls without semantic search.
	without uint64
}

// NewFinder makes a finder. It sets the logger of columns.
func NewFinder(embed Embed, columns *Columns, logger *slog.Logger) *Finder {
	columns.log = logger
	return &Finder{embed: embed, columns: columns, logger: logger}
}

// Find returns the nearest data points, each with how far its similarity exceeds the ordinary one.
// It returns nil if it cannot do that in time: recall is then lexical.
func (f *Finder) Find(ctx context.Context, q Query, text string) []Hit {
	limited, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	hits, ok := f.search(limited, ctx, q, text)
	if !ok {
		f.mu.Lock()
		f.without++
		f.mu.Unlock()
	}
	return standardize(hits)
}

// search embeds the text and searches with limited, which may end before the recall does.
func (f *Finder) search(limited, recall context.Context, q Query, text string) (hits []Hit, ok bool) {
	if !f.available(recall, text) {
		return nil, false
	}
	vector, err := f.embed(limited, text)
	if recall.Err() != nil {
		return nil, false // the caller left: this is no failure of the endpoint
	}
	f.record(recall, err)
	if err != nil {
		return nil, false
	}
	hits, err = f.columns.Nearest(limited, q, vector)
	if err != nil {
		f.logger.DebugContext(recall, "semantic search failed, this recall is lexical", "err", err)
	}
	return hits, err == nil
}

// available reports whether the endpoint may be called. The first call after a pause starts a probe
// and does not wait for it.
func (f *Finder) available(ctx context.Context, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return true
	}
	if !f.probing && !time.Now().Before(f.until) {
		f.probing = true
		panics.Go(ctx, f.logger, "probe of the embedding model panicked", func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
			defer cancel()
			defer func() {
				f.mu.Lock()
				f.probing = false
				f.mu.Unlock()
			}()
			start := time.Now()
			_, err := f.embed(ctx, text)
			if err == nil && time.Since(start) > searchTimeout {
				err = context.DeadlineExceeded // it replies, but too late for a recall
			}
			f.record(ctx, err)
		})
	}
	return false
}

// record notes whether the endpoint replied, and logs a change.
func (f *Finder) record(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && !f.until.IsZero():
		f.until, f.pause = time.Time{}, 0
		f.logger.InfoContext(ctx, "embedding model is available again")
	case err != nil && f.until.IsZero():
		f.pause = firstPause
		f.until = time.Now().Add(f.pause)
		f.logger.WarnContext(ctx, "embedding model is unavailable, recall is lexical until it replies", "err", err)
	case err != nil && f.probing:
		f.pause = min(2*f.pause, maxPause)
		f.until = time.Now().Add(f.pause)
	}
}

// Up reports whether the endpoint replied to the last call. without is the number of recalls
// without semantic search.
func (f *Finder) Up() (up bool, without uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until.IsZero(), f.without
}

// ordinary is how many standard deviations above the mean mean nothing: of 200 hits some exceed the
// mean by chance.
const ordinary = 2

// minDistribution is the least number of hits with a useful distribution. Fewer hits keep their
// cosine as similarity.
const minDistribution = 8

// standardize replaces the similarity of each hit by how many standard deviations it exceeds the
// ordinary one, and drops hits that do not.
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
		case len(hits) < minDistribution || deviation < 1e-9:
		default:
			h.Similarity = (h.Similarity-mean)/deviation - ordinary
		}
		if h.Similarity > 0 {
			near = append(near, h)
		}
	}
	return near
}
