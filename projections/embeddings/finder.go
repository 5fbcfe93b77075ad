package embeddings

import (
	"context"
	"log/slog"
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

// Finder finds data points by semantic search. If the model fails, only the recalls that wait at that moment lose
// searchTimeout, and none until it replies again. It is safe for concurrent use.
type Finder struct {
	logger *slog.Logger

	mu sync.Mutex
	// embed and columns are of one model.
	embed   Embed
	columns *Columns
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
	f := &Finder{logger: logger}
	f.Use(embed, columns)
	return f
}

// Use replaces the model and its vectors: searches that begin later use both.
func (f *Finder) Use(embed Embed, columns *Columns) {
	f.mu.Lock()
	defer f.mu.Unlock()
	columns.log = f.logger
	f.embed, f.columns, f.until, f.pause = embed, columns, time.Time{}, 0
}

// Find returns the nearest data points. It returns nil if it cannot do that in time: recall is then lexical.
func (f *Finder) Find(ctx context.Context, q Query, text string) *Found {
	limited, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	found := f.search(limited, ctx, q, text)
	if found == nil {
		f.mu.Lock()
		f.without++
		f.mu.Unlock()
	}
	return found
}

// search embeds the text and searches with limited, which may end before the recall does.
func (f *Finder) search(limited, recall context.Context, q Query, text string) *Found {
	embed, columns := f.available(recall, text)
	if embed == nil {
		return nil
	}
	found, err := columns.Nearest(limited, q, func() ([]float32, error) {
		vector, err := embed(limited, text)
		if recall.Err() == nil { // else the caller left: this is no failure of the model
			f.record(recall, err)
		}
		return vector, err
	})
	if err != nil {
		f.logger.DebugContext(recall, "semantic search failed, this recall is lexical", "err", err)
		return nil
	}
	return found
}

// available returns the model and its vectors, nil if the model is not to be called now. The first call after a pause
// starts a probe and does not wait for it.
func (f *Finder) available(ctx context.Context, text string) (Embed, *Columns) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return f.embed, f.columns
	}
	if !f.probing && !time.Now().Before(f.until) {
		f.probing = true
		embed := f.embed
		panics.Go(ctx, f.logger, "probe of the embedding model panicked", func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
			defer cancel()
			defer func() {
				f.mu.Lock()
				f.probing = false
				f.mu.Unlock()
			}()
			start := time.Now()
			_, err := embed(ctx, text)
			if err == nil && time.Since(start) > searchTimeout {
				err = context.DeadlineExceeded // it replies, but too late for a recall
			}
			f.record(ctx, err)
		})
	}
	return nil, nil
}

// record notes whether the model replied, and logs a change.
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

// Up reports whether the model replied to the last call. without is the number of recalls
// without semantic search.
func (f *Finder) Up() (up bool, without uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until.IsZero(), f.without
}
