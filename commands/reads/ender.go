package reads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/work"
)

const (
	// endEvery is the pause between two looks for days whose time is over, endDays the most of one look, and endOne the
	// time of one day. A day more is nothing to records that are kept for a month at least.
	endEvery = 10 * time.Minute
	endDays  = 100
	endOne   = time.Minute
)

// days lists the days whose time is over.
type days interface {
	// EndedReads lists days whose time is over at a moment, and that the log still has, the oldest first.
	EndedReads(ctx context.Context, now time.Time, most int) ([]work.ReadsDay, error)
}

// Ender ends the streams of read records whose time is over. Their leaf records stay.
type Ender struct {
	Streams erasure.Streams
	Days    days
	Logger  *slog.Logger
	Now     func() time.Time
}

// Run ends streams until the context ends.
func (e *Ender) Run(ctx context.Context) error {
	ticker := time.NewTicker(endEvery)
	defer ticker.Stop()
	for {
		if err := e.Pass(ctx); err != nil && ctx.Err() == nil {
			e.Logger.WarnContext(ctx, "read records whose time is over cannot be removed, will retry", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Pass ends the days whose time is over.
func (e *Ender) Pass(ctx context.Context) error {
	list, err := e.Days.EndedReads(ctx, e.Now(), endDays)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(list))
	for _, day := range list {
		err := panics.Call(ctx, e.Logger, "end of read records panicked", func() error {
			limited, cancel := context.WithTimeout(ctx, endOne)
			defer cancel()
			return e.Streams.EndReads(limited, day)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("end the reads of %s of project %s: %w", day.Day, day.ProjectID, err))
		}
	}
	return errors.Join(errs...)
}
