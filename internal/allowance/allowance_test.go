package allowance_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func of(total, share int64) *allowance.Allowance {
	return allowance.New(allowance.Config{Total: total, Share: share, Wait: 5 * time.Second, Waiters: 8, Refusal: "full"})
}

// alone is an organization with one project.
func alone() allowance.Owner { return allowance.Owner{Organization: uuid.New(), Project: uuid.New()} }

func isRefusal(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Kind == fault.Unavailable && f.Code == fault.CodeServiceUnavailable && f.Msg == "full"
}

func reserve(t *testing.T, h *allowance.Hold, n int64) {
	t.Helper()
	if err := h.Reserve(t.Context(), n); err != nil {
		t.Fatalf("reserve %d: %v", n, err)
	}
}

func TestReserve_ShareOfOneOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		one, other := uuid.New(), uuid.New()
		first, second := a.Open(allowance.Owner{Organization: one}), a.Open(allowance.Owner{Organization: one})
		neighbour := a.Open(allowance.Owner{Organization: other})
		reserve(t, first, 20)
		reserve(t, second, 5)
		began := time.Now()
		if err := second.Reserve(t.Context(), 1); !isRefusal(err) || time.Since(began) != 5*time.Second {
			t.Errorf("a byte over the share: %v after %s", err, time.Since(began))
		}
		reserve(t, neighbour, 25)
		first.Return(1)
		reserve(t, second, 1)
		if a.InUse() != 50 || first.Held() != 19 || second.Held() != 6 {
			t.Errorf("in use %d, held %d and %d", a.InUse(), first.Held(), second.Held())
		}
		for range 2 {
			first.Release()
			second.Release()
			neighbour.Release()
		}
		if a.InUse() != 0 {
			t.Errorf("in use %d after all is released", a.InUse())
		}
	})
}

func TestReserve_Total(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(30, 25)
		first, second, third := a.Open(alone()), a.Open(alone()), a.Open(alone())
		reserve(t, first, 20)
		reserve(t, second, 10)
		served := make(chan int64, 2)
		go func() {
			if err := second.Reserve(t.Context(), 15); err == nil {
				served <- 15
			}
		}()
		synctest.Wait()
		go func() {
			if err := third.Reserve(t.Context(), 1); err == nil {
				served <- 1
			}
		}()
		synctest.Wait()
		first.Return(5)
		synctest.Wait()
		if len(served) != 0 {
			t.Error("a small reservation was served before a big one that waits for the same room")
		}
		first.Release()
		if n := <-served + <-served; n != 16 || a.InUse() != 26 {
			t.Errorf("served %d, in use %d", n, a.InUse())
		}
	})
}

func TestReserve_MoreThanTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		org := uuid.New()
		small, huge := a.Open(allowance.Owner{Organization: org}), a.Open(allowance.Owner{Organization: org})
		reserve(t, small, 1)
		if err := huge.Reserve(t.Context(), 1000); !isRefusal(err) {
			t.Errorf("more than the share next to another: %v", err)
		}
		small.Release()
		reserve(t, huge, 1000)
		reserve(t, huge, 1000)
		if huge.Held() != 25 {
			t.Errorf("holds %d, want the share", huge.Held())
		}
	})
}

func TestReserve_TooManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		org := uuid.New()
		full := a.Open(allowance.Owner{Organization: org})
		reserve(t, full, 25)
		errs := make(chan error)
		for range 2 { // a quarter of the waiters
			go func() { errs <- a.Open(allowance.Owner{Organization: org}).Reserve(t.Context(), 1) }()
		}
		synctest.Wait()
		began := time.Now()
		err := a.Open(allowance.Owner{Organization: org}).Reserve(t.Context(), 1)
		if !isRefusal(err) || time.Since(began) != 0 {
			t.Errorf("one waiter too many: %v after %s", err, time.Since(began))
		}
		reserve(t, a.Open(alone()), 25)
		full.Release()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Error(err)
		}
	})
}

func TestReserve_EndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(10, 10)
		full := a.Open(alone())
		reserve(t, full, 10)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := a.Open(alone()).Reserve(ctx, 10); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if err := a.Open(alone()).Reserve(short, 1); !isRefusal(err) {
			t.Errorf("got %v", err)
		}
		full.Release()
		reserve(t, a.Open(alone()), 10)
	})
}

func TestReserve_OfContext(t *testing.T) {
	if err := allowance.Reserve(t.Context(), 1<<40); err != nil {
		t.Errorf("a context without a hold: %v", err)
	}
	a := of(100, 25)
	h := a.Open(alone())
	ctx := allowance.NewContext(t.Context(), h)
	if err := allowance.Reserve(ctx, 7); err != nil || h.Held() != 7 {
		t.Errorf("held %d, %v", h.Held(), err)
	}
	allowance.FromContext(ctx).Return(3)
	if a.InUse() != 4 {
		t.Errorf("in use %d", a.InUse())
	}
	var none *allowance.Hold
	none.Release()
}

// Any number of requests that reserve in steps end, and leave no reservation.
func TestReserve_ManyInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allowance.New(allowance.Config{Total: 100, Share: 25, Wait: 5 * time.Second, Waiters: 64, Refusal: "full"})
		orgs := []uuid.UUID{uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				h := a.Open(allowance.Owner{Organization: orgs[i%len(orgs)]})
				defer h.Release()
				for range 1 + rand.IntN(4) {
					if err := h.Reserve(t.Context(), 1+rand.Int64N(15)); err != nil {
						return
					}
					if a.InUse() > 100 || h.Held() > 25 {
						t.Errorf("in use %d, held %d", a.InUse(), h.Held())
					}
				}
			})
		}
		all.Wait()
		if a.InUse() != 0 {
			t.Errorf("in use %d", a.InUse())
		}
		reserve(t, a.Open(allowance.Owner{Organization: orgs[0]}), 25)
	})
}

// silent reserves n of an organization, and waits for a silent peer until the hold is revoked.
func silent(t *testing.T, a *allowance.Allowance, o allowance.Owner, n int64) (revoked chan struct{}) {
	t.Helper()
	revoked = make(chan struct{})
	h := a.Open(o)
	reserve(t, h, n)
	h.Await(func() { close(revoked) })
	go func() {
		select {
		case <-revoked:
			if h.Moved(0) {
				t.Error("a revoked hold goes on")
			}
		case <-t.Context().Done():
		}
		h.Release()
	}()
	return revoked
}

// Four organizations that fill the total and whose peers are silent keep nobody out.
func TestAwait_SilentHoldsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		for range 4 {
			organization := alone()
			for range 5 {
				silent(t, a, organization, 5)
			}
		}
		for _, n := range []int64{1, 10, 25} {
			h := a.Open(alone())
			reserve(t, h, n)
			h.Release()
		}
		if left := a.InUse(); left < 100-5-10-15-25 {
			t.Errorf("%d are left of what is silent: more was taken than was needed", left)
		}
	})
}

func TestAwait_RevokesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 50)
		// An organization has its share alone, silent or not.
		own := alone()
		first := silent(t, a, own, 50)
		if err := a.Open(own).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("beyond the own share: %v", err)
		}
		// Who holds less is not revoked for who holds more.
		small, large := silent(t, a, alone(), 10), a.Open(alone())
		reserve(t, large, 40)
		if err := large.Reserve(t.Context(), 5); err != nil {
			t.Errorf("%v", err)
		}
		select {
		case <-small:
			t.Error("the smallest was revoked")
		case <-first:
		default:
			t.Error("the largest was not revoked")
		}
	})
}

// A peer that moves, and a hold at work, are waited for.
func TestAwait_MovingPeersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 100)
		moving := a.Open(alone())
		reserve(t, moving, 100)
		done := make(chan bool)
		go func() {
			moves := true
			for range 100 {
				moving.Await(func() { moves = false })
				<-time.After(100 * time.Millisecond)
				moves = moving.Moved(allowance.IdleStep) && moves
			}
			done <- moves
		}()
		if err := a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("%v", err)
		}
		if !<-done {
			t.Error("a peer that moves was revoked")
		}
		if err := a.Open(alone()).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("next to a hold at work: %v", err)
		}
		moving.Release()
	})
}

// pass lets time of the bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// owner is a project of an organization, by numbers.
func owner(organization, project byte) allowance.Owner {
	return allowance.Owner{Organization: uuid.UUID{1, organization}, Project: uuid.UUID{2, organization, project}}
}

// A project with many waiting reservations has half of its organization's share while another wants room, and all of
// it before and after.
func TestReserve_ProjectsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allowance.New(allowance.Config{Total: 16, Share: 4, Wait: time.Minute, Waiters: 64, Refusal: "full"})
		var mu sync.Mutex
		held, most := map[allowance.Owner]int{}, map[allowance.Owner]int{}
		served := []byte{}
		call := func(of allowance.Owner) {
			h := a.Open(of)
			reserve(t, h, 1)
			mu.Lock()
			served = append(served, of.Project[2])
			held[of]++
			most[of] = max(most[of], held[of])
			mu.Unlock()
			pass(time.Second)
			mu.Lock()
			held[of]--
			mu.Unlock()
			h.Release()
		}
		busy, quiet := owner(1, 1), owner(1, 2)
		for range 12 {
			go call(busy)
		}
		synctest.Wait()
		if most[busy] != 4 {
			t.Errorf("alone, a project holds %d of the share of 4", most[busy])
		}
		served, most = nil, map[allowance.Owner]int{}
		for range 4 {
			go call(quiet)
		}
		pass(1500 * time.Millisecond)
		mu.Lock()
		if most[quiet] != 2 || held[busy] != 2 {
			t.Errorf("the projects hold %d and %d, want half each (served %v)", held[busy], most[quiet], served)
		}
		mu.Unlock()
		pass(time.Minute)
		if a.InUse() != 0 || len(served) != 12 {
			t.Errorf("in use %d, served %d", a.InUse(), len(served))
		}
	})
}

// The newest waiter of the project with most of them is refused, not the one that comes.
func TestReserve_WaitersOfProjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allowance.New(allowance.Config{Total: 4, Share: 1, Wait: time.Minute, Waiters: 16, Refusal: "full"})
		full := a.Open(owner(1, 1))
		reserve(t, full, 1)
		refused := make(chan byte, 16)
		wait := func(project byte) {
			go func() {
				h := a.Open(owner(1, project))
				if err := h.Reserve(t.Context(), 1); err != nil {
					refused <- project
				}
				h.Release()
			}()
			synctest.Wait()
		}
		for range 4 { // all that one organization may have
			wait(1)
		}
		wait(2)
		wait(2)
		wait(2)
		if len(refused) != 3 || <-refused != 1 || <-refused != 1 || <-refused != 2 {
			t.Errorf("refused %d, want two of the first project and the third of the second", len(refused))
		}
		full.Release()
	})
}

// Whatever comes and is served, no queue holds more than it may, nobody is refused while its project has fewer waiters
// than another of its organization, and no waiter sees another project of its organization, or another organization,
// served twice before it, unless its own was served in between.
func TestQueue_Fair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 24).Draw(rt, "most")
		q := allowance.NewQueue[uint64](most)
		type waiting struct {
			of       allowance.Owner
			seen     map[uuid.UUID]int // organizations and projects served since it waits, or since its own was
			projects map[uuid.UUID]int
		}
		in, serial := map[uint64]*waiting{}, uint64(0)
		count := func(is func(allowance.Owner) bool) (n int) {
			for _, w := range in {
				if is(w.of) {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "comes") {
				o := owner(byte(rapid.IntRange(1, 4).Draw(rt, "organization")), byte(rapid.IntRange(1, 3).Draw(rt, "project")))
				serial++
				in[serial] = &waiting{of: o, seen: map[uuid.UUID]int{}, projects: map[uuid.UUID]int{}}
				if _, removed := q.Push(o, serial); removed != nil {
					gone := in[removed.Value].of
					ofGone := count(func(x allowance.Owner) bool { return x == gone })
					ofSame := count(func(x allowance.Owner) bool { return x == o })
					if gone.Organization == o.Organization && gone != o && ofGone <= ofSame-1 {
						rt.Fatalf("%v was refused with %d waiters for one with %d", gone, ofGone, ofSame)
					}
					delete(in, removed.Value)
				}
				if q.Len() > most || q.Len() != len(in) {
					rt.Fatalf("%d wait, of %d at most", q.Len(), most)
				}
				continue
			}
			w := q.Next(func(allowance.Owner, uint64) bool { return true })
			if w == nil {
				if len(in) != 0 {
					rt.Fatalf("nobody is next of %d", len(in))
				}
				continue
			}
			served := in[w.Value].of
			q.Take(w)
			delete(in, w.Value)
			for _, other := range in {
				switch {
				case other.of == served:
					other.seen, other.projects = map[uuid.UUID]int{}, map[uuid.UUID]int{}
				case other.of.Organization == served.Organization:
					other.seen = map[uuid.UUID]int{}
					if other.projects[served.Project]++; other.projects[served.Project] > 2 {
						rt.Fatalf("project %v was passed over twice by %v", other.of, served)
					}
				default:
					if other.seen[served.Organization]++; other.seen[served.Organization] > 2 {
						rt.Fatalf("organization of %v was passed over twice by %v", other.of, served)
					}
				}
			}
		}
	})
}

// Reservations of any size, by any owners, never exceed the total or a share, and all that can be granted are.
func TestReserve_Bounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.Int64Range(1, 40).Draw(rt, "total")
		share := rapid.Int64Range(1, total).Draw(rt, "share")
		project := rapid.Int64Range(1, share).Draw(rt, "project")
		seed := rapid.SliceOfN(rapid.Byte(), 3*32, 3*32).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			a := allowance.New(allowance.Config{
				Total: total, Share: share, Project: project, Wait: time.Hour, Waiters: 1 << 10, Refusal: "full",
			})
			var mu sync.Mutex
			taken, granted := map[uuid.UUID]int64{}, 0
			change := func(o allowance.Owner, n int64) {
				mu.Lock()
				defer mu.Unlock()
				taken[uuid.Nil] += n
				taken[o.Organization] += n
				taken[o.Project] += n
				if n > 0 {
					granted++
				}
				if taken[uuid.Nil] > total || taken[o.Organization] > share || taken[o.Project] > project {
					t.Errorf("taken %d of %d, %d of %d, %d of %d", taken[uuid.Nil], total, taken[o.Organization], share,
						taken[o.Project], project)
				}
			}
			var all sync.WaitGroup
			for i := range 32 {
				b := seed[3*i : 3*i+3]
				all.Go(func() {
					o, n := owner(b[0]%3, b[1]%3), int64(binary.BigEndian.Uint16([]byte{0, b[2]})%40+1)
					h := a.Open(o)
					if err := h.Reserve(t.Context(), n); err != nil {
						t.Errorf("%d of %v: %v", n, o, err)
						return
					}
					n = h.Held()
					change(o, n)
					pass(time.Second)
					change(o, -n)
					h.Release()
				})
			}
			all.Wait()
			if granted != 32 || a.InUse() != 0 || a.Waiting() != 0 {
				t.Errorf("granted %d, in use %d, waiting %d", granted, a.InUse(), a.Waiting())
			}
		})
	})
}
