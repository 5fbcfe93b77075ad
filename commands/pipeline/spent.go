package pipeline

import (
	"context"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// lastStart is up to when after the first attempt another one begins. A call that is answered is answered within 30 seconds, so
	// attempts that are answered end within 60 seconds in all.
	lastStart = 30 * time.Second
	// hung is how long an attempt took at least that was not answered: it counts for nothing here, only among the attempts.
	hung = 30 * time.Second
)

// spent is the time since the first attempt of the item's round, without that of attempts that hung. The attempt that is
// running is the last on the stream.
func (w *Worker) spent(ctx context.Context, name string, item todo.Item) (time.Duration, error) {
	records, err := w.Log.Store.Read(ctx, name, commands.EndOfStream, eventstore.Backwards, 2*maxAttempts)
	if err != nil {
		return 0, err
	}
	now := w.Now()
	first, ended := now, now
	var waited time.Duration
	for _, r := range records {
		e, err := w.Log.Codec.Decode(r)
		if err != nil {
			return 0, err
		}
		switch e := e.(type) {
		case *memory.Failed:
			if e.Revision != item.Revision || e.Round != item.Round {
				return now.Sub(first) - waited, nil
			}
			first, ended = e.FailedAt, e.FailedAt // the start of a pure attempt is not recorded
		case *memory.DerivationStarted:
			if e.Revision != item.Revision || e.Round != item.Round {
				return now.Sub(first) - waited, nil
			}
			if took := ended.Sub(e.StartedAt); took >= hung {
				waited += took
			}
			first, ended = e.StartedAt, e.StartedAt
		}
	}
	return now.Sub(first) - waited, nil
}
