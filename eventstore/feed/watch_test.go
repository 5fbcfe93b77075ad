package feed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
)

// mute is a store whose subscriptions can stall: they stay open and bring no more events.
type mute struct {
	eventstore.Store
	// silent stalls every open subscription, and none that is opened later. deaf makes the next
	// call of Subscribe hang.
	silent, deaf atomic.Bool
	opened       atomic.Int64
	// noHead makes the head unreadable.
	noHead atomic.Bool
}

func (m *mute) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	m.opened.Add(1)
	if m.deaf.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	m.silent.Store(false)
	sub, err := m.Store.Subscribe(ctx, after)
	return &muteSubscription{Subscription: sub, of: m}, err
}

func (m *mute) Head(ctx context.Context) (eventstore.Position, error) {
	if m.noHead.Load() {
		return 0, errors.New("no head")
	}
	return m.Store.Head(ctx)
}

type muteSubscription struct {
	eventstore.Subscription
	of *mute
}

func (s *muteSubscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	r, err := s.Subscription.Next(ctx)
	if err == nil && s.of.silent.Load() {
		<-ctx.Done()
		return r, context.Cause(ctx)
	}
	return r, err
}

func newMuteFixture(t *testing.T) (*fixture, *mute) {
	m := &mute{}
	r := newFixture(t, func(memory *eventstoretest.Memory) eventstore.Store {
		m.Store = memory
		return m
	})
	return r, m
}

// A subscription that stalls is restarted within a minute, and no event is lost or delivered twice.
func TestWatch_SilentSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newMuteFixture(t)
		messages := r.subscribe(r.ctx, "access")
		var built reader
		for round := range 3 {
			r.append(2)
			for built.at != r.head() { // the two events may come as two pages
				if err := built.apply(r.ack(messages)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait() // the reader has joined the live subscription, and reads the log itself no more
			m.silent.Store(true)
			r.append(1)
			silentSince := time.Now()
			page := r.ack(messages)
			if err := built.apply(page); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(silentSince); took < 30*time.Second || took > time.Minute {
				t.Errorf("noticed after %v", took)
			}
			if got := r.feed.Stalls(); got != uint64(round+1) || m.opened.Load() != int64(round+2) {
				t.Errorf("round %d: %d stalls, %d subscriptions", round, got, m.opened.Load())
			}
		}
		if built.at != r.head() || len(built.ids) != len(r.written()) {
			t.Errorf("built %d events up to %d, want %d up to %d", len(built.ids), built.at, len(r.written()), r.head())
		}
		r.close()
	})
}

// A subscription that is never confirmed is ended too.
func TestWatch_SubscribeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := newMuteFixture(t)
		m.deaf.Store(true)
		messages := r.subscribe(r.ctx, "access")
		synctest.Wait()
		r.append(1)
		r.ack(messages)
		if r.feed.Stalls() != 1 || m.opened.Load() != 2 {
			t.Errorf("%d stalls, %d subscriptions", r.feed.Stalls(), m.opened.Load())
		}
		r.close()
	})
}

// slowObserver is slow for every event.
type slowObserver struct{ pause time.Duration }

func (slowObserver) Begins(eventstore.Position) {}

func (o slowObserver) Arrived(eventstore.DecodedEvent) { pass(o.pause) }

// These are no stalls: an idle log, a page or an observer that needs minutes, events that arrive
// one by one for hours, and a store whose head cannot be read.
func TestWatch_NoFalseAlarm(t *testing.T) {
	for name, live := range map[string]func(*testing.T, *fixture, *mute){
		"nothing happens": func(_ *testing.T, r *fixture, _ *mute) {
			r.append(1)
			pass(time.Hour)
		},
		"a page takes minutes": func(_ *testing.T, r *fixture, _ *mute) {
			messages := r.subscribe(r.ctx, "slow")
			r.append(1)
			msg, _ := r.take(messages)
			for range 20 {
				r.append(feed.PageEvents)
				pass(time.Minute)
			}
			msg.Ack()
		},
		"an observer takes minutes": func(_ *testing.T, r *fixture, _ *mute) {
			r.feed.Observe(slowObserver{pause: 3 * time.Minute})
			synctest.Wait()
			r.append(10)
			pass(time.Hour)
		},
		"events come one by one": func(_ *testing.T, r *fixture, _ *mute) {
			for range 400 {
				r.append(1)
				pass(9 * time.Second)
			}
		},
		"the head cannot be read": func(t *testing.T, r *fixture, m *mute) {
			synctest.Wait()
			m.noHead.Store(true)
			m.silent.Store(true)
			r.append(1)
			pass(time.Hour)
			if got := r.feed.Stalls(); got != 0 {
				t.Errorf("%d stalls without proof", got)
			}
			m.noHead.Store(false)
			pass(time.Minute)
			if got := r.feed.Stalls(); got != 1 {
				t.Errorf("%d stalls once the head is read again, want 1", got)
			}
			m.opened.Store(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, m := newMuteFixture(t)
				r.ctx = t.Context() // hours pass here
				if name != "an observer takes minutes" {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					messages := r.subscribe(ctx, "access")
					go func() {
						for msg := range messages {
							msg.Ack()
						}
					}()
				}
				live(t, r, m)
				if m.opened.Load() != 1 {
					t.Errorf("%d subscriptions were opened, want 1", m.opened.Load())
				}
				r.close()
			})
		})
	}
}

// pass advances the clock of a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
