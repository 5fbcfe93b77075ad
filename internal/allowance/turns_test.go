package allowance_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/allowance"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

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
