package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/annals-project/annals/commands/erasure"
)

// peopleRounds is the most rounds of one purge for people. Deletions may wait for each other.
const peopleRounds = 3

// erasePeople takes the steps of the erasures of people, and leaves those that wait for a purge to purgePeople.
func (f *Finisher) erasePeople(ctx context.Context, _ bool, done *erasure.Report) (next time.Duration) {
	return f.steps(ctx, done, []step{{"people", func() (time.Duration, error) {
		purging, err := f.People.Pass(ctx)
		if len(purging) > 0 {
			f.purging.Store(&purging)
		}
		return idlePoll, err
	}}})
}

// purgePeople erases what the erasures of people deleted, once for all that wait, and without the pause of clean. It
// rests as long as it worked. If another process feeds the index, that process purges.
func (f *Finisher) purgePeople(ctx context.Context, _ bool, done *erasure.Report) (next time.Duration) {
	return f.steps(ctx, done, []step{{"purge for people", func() (time.Duration, error) {
		if f.purgePeopleAt.After(f.Now()) || f.Eraser.RequireIndex() != nil {
			return idlePoll, nil
		}
		waiting := f.purging.Swap(nil)
		if waiting == nil {
			return idlePoll, nil
		}
		if err := f.People.PreparePurge(ctx); err != nil {
			return 0, err
		}
		began := f.Now()
		report, err := f.eraseRounds(ctx, peopleRounds)
		f.purgePeopleAt = f.Now().Add(f.Now().Sub(began))
		done.Add(report)
		var failed error
		if report.Store == "" {
			failed = errors.Join(errors.New("nothing was purged from the disk"), err)
		}
		return idlePoll, errors.Join(err, f.People.RecordPurge(ctx, *waiting, report, failed))
	}}})
}
