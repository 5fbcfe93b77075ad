package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

func wantUnavailable(t testing.TB, err error, text string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != fault.Unavailable || f.Code != fault.CodeServiceUnavailable || !strings.Contains(f.Msg, text) {
		t.Errorf("got %v, want service-unavailable with %q", err, text)
	}
}

func TestWait_Deadline(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	last := w.add(t, "apple-1", 1)
	for name, waiter := range map[string]*Waiter{"local": rt.Waiter(), "remote": NewWaiter(w.db)} {
		mustWait(t, waiter, last, "apples")
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		wantUnavailable(t, waiter.Wait(ctx, last+1, "apples"), "late")
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		wantError(t, name+": a cancelled wait ended with", waiter.Wait(ctx, last+1, "apples"), context.Canceled)
	}
}

func TestWait_ProjectionWithoutTables(t *testing.T) {
	w := newWorld(t)
	remote := NewWaiter(w.db)
	if at, err := remote.Position(t.Context(), "apples"); at != 0 || err != nil {
		t.Errorf("position %d, %v", at, err)
	}
	waited := make(chan error, 1)
	last := w.add(t, "apple-1", 1)
	ctx := limited(t)
	go func() { waited <- remote.Wait(ctx, last, "apples") }()
	w.start(t, nil, tally{family: "apple"})
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

func TestWatch_CheckpointMoves(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	moved, stop := rt.Waiter().Watch("apples")
	defer stop()
	run(t, rt)
	for n := range 3 {
		last := w.add(t, "apple-1", n)
		for {
			select {
			case <-moved:
			case <-limited(t).Done():
				t.Fatal("no waiter was woken")
			}
			at, err := rt.Waiter().Position(t.Context(), "apples")
			runtest.Must(t, err)
			if at >= last {
				break
			}
		}
	}
}

// paced is a projector that rests for a second.
type paced struct{ tally }

func (paced) Pace() projections.Pace { return projections.Pace{Min: time.Second} }

// stretched is a projector that rests for up to a second and a half under load.
type stretched struct{ paced }

func (stretched) Pace() projections.Pace {
	return projections.Pace{Min: time.Second, Max: 1500 * time.Millisecond}
}

// roomy is a projector whose pages are full with more events.
type roomy struct{ stretched }

func (r roomy) Pace() projections.Pace {
	pace := r.stretched.Pace()
	pace.Full = 2 * feed.PageEvents
	return pace
}

func TestRest(t *testing.T) {
	small := feed.Page{Events: make([]eventstore.DecodedEvent, 3), Next: 30, AtHead: true}
	large := feed.Page{Events: make([]eventstore.DecodedEvent, 200), Next: 30, AtHead: true}
	larger := feed.Page{Events: make([]eventstore.DecodedEvent, feed.PageEvents-1), Next: 30, AtHead: true}
	full := feed.Page{Events: make([]eventstore.DecodedEvent, feed.PageEvents), Next: 30, AtHead: true}
	fuller := feed.Page{Events: make([]eventstore.DecodedEvent, 2*feed.PageEvents), Next: 30, AtHead: true}
	lagging := feed.Page{Events: make([]eventstore.DecodedEvent, 3), Next: 30}
	for _, c := range []struct {
		name      string
		projector projections.Projector
		page      feed.Page
		took      time.Duration
		before    eventstore.Position // what is waited for when the rest begins
		meanwhile eventstore.Position // what is waited for 300 ms later
		ends      bool                // the process ends 300 ms later
		want      time.Duration
	}{
		{name: "a page that took no time", projector: paced{}, page: small, want: time.Second},
		{name: "a page that took a while", projector: paced{}, page: small, took: 400 * time.Millisecond, want: 600 * time.Millisecond},
		{name: "a page that took longer than the pace", projector: paced{}, page: small, took: 2 * time.Second},
		{name: "a large page", projector: paced{}, page: large, want: time.Second},
		{name: "a large page, stretched", projector: stretched{}, page: large, want: 1200 * time.Millisecond},
		{name: "a larger page, stretched", projector: stretched{}, page: larger, want: 1500 * time.Millisecond},
		{name: "a full page, stretched", projector: stretched{}, page: full},
		{name: "a page that is not full yet", projector: roomy{}, page: full, want: 1500 * time.Millisecond},
		{name: "a page full of more events", projector: roomy{}, page: fuller},
		{name: "somebody waits for what is behind a large page", projector: stretched{}, page: large, before: 31},
		{name: "a full page", projector: paced{}, page: full},
		{name: "a page that is behind", projector: paced{}, page: lagging},
		{name: "a projector without a pace", projector: tally{}, page: small},
		{name: "somebody waited for this page", projector: paced{}, page: small, before: 30, want: time.Second},
		{name: "somebody waits for the next", projector: paced{}, page: small, before: 31},
		{name: "somebody comes for the next", projector: paced{}, page: small, meanwhile: 31, want: 300 * time.Millisecond},
		{name: "somebody comes for this page", projector: paced{}, page: small, meanwhile: 30, want: time.Second},
		{name: "the process ends", projector: paced{}, page: small, ends: true, want: 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sure := func(context.Context) error { return nil }
				r := &runner{projector: c.projector, progress: &progress{active: true, confirm: sure}}
				waiter := &Waiter{local: map[string]*progress{"p": r.progress}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				await := func(position eventstore.Position) {
					if position > 0 {
						go func() { _ = waiter.Wait(ctx, position, "p") }() // it ends with the test
					}
				}
				await(c.before)
				synctest.Wait()
				r.progress.change(func(p *progress) { p.position = c.page.Next })
				time.AfterFunc(300*time.Millisecond, func() {
					await(c.meanwhile)
					if c.ends {
						cancel()
					}
				})
				began := time.Now()
				r.pace(ctx, began.Add(-c.took), c.page)
				if took := time.Since(began); took != c.want {
					t.Errorf("rested for %v, want %v", took, c.want)
				}
			})
		})
	}
}
