package panics

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"
)

// Each calls work with 0 to n-1, at most width at a time, and stops at the first error. A panic of a
// call is its error, and is logged.
func Each(ctx context.Context, logger *slog.Logger, width, n int, work func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(width)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			return Call(ctx, logger, "work on one item panicked", func() error { return work(ctx, i) }, "item", i)
		})
	}
	return g.Wait()
}
