package reads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/work"
)

const (
	// proveWait bounds how long an answer waits for its record, and one append.
	proveWait = 3 * time.Second
	// lookWait bounds the look-ups of its texts, and lookAgain is the pause before the second one.
	lookWait, lookAgain = 250 * time.Millisecond, 20 * time.Millisecond
)

// lane is the answers of a project that wait for their records. One of them, which has the turn, appends for all.
type lane struct {
	turn  chan struct{}
	queue []*proof
	// waits is how many answers wait.
	waits int
}

// proof is a record whose answer waits. done is closed once err is known.
type proof struct {
	entry

	done chan struct{}
	err  error
	// left reports that the answer waits no longer.
	left bool
}

// Prove implements readlog.Keeper. Answers that come while an append is on its way share the next one.
func (r *Recorder) Prove(ctx context.Context, o allowance.Owner, record reads.Record, hold *allowance.Hold) error {
	defer hold.Release()
	limited, cancel := context.WithTimeout(ctx, proveWait)
	defer cancel()
	p := &proof{entry: entry{owner: o, record: record, hold: hold}, done: make(chan struct{})}
	r.complements(limited, p.entry)
	l := r.join(p)
	defer r.leave(l, p)
	select {
	case l.turn <- struct{}{}:
		// The others wait for this append even if the client of this answer leaves.
		r.lead(context.WithoutCancel(ctx), l)
		<-l.turn
	case <-p.done:
	case <-limited.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return notStored()
	}
	return p.err
}

// notStored is the fault of an answer without a record.
func notStored() error {
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"what is read in this project is recorded, and the records cannot be stored now; send the request again")
}

// complements looks up the texts of a record, twice if one may not be projected yet.
func (r *Recorder) complements(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	if _, wait := r.lookUp(ctx, []entry{e}, maxLooks); len(wait) > 0 {
		select {
		case <-time.After(lookAgain):
			r.lookUp(ctx, wait, maxLooks)
		case <-ctx.Done():
		}
	}
}

func (r *Recorder) join(p *proof) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[p.owner.Project]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		r.lanes[p.owner.Project] = l
	}
	l.waits++
	l.queue = append(l.queue, p)
	return l
}

func (r *Recorder) leave(l *lane, p *proof) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.left = true
	if l.waits--; l.waits == 0 {
		delete(r.lanes, p.owner.Project)
	}
}

// lead appends the records that wait in a lane.
func (r *Recorder) lead(ctx context.Context, l *lane) {
	ctx, cancel := context.WithTimeout(ctx, proveWait)
	defer cancel()
	var taken []*proof
	var entries []entry
	r.mu.Lock()
	for _, p := range l.queue {
		if !p.left {
			taken, entries = append(taken, p), append(entries, p.entry)
		}
	}
	l.queue = nil
	r.mu.Unlock()
	err := panics.Call(ctx, r.Logger, "append of read records panicked", func() error { return r.prove(ctx, entries) })
	if err != nil {
		r.failures.Inc()
		r.Logger.ErrorContext(ctx, "read records cannot be appended, their answers are refused", "err", err)
		err = notStored()
	}
	for _, p := range taken {
		p.err = err
		close(p.done)
	}
}

// prove appends records of a project at once.
func (r *Recorder) prove(ctx context.Context, entries []entry) error {
	batches, err := r.batch(entries)
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := r.appendBatch(ctx, b); err != nil {
			return err
		}
		if b.lost {
			return errEnded
		}
		r.records.Add(float64(len(b.entries)))
	}
	return nil
}

// errEnded is a day whose records have left the log, to which the clock was set back.
var errEnded = errors.New("the stream of the day has ended")

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
