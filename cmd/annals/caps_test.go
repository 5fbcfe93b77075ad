package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

const (
	capItems   = 500
	capClients = 32
)

// capTest is clients of all processes that send until the cap refuses them.
type capTest struct {
	d      *deployment
	seed   uint64
	serial atomic.Int64
	// acked items were accepted. unknown items are those of calls that were cut off.
	acked, unknown atomic.Int64
	// alive are the clients of the processes that run.
	mu    sync.Mutex
	alive []*client.Client
}

func (s *capTest) up(processes ...*served) {
	var alive []*client.Client
	for _, p := range processes {
		alive = append(alive, p.client())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = alive
}

func (s *capTest) pick(n int) *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive[n%len(s.alive)]
}

// run lets all clients send until each is refused a single data point.
func (s *capTest) run() {
	var group sync.WaitGroup
	for n := range capClients {
		rng := rand.New(rand.NewPCG(s.seed, uint64(n)))
		group.Go(func() {
			for most := 5; most > 0 && !s.d.t.Failed(); {
				items := 1 + rng.IntN(most)
				if s.send(n, items, rng.IntN(2) == 0) {
					continue
				}
				// A single data point may still fit when a batch does not.
				most = items - 1
			}
		})
	}
	group.Wait()
}

// begin lets all clients send until sent is closed, and returns once many are accepted.
func (s *capTest) begin() (sent chan struct{}) {
	s.d.t.Helper()
	sent = make(chan struct{})
	go func() { defer close(sent); s.run() }()
	runtest.Await(s.d.t, "many are sent", func() bool { return s.acked.Load() > 200 })
	return sent
}

// send sends so many new data points, and reports whether they were accepted. A keyed call that is
// cut off is made again; now and then it is made through two processes at once.
func (s *capTest) send(n, items int, keyed bool) bool {
	serial := s.serial.Add(1)
	key := ""
	if keyed {
		key = fmt.Sprintf("key-%d", serial)
	}
	if keyed && serial%8 == 0 {
		var other sync.WaitGroup
		other.Go(func() { s.try(n+1, serial, items, key) })
		defer other.Wait()
	}
	for {
		answer := s.try(n, serial, items, key)
		switch {
		case answer == "":
			s.acked.Add(int64(items))
			return true
		case answer == fault.CodeProjectCapReached:
			return false
		case answer != cutOff:
			s.d.t.Errorf("%d items are answered %s", items, answer)
			return false
		case !keyed:
			s.unknown.Add(int64(items))
			return true
		}
	}
}

// cutOff is the code of a call without an answer.
const cutOff = "cut off"

// try makes one call. It returns "" if the items were accepted, else a code.
func (s *capTest) try(n int, serial int64, items int, key string) string {
	ctx, cancel := context.WithTimeout(s.d.t.Context(), runtest.Timeout)
	defer cancel()
	id := func(i int) string { return fmt.Sprintf("point-%d-%d", serial, i) }
	var err error
	if items == 1 {
		_, err = s.pick(n).Ingest(ctx, client.DataPoint{ID: id(0), Content: "A text.", IdempotencyKey: key})
	} else {
		batch := make([]json.RawMessage, items)
		for i := range batch {
			batch[i] = fmt.Appendf(nil, `{"id":%q,"content":"A text."}`, id(i))
		}
		_, err = s.pick(n).IngestBatch(ctx, client.Batch{RawItems: batch, IdempotencyKey: key})
	}
	refused, is := errors.AsType[*client.APIError](err)
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return "nothing for too long"
	case !is, refused.Code == fault.CodeServiceUnavailable:
		return cutOff
	default:
		return refused.Code
	}
}

// topUp sends single data points until the month holds the cap. What a dead process reserved is
// released after a while.
func (s *capTest) topUp(month string) {
	s.d.t.Helper()
	runtest.Await(s.d.t, fmt.Sprintf("%d data points in %s", capItems, month), func() bool {
		for s.send(0, 1, true) {
			if s.acked.Load() > 2*capItems {
				s.d.t.Fatalf("%d data points were accepted", s.acked.Load())
			}
		}
		return s.facts(month) >= capItems
	})
}

// facts returns how many data points the projection counts in a month.
func (s *capTest) facts(month string) (n int64) {
	s.d.t.Helper()
	err := s.d.db.QueryRow(s.d.t.Context(), `select coalesce(sum(ingestions), 0)::bigint from datapoints.month_usage where month = $1`, month).Scan(&n)
	runtest.Must(s.d.t, err)
	return n
}

// used returns what a process reports for the current month, including every call answered before.
func (s *served) used() (ingestions int64) {
	s.d.t.Helper()
	var usage struct{ Project struct{ Ingestions int64 } }
	runtest.Must(s.d.t, json.Unmarshal(s.wants(s.key(), http.MethodGet, "/usage", "", http.StatusOK, ""), &usage))
	return usage.Project.Ingestions
}

// full checks that the month holds the cap, and that every process accepts only what costs nothing.
func (s *capTest) full() {
	t := s.d.t
	t.Helper()
	for n, p := range s.d.processes {
		if got := p.used(); got != capItems {
			t.Errorf("the month holds %d data points, want %d", got, capItems)
		}
		if got := s.try(n, s.serial.Add(1), 1, ""); got != fault.CodeProjectCapReached {
			t.Errorf("one more is answered %q", got)
		}
		if got := s.try(n, 0, 3, "first"); got != "" {
			t.Errorf("a repetition of a key is answered %q", got)
		}
		if got := s.try(n, 0, 3, ""); got != "" {
			t.Errorf("unchanged data points are answered %q", got)
		}
	}
}

// Many clients send through two processes, in single sends, with keys and in batches. The month takes
// exactly as many data points as its cap, also if a process is killed or the month changes.
func TestCap_TwoProcesses(t *testing.T) {
	t.Parallel()
	seed := seedtest.Of(t)
	d := newDeployment(t, time.Date(2026, 11, 12, 12, 0, 0, 0, time.UTC), 2)
	d.env = []string{"ANNALS_PIPELINE=off"}
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	first.operate("project", "caps", "default", "--ingestion-cap", fmt.Sprint(capItems))
	s := &capTest{d: d, seed: seed}
	s.up(first, second)
	if got := s.try(0, 0, 3, "first"); got != "" {
		t.Fatal(got)
	}
	s.acked.Add(3)

	// A process is killed while all send, and comes back.
	sent := s.begin()
	second.kill()
	s.up(first)
	second.start()
	s.up(first, second)
	<-sent
	s.topUp("2026-11")
	s.full()
	if acked, unknown := s.acked.Load(), s.unknown.Load(); acked > capItems || acked+unknown < capItems {
		t.Errorf("%d are acknowledged and %d cut off, of %d", acked, unknown, capItems)
	}

	// The month changes while all send.
	writeClock(t, d.clock, time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC))
	s.acked.Store(0)
	s.unknown.Store(0)
	s.seed++
	sent = s.begin()
	writeClock(t, d.clock, time.Date(2027, 1, 1, 0, 0, 1, 0, time.UTC))
	<-sent
	s.topUp("2027-01")
	s.full()
	december, january := s.facts("2026-12"), s.facts("2027-01")
	acked, unknown := s.acked.Load(), s.unknown.Load()
	if took := december + january; december > capItems || january != capItems || took < acked || took > acked+unknown {
		t.Errorf("December took %d and January %d; acknowledged are %d, and %d were cut off", december, january, acked,
			unknown)
	}
	if november := s.facts("2026-11"); november != capItems {
		t.Errorf("November holds %d", november)
	}
	for _, p := range d.processes {
		p.stop()
	}
}
