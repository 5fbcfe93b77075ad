package admission_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// pass lets time of the bubble pass.
func pass(d time.Duration) { <-time.After(d) }

func owner(organization, project byte) allowance.Owner {
	return allowance.Owner{Organization: uuid.UUID{1, organization}, Project: uuid.UUID{2, organization, project}}
}

func write(o allowance.Owner, l admission.Lane) admission.Write {
	return admission.Write{Owner: o, Lane: l, Length: 1 << 20}
}

// blocked makes all of some projects wait.
func blocked(projects ...allowance.Owner) admission.State {
	return admission.State{Waits: func(o allowance.Owner, _ admission.Lane) string {
		for _, p := range projects {
			if o == p {
				return "the project is far ahead"
			}
		}
		return ""
	}}
}

func isRefusal(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Code == fault.CodeServiceUnavailable
}

func TestRoom_WaitsAndIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, one, other := admission.NewRoom(admission.RoomWait), owner(1, 1), owner(1, 2)
		if leave, err := r.Enter(t.Context(), write(one, admission.Bulk)); err != nil {
			t.Fatalf("before any check: %v", err)
		} else {
			leave()
		}
		r.Set(blocked(one))
		parked := 0
		w := write(one, admission.Live)
		w.Parked = func() { parked++ }
		began := time.Now()
		if _, err := r.Enter(t.Context(), w); !isRefusal(err) || time.Since(began) != admission.RoomWait || parked != 1 {
			t.Errorf("%v after %s, parked %d times", err, time.Since(began), parked)
		}
		w.Owner = other
		if _, err := r.Enter(t.Context(), w); err != nil || parked != 1 {
			t.Errorf("another project of the organization: %v, parked %d times", err, parked)
		}
		if all := r.Waiting(); all != 0 {
			t.Errorf("%d wait at the end", all)
		}
	})
}

func TestRoom_ClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, one := admission.NewRoom(admission.RoomWait), owner(1, 1)
		r.Set(blocked(one))
		var gone atomic.Bool
		w := write(one, admission.Live)
		w.Gone = gone.Load
		time.AfterFunc(time.Second, func() { gone.Store(true) })
		began := time.Now()
		if _, err := r.Enter(t.Context(), w); !errors.Is(err, context.Canceled) || time.Since(began) > 2*time.Second {
			t.Errorf("a client that left: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := r.Enter(ctx, write(one, admission.Live)); !errors.Is(err, context.Canceled) {
			t.Errorf("the end of the context: %v", err)
		}
		if all := r.Waiting(); all != 0 {
			t.Errorf("%d wait at the end", all)
		}
	})
}

// What waited does not come all at once when the reason ends, and what comes then does not pass it.
func TestRoom_GrantsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := admission.NewRoom(admission.RoomWait)
		many := []allowance.Owner{owner(1, 1), owner(2, 1), owner(3, 1), owner(3, 2)}
		r.Set(blocked(many...))
		var passed atomic.Int64
		var calls sync.WaitGroup
		for i := range 160 {
			calls.Go(func() {
				if _, err := r.Enter(t.Context(), write(many[i%4], admission.Live)); err == nil {
					passed.Add(1)
				}
			})
		}
		synctest.Wait()
		for n := range int64(10) {
			r.Set(admission.State{})
			synctest.Wait()
			if got, want := passed.Load(), min((n+1)*admission.LiveGrants, 145); got != want {
				t.Errorf("after %d checks %d passed, want %d", n+1, got, want) // the third organization has 64 of 80
			}
			if n == 0 {
				calls.Go(func() {
					if _, err := r.Enter(t.Context(), write(many[0], admission.Live)); err == nil {
						passed.Add(1)
					}
				})
				synctest.Wait()
				if passed.Load() != admission.LiveGrants {
					t.Error("a new write passed those that wait")
				}
			}
		}
		calls.Wait()
	})
}

// store applies events at a rate, and knows how many of each project are not applied.
type store struct {
	mu        sync.Mutex
	unapplied map[uuid.UUID]int
	most      int
}

func (s *store) append(project uuid.UUID, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unapplied[project] += n
	all := 0
	for _, n := range s.unapplied {
		all += n
	}
	s.most = max(s.most, all)
}

// apply applies n events, of each project in proportion.
func (s *store) apply(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		for p := range s.unapplied {
			if s.unapplied[p]--; s.unapplied[p] == 0 {
				delete(s.unapplied, p)
			}
			break
		}
	}
}

func (s *store) state(budget int) admission.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, all := map[uuid.UUID]int{}, 0
	for p, n := range s.unapplied {
		of[p], all = n, all+n
	}
	return admission.State{Budget: budget, Unapplied: of, All: all}
}

// Clients in a closed loop with batches of 1,000 are never refused, and what is not applied stays bounded. A project
// that comes later gets its part.
func TestRoom_BatchesInAClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, budget = 4000, 1600
		r, s := admission.NewRoom(admission.RoomWait), &store{unapplied: map[uuid.UUID]int{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() { r.Checks(ctx.Done(), func() admission.State { return s.state(budget) }) })
		synctest.Wait() // for the first check: a room that knows no state lets every write pass
		calls.Go(func() {
			for ctx.Err() == nil {
				pass(10 * time.Millisecond)
				s.apply(perSecond / 100)
			}
		})
		var sent [2]atomic.Int64
		client := func(n int, o allowance.Owner) {
			for ctx.Err() == nil {
				leave, err := r.Enter(ctx, write(o, admission.Bulk))
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("a batch of project %d: %v", n, err)
					}
					return
				}
				pass(100 * time.Millisecond)
				s.append(o.Project, 1000)
				leave()
				sent[n].Add(1)
			}
		}
		for range 8 {
			calls.Go(func() { client(0, owner(1, 1)) })
		}
		pass(20 * time.Second)
		before := sent[0].Load()
		calls.Go(func() { client(1, owner(1, 2)) })
		calls.Wait()
		first, second := sent[0].Load()-before, sent[1].Load()
		if before < 40 || first < 40 || second < 40 {
			t.Errorf("%d batches in 20 s, then %d and %d of the other project in 40 s", before, first, second)
		}
		if s.most > 3*budget {
			t.Errorf("%d events were not applied, with a budget of %d", s.most, budget)
		}
	})
}

// Batches of few long items do not wait for room that they do not need: their number of items counts, and not what
// their length could hold.
func TestRoom_BatchesOfFewItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, budget, items = 4000, 1600, 100
		r, s := admission.NewRoom(admission.RoomWait), &store{unapplied: map[uuid.UUID]int{}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() { r.Checks(ctx.Done(), func() admission.State { return s.state(budget) }) })
		calls.Go(func() {
			for ctx.Err() == nil {
				pass(10 * time.Millisecond)
				s.apply(perSecond / 100)
			}
		})
		var sent atomic.Int64
		for range 8 {
			calls.Go(func() {
				for ctx.Err() == nil {
					w := write(owner(1, 1), admission.Bulk)
					w.Items = new(admission.Items)
					leave, err := r.Enter(ctx, w)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					pass(5 * time.Millisecond)
					w.Items.Note(items)
					pass(20 * time.Millisecond)
					s.append(w.Project, items)
					leave()
					sent.Add(items)
				}
			})
		}
		calls.Wait()
		if sent.Load() < 20*perSecond/2 {
			t.Errorf("%d texts in 20 s, of which %d a second could be applied", sent.Load(), perSecond)
		}
		if s.most > 5*budget { // without a bound it would be millions
			t.Errorf("%d events were not applied, with a budget of %d", s.most, budget)
		}
	})
}

// A batch is taken for what the items of the one before tell, also one that turns out to have more.
func TestRoom_ItemsOfOtherSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := admission.NewRoom(admission.RoomWait), owner(1, 1)
		r.Set(admission.State{Budget: 1000})
		enter := func(items int) (entered bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // before a check
			defer cancel()
			w := write(o, admission.Bulk)
			w.Items = new(admission.Items)
			if _, err := r.Enter(ctx, w); err != nil {
				return false
			}
			w.Items.Note(items)
			return true
		}
		for _, items := range []int{10, 20, 1000} {
			if !enter(items) {
				t.Fatalf("a batch of %d items has no room", items)
			}
		}
		if enter(10) {
			t.Error("a batch has room next to one that turned out to have a thousand items")
		}
	})
}

// Who sent few long items does not get room for many batches of short ones before those are counted.
func TestRoom_ItemsThatAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := admission.NewRoom(admission.RoomWait), owner(1, 1)
		r.Set(admission.State{Budget: 1000})
		enter := func() (w admission.Write, entered bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // before a check
			defer cancel()
			w = write(o, admission.Bulk)
			w.Items = new(admission.Items)
			_, err := r.Enter(ctx, w)
			return w, err == nil
		}
		long, _ := enter()
		long.Items.Note(1)
		entered := 0
		for range 20 {
			if _, is := enter(); is {
				entered++
			}
		}
		if entered != 2 {
			t.Errorf("%d batches that are not counted have room, want 2", entered)
		}
	})
}

// A slow body counts with its batch for a moment only.
func TestRoom_SlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := admission.NewRoom(admission.RoomWait)
		r.Set(admission.State{Budget: 1000})
		if _, err := r.Enter(t.Context(), write(owner(1, 1), admission.Bulk)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go r.Checks(done, func() admission.State { return admission.State{Budget: 1000} })
		began := time.Now()
		if _, err := r.Enter(t.Context(), write(owner(1, 1), admission.Bulk)); err != nil ||
			time.Since(began) > admission.RunningTime+admission.CheckEvery {
			t.Errorf("during a body that does not arrive: %v after %s", err, time.Since(began))
		}
		close(done)
		synctest.Wait()
	})
}

// Whatever states follow each other, a write is answered in time, the queue is bounded, and a batch comes through as
// long as its project need not wait.
// Batches of one organization whose bodies do not arrive, in however many projects, hold no room of others. Those that
// have arrived do.
func TestRoom_SilentBodiesOfAnotherOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := admission.NewRoom(admission.RoomWait)
		r.Set(admission.State{Budget: 1000})
		var arrived atomic.Bool
		for project := range byte(3) {
			silent := write(owner(1, project), admission.Bulk)
			silent.Arriving = func() bool { return !arrived.Load() }
			go func() { _, _ = r.Enter(t.Context(), silent) }() // the third waits
		}
		synctest.Wait()
		began := time.Now()
		leave, err := r.Enter(t.Context(), write(owner(2, 1), admission.Bulk))
		if took := time.Since(began); err != nil || took != 0 {
			t.Fatalf("next to silent bodies: %v after %s", err, took)
		}
		leave()
		arrived.Store(true)
		done := make(chan struct{})
		go r.Checks(done, func() admission.State { return admission.State{Budget: 1000} })
		if _, err = r.Enter(t.Context(), write(owner(3, 1), admission.Bulk)); err != nil || time.Since(began) == 0 {
			t.Errorf("next to bodies that arrived: %v after %s", err, time.Since(began))
		}
		close(done)
		synctest.Wait()
	})
}

func TestRoom_AnyState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		unapplied := rapid.SliceOfN(rapid.IntRange(0, 5000), 60, 60).Draw(rt, "unapplied")
		waits := rapid.SliceOfN(rapid.IntRange(0, 5), 60, 60).Draw(rt, "waits")
		lanes := rapid.SliceOfN(rapid.IntRange(1, 3), 40, 40).Draw(rt, "lanes")
		synctest.Test(t, func(t *testing.T) {
			r, check, done := admission.NewRoom(admission.RoomWait), 0, make(chan struct{})
			go r.Checks(done, func() admission.State {
				n := check % 60
				check++
				return admission.State{
					Budget: 2000, All: unapplied[n], Unapplied: map[uuid.UUID]int{owner(1, 1).Project: unapplied[n]},
					Waits: func(o allowance.Owner, _ admission.Lane) string {
						if waits[n] < 2 && o == owner(1, byte(waits[n])) {
							return "it waits"
						}
						return ""
					},
				}
			})
			var calls sync.WaitGroup
			for i, lane := range lanes {
				calls.Go(func() {
					o, began := owner(byte(i%3), byte(i%2)), time.Now()
					leave, err := r.Enter(t.Context(), write(o, admission.Lane(lane)))
					if took := time.Since(began); took > admission.RoomWait || err != nil && !isRefusal(err) {
						t.Errorf("%v after %s", err, took)
					}
					if o.Organization != owner(1, 0).Organization && err != nil {
						t.Errorf("a write of a project that need not wait: %v", err)
					}
					if all := r.Waiting(); all > admission.RoomWaiters {
						t.Errorf("%d wait", all)
					}
					pass(time.Duration(i) * 10 * time.Millisecond)
					if err == nil {
						leave()
					}
				})
			}
			calls.Wait()
			close(done)
			synctest.Wait()
		})
	})
}
