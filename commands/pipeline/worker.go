// Package pipeline turns accepted revisions into memory and finishes what commits set off.
//
// The worker derives, the confirmer ends sends, the finisher completes fan-outs and erasures. Each takes its to-do list
// from the projections and decides on the streams: a list that lags costs a look, never a double.
package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/todo"
)

const (
	// maxAttempts is how often an item is tried before its send stops.
	maxAttempts = 5
	// firstBackoff is the pause after a failed attempt; it doubles with each.
	firstBackoff = time.Second
	// leaseFor outlives an attempt: a model has two minutes for one text.
	leaseFor = 3 * time.Minute
	// claimSize is how many items are leased at a time, width how many of them are derived at once.
	// An item waits for the disk, and concurrent appends share one fsync, so the width follows the
	// disk and not the processor.
	claimSize = 256
	width     = 64
	// wholeAge is the age of the oldest item from which derivation uses its full width, even while
	// callers are busy.
	wholeAge = 2 * time.Second
	// releaseLimit bounds the release of leases, also while the process stops.
	releaseLimit = 5 * time.Second
	// claimPause is how long what is new may gather before the list is looked at.
	claimPause = 20 * time.Millisecond
	// idlePoll is how often a list is looked at although nothing was reported: leases run out silently.
	idlePoll = time.Second
)

// Queue is the to-do list of derivation.
type Queue interface {
	// Claim leases the next items to derive: oldest first, fair between projects, one at a time per
	// data point. The next claim begins after project next.
	Claim(ctx context.Context, c todo.Claim) (items []todo.Item, next uuid.UUID, err error)
	// Release gives leases back.
	Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error
}

// Progress tells how far projections are.
type Progress interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	// Position is up to where a projection has applied everything.
	Position(ctx context.Context, projection string) (eventstore.Position, error)
	// Watch wakes after every move of a projection; moves that come while nobody listens are one.
	Watch(projection string) (moved <-chan struct{}, stop func())
}

// The projections that the to-do lists and the ends of sends rest on.
const (
	dataPoints  = "datapoints"
	memories    = "memories"
	recallIndex = "recallindex"
)

// Extractor reads memory in one revision. An error is a *Failure where the attempt's end is known, else internal.
type Extractor interface {
	// Name is stored with what it derived, with its version.
	Name() string
	Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error)
}

// Pure is an Extractor that is cheap and deterministic, so that the start of an attempt needs no
// record.
type Pure interface {
	Pure() bool
}

func pure(e Extractor) bool {
	p, ok := e.(Pure)
	return ok && p.Pure()
}

// Failure is a failed attempt with its public code. Retryable is false where another attempt would end the same way.
type Failure struct {
	Code      string
	Message   string
	Retryable bool
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Foreground tells how busy those are whom callers wait for.
type Foreground interface {
	// Busy reports whether callers crowd at the moment.
	Busy() bool
}

// Worker derives memory from the items of the queue.
type Worker struct {
	Log       *commands.Log
	Queue     Queue
	Progress  Progress
	Extractor Extractor
	Logger    *slog.Logger
	// Foreground has priority: while it is busy, derivation has fewer lanes, unless the oldest item
	// has waited for long. Nil is never busy.
	Foreground Foreground
	// Age returns how long the oldest item has waited; nil means not long.
	Age func() time.Duration
	// Slow is true where the extractor mostly waits for somebody else: then no item waits for another one's answer.
	Slow bool
	// Holder names this process in the leases.
	Holder string
	Now    func() time.Time
	// next is the project after which the next claim begins.
	next uuid.UUID
}

// Run works until the context ends. Work that was started is finished as far as its appends go.
func (w *Worker) Run(ctx context.Context) error {
	background, ctx := errgroup.WithContext(ctx)
	moved, stop := w.Progress.Watch(dataPoints)
	defer stop()
	if w.Slow {
		background.Go(func() error { w.deriveEach(ctx, background, moved); return nil })
		return background.Wait()
	}
	background.Go(func() error {
		for ctx.Err() == nil {
			items := w.claim(ctx, claimSize)
			if len(items) == 0 {
				await(ctx, moved, idlePoll)
				await(ctx, nil, claimPause)
				continue
			}
			w.deriveAll(ctx, background, items, len(items) < claimSize)
		}
		return nil
	})
	return background.Wait()
}

// claim leases the next items. Only one goroutine may call it. If the queue cannot be read, it logs
// that and returns none.
func (w *Worker) claim(ctx context.Context, size int) (items []todo.Item) {
	err := panics.Call(ctx, w.Logger, "claim panicked", func() (err error) {
		now := w.Now()
		items, w.next, err = w.Queue.Claim(ctx, todo.Claim{
			Holder: w.Holder, Limit: size, After: w.next, Now: now, Until: now.Add(leaseFor),
		})
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "the queue cannot be read", "err", err)
	}
	return items
}

// attempt makes one attempt at an item. What keeps it from being recorded, also a panic, is logged: the item is tried again.
func (w *Worker) attempt(ctx context.Context, item todo.Item) (res result) {
	err := panics.Call(ctx, w.Logger, "attempt panicked", func() (err error) {
		res, err = w.derive(ctx, item)
		return err
	}, "data_point", item.DataPoint, "revision", item.Revision)
	if err != nil && ctx.Err() == nil {
		w.Logger.ErrorContext(ctx, "an attempt could not be recorded", "data_point", item.DataPoint, "revision", item.Revision, "err", err)
		res.backoff = firstBackoff
	}
	res.dataPoint = item.DataPoint
	return res
}

// result is what an attempt leaves to be waited for before its lease is given back.
type result struct {
	dataPoint uuid.UUID
	position  eventstore.Position
	backoff   time.Duration
}

// deriveAll derives the claimed items, those whose earlier lease ran out one by one, and releases
// their leases once the queue shows the results. If these were the last items available, it waits
// for that, because the next items, such as the next revision of a data point, may depend on them.
func (w *Worker) deriveAll(ctx context.Context, background *errgroup.Group, items []todo.Item, last bool) {
	results := make([]result, len(items))
	lanes := newLanes(width, w.open)
	var group errgroup.Group
	for i, item := range items {
		results[i] = result{dataPoint: item.DataPoint}
		if item.Suspect || !lanes.enter(ctx) {
			continue
		}
		group.Go(func() error {
			defer lanes.leave()
			results[i] = w.attempt(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // the goroutines return no error: each failure is logged and its item is tried again
	// A suspect item may end the process. Nothing else runs at that time, so that no other attempt
	// is counted.
	for i, item := range items {
		if item.Suspect && ctx.Err() == nil {
			results[i] = w.attempt(ctx, item)
		}
	}
	if last {
		settled := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.backoff > 0 })
		w.release(ctx, settled)
		results = slices.DeleteFunc(results, func(r result) bool { return r.backoff == 0 })
	}
	if len(results) > 0 {
		background.Go(func() error { w.release(ctx, results); return nil })
	}
}

// open returns how many items may be derived at once.
func (w *Worker) open() int {
	if w.Foreground == nil || !w.Foreground.Busy() {
		return width
	}
	var age time.Duration
	if w.Age != nil {
		age = w.Age()
	}
	return share(width, age)
}

// release gives leases back: at once those whose outcome the queue shows, later those that are to wait. After a panic, which is
// logged, they run out by themselves.
func (w *Worker) release(ctx context.Context, results []result) {
	_ = panics.Call(ctx, w.Logger, "release panicked", func() error { w.giveBack(ctx, results); return nil })
}

func (w *Worker) giveBack(ctx context.Context, results []result) {
	var last eventstore.Position
	waiting := make(map[time.Duration][]uuid.UUID)
	for _, r := range results {
		last = max(last, r.position)
		waiting[r.backoff] = append(waiting[r.backoff], r.dataPoint)
	}
	waitCtx, cancel := context.WithTimeout(ctx, leaseFor)
	defer cancel()
	if err := w.Progress.Wait(waitCtx, last, dataPoints); err != nil && ctx.Err() == nil {
		return // the leases run out by themselves
	}
	// Release every lease on an orderly stop: a lease that runs out makes its item suspect.
	var elapsed time.Duration
	for len(waiting) > 0 {
		next := time.Duration(-1)
		for backoff := range waiting {
			if next < 0 || backoff < next {
				next = backoff
			}
		}
		await(ctx, nil, next-elapsed)
		elapsed = next
		releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		if err := w.Queue.Release(releaseCtx, w.Holder, waiting[next]); err != nil {
			w.Logger.WarnContext(ctx, "leases are left to run out", "err", err)
		}
		cancel()
		delete(waiting, next)
	}
}

// await waits for a move, a time or the end of the context, whichever is first.
func await(ctx context.Context, moved <-chan struct{}, at time.Duration) {
	timer := time.NewTimer(max(at, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-moved:
	case <-timer.C:
	}
}
