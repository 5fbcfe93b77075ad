package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// appliedUpTo are projections that a test moves.
type appliedUpTo struct {
	mu    sync.Mutex
	at    map[string]eventstore.Position
	err   error
	reads int
}

func (a *appliedUpTo) Position(_ context.Context, name string) (eventstore.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	return a.at[name], a.err
}

func (a *appliedUpTo) move(position eventstore.Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range pacedBy {
		a.at[name] = position
	}
}

func newPaced() (p *BatchPace, applied *appliedUpTo, now *time.Time) {
	applied = &appliedUpTo{at: map[string]eventstore.Position{}}
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return NewBatchPace(applied, slog.New(slog.DiscardHandler), func() time.Time { return clock }), applied, &clock
}

func TestBatchPace_WaitsForTheProjections(t *testing.T) {
	p, applied, now := newPaced()
	want := func(step string, open bool) {
		t.Helper()
		if got := p.IsOpen(t.Context()); got != open {
			t.Errorf("%s: open is %v", step, got)
		}
	}
	p.Live()
	want("nothing was appended", true)
	p.Appended(10, aheadEvents)
	want("they are new", true)
	*now = now.Add(maxBatchLag)
	want("they are old, and too many", false)
	p.Appended(20, 1)
	applied.move(9)
	want("not applied", false)
	applied.move(10)
	want("the first are applied, the last are few and new", true)
	*now = now.Add(maxBatchLag)
	want("the last are few", true)
	p.Appended(30, aheadEvents)
	want("they are too many", false)
	applied.at[projection.Memories], applied.at[projection.DataPoints] = 30, 30
	want("the index lags", false)
	*now = now.Add(stalledLag)
	want("the index is stalled", true)
	applied.move(30)
	want("all is applied", true)
	p.Appended(40, aheadEvents)
	*now = now.Add(maxBatchLag)
	want("no live send came for a while", true)
	*now = now.Add(quietBatchLag - maxBatchLag)
	want("no live send came for a while, and they are older", false)
	applied.move(40)
	applied.err = errors.New("no database")
	want("the positions cannot be read", false)
}

// What is appended without a pause is few steps.
func TestBatchPace_BoundedSteps(t *testing.T) {
	p, _, now := newPaced()
	for n := range 3 * maxSteps {
		p.Appended(eventstore.Position(n+1), 1)
		*now = now.Add(stepTime)
	}
	if len(p.steps) > maxSteps || p.pending != 3*maxSteps {
		t.Errorf("%d steps of %d events", len(p.steps), p.pending)
	}
}

// A batch is held up for a bounded time in all, also by the turns of others.
func TestBatchPace_BoundedWait(t *testing.T) {
	p, applied, now := newPaced()
	p.Live()
	p.Appended(10, aheadEvents)
	*now = now.Add(maxBatchLag)
	left := 20 * time.Millisecond
	end := p.Turn(t.Context(), uuid.Nil, &left)
	if left != 0 || applied.reads == 0 {
		t.Errorf("%v of the wait is left after %d reads", left, applied.reads)
	}
	left = time.Nanosecond
	second := p.Turn(t.Context(), uuid.Nil, &left)
	third := p.Turn(t.Context(), uuid.Nil, &left) // there is no turn for it
	third(11, 1)
	second(12, 1)
	end(13, 1)
	if p.turns.InUse() != 0 || p.turns.Waiting() != 0 {
		t.Errorf("%d turns are not ended, %d wait", p.turns.InUse(), p.turns.Waiting())
	}
	if p.pending != aheadEvents+3 {
		t.Errorf("%d events are counted", p.pending)
	}
}

// A turn begins once the projections have applied enough.
func TestBatchPace_TurnBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, applied, now := newPaced()
		p.Live()
		p.Appended(10, aheadEvents)
		*now = now.Add(maxBatchLag)
		began := make(chan struct{})
		go func() {
			defer close(began)
			left := time.Hour
			p.Turn(t.Context(), uuid.Nil, &left)(0, 0)
		}()
		synctest.Wait()
		select {
		case <-began:
			t.Error("the turn began before")
		default:
		}
		applied.move(10)
		<-began
	})
}

// A project with many batches and one with a single batch get turns one after the other.
func TestBatchPace_FairBetweenProjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newPaced()
		many, one := uuid.New(), uuid.New()
		ends, began := make(chan func(eventstore.Position, int), paceTurns), make(chan uuid.UUID, 1)
		wait := func(project uuid.UUID) {
			go func() {
				left := PaceWait
				end := p.Turn(t.Context(), project, &left)
				began <- project
				ends <- end
			}()
			synctest.Wait()
		}
		for range paceTurns {
			wait(many)
			<-began
		}
		for _, project := range []uuid.UUID{many, many, one, many} {
			wait(project)
		}
		var order []uuid.UUID
		for range 4 {
			(<-ends)(0, 0)
			order = append(order, <-began)
		}
		if at := slices.Index(order, one); at < 0 || at > 1 {
			t.Errorf("the turns were of %v, the single batch is of %v", order, one)
		}
		for range paceTurns {
			(<-ends)(0, 0)
		}
	})
}

func TestLoadGauge_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f LoadGauge
		want := func(busy bool, when string) {
			t.Helper()
			if f.Busy() != busy {
				t.Errorf("busy is %t %s", !busy, when)
			}
		}
		want(false, "before the first caller")
		var leave []func()
		for range busyAt - 1 {
			leave = append(leave, f.Enter(1))
		}
		want(false, "with fewer than a crowd")
		last := f.Enter(1)
		want(true, "with a crowd")
		pass(time.Hour)
		want(true, "while the crowd stays")
		last()
		for _, l := range leave {
			l()
		}
		want(true, "when all are answered at once")
		pass(cooldown - 1)
		want(true, "until the calm is over")
		pass(1)
		want(false, "after the calm")
		// A batch counts as many callers as it has items, even if Busy was not called while it ran.
		f.Enter(1000)()
		want(true, "behind a batch")
		pass(cooldown)
		want(false, "long behind a batch")
	})
}

// pass advances the fake clock.
func pass(d time.Duration) { <-time.After(d) }
