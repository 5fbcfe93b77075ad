package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// mortal is a process that dies of a text with the word in it: from then on it appends nothing and
// releases nothing.
type mortal struct {
	eventstore.Store
	queue
	Builtin
	word string
	dead atomic.Bool
	die  context.CancelFunc
}

func (m *mortal) Append(ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed) (
	eventstore.Appended, error,
) {
	if m.dead.Load() {
		return eventstore.Appended{}, errDied
	}
	return m.Store.Append(ctx, name, expected, events)
}

func (m *mortal) Release(ctx context.Context, holder string, dataPoints []uuid.UUID) error {
	if m.dead.Load() {
		return errDied
	}
	return m.queue.Release(ctx, holder, dataPoints)
}

func (m *mortal) Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error) {
	if strings.Contains(in.Content, m.word) {
		m.dead.Store(true)
		m.die()
		return nil, errDied
	}
	return m.Builtin.Extract(ctx, in)
}

// process runs a worker in a separate process until it dies or all is done.
func (w *harness) process(name string, done func() bool) (died bool) {
	w.t.Helper()
	err := errors.Join(w.queries.AbandonLeases(w.t.Context(), at), w.queries.ForgetLeases(w.t.Context(), at))
	runtest.Must(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	m := &mortal{Store: w.store, queue: w.queries, word: "poison", die: cancel}
	worker := w.worker(name)
	worker.Journal, worker.Queue, worker.Extractor = commands.NewJournal(m, w.log.Codec, w.log.Logger), m, m
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	w.until("the process dies, or all is done", func() bool { return m.dead.Load() || done() })
	cancel()
	runtest.Must(w.t, <-ended)
	return m.dead.Load()
}

// A text that kills the process again and again fails only its own send, after a bounded number of
// attempts.
func TestWorker_ATextKillsTheProcess(t *testing.T) {
	w := newIdleHarness(t)
	const poisoned = 7
	names := make([]string, 20)
	for n := range names {
		id, content := fmt.Sprint("s", n), "Ana likes tea."
		if n == poisoned {
			content = "poison"
		}
		w.ingest(item(id, content))
		names[n] = stream.Name(stream.Memory, stream.DataPointID(w.call.Principal.Project.Namespace, id))
	}
	w.passHead()
	types := func(name string) (list []string) {
		facts, err := w.log.ReadFrom(t.Context(), name, 0)
		runtest.Must(t, err)
		for _, f := range facts {
			list = append(list, strings.TrimSuffix(strings.TrimPrefix(f.Type, "memory."), ".v1"))
		}
		return list
	}
	done := func() bool {
		for _, name := range names {
			if list := types(name); len(list) == 0 || list[len(list)-1] != "derived" && list[len(list)-1] != "failed" {
				return false
			}
		}
		return true
	}
	deaths := 0
	for w.process(fmt.Sprint("process ", deaths), done) {
		if deaths++; deaths > 2*maxAttempts {
			t.Fatal("the processes never cease to die")
		}
		w.passHead()
	}
	if deaths != maxAttempts+1 { // the first attempt is not recorded
		t.Errorf("%d processes died", deaths)
	}
	want := append(slices.Repeat([]string{"derivation-started"}, maxAttempts), "failed")
	for n, name := range names {
		switch list := types(name); {
		case n == poisoned && !slices.Equal(list, want):
			t.Errorf("the poisoned one has %v, want %v", list, want)
		case n != poisoned && list[len(list)-1] != "derived":
			t.Errorf("neighbour %d has %v", n, list)
		}
	}
	last, _, err := w.log.Last(t.Context(), names[poisoned])
	runtest.Must(t, err)
	if e := last.Event.(*memory.Failed); !e.Final || e.Code != ingestion.Internal {
		t.Errorf("it ends with %+v", e)
	}
}

// With a pure extractor, an attempt stores one event, and a worker that comes second stores
// nothing.
func TestDerive_PureExtractor(t *testing.T) {
	b := newFixture(t, "Ana likes tea")
	b.Extractor = Builtin{}
	results := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := b.derive(context.WithoutCancel(t.Context()), b.item)
			results <- err
		}()
	}
	for range 8 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	b.wantTypes("derived")
	b.item.Round = 1 // a send that was retried while its memories were stored
	if r := b.attempt(); r.position == 0 {
		t.Errorf("result %+v", r)
	}
	b.wantTypes("derived")
}

// A worker that stops in order leaves no lease, so the next process suspects nothing.
func TestWorker_StopsWithoutALease(t *testing.T) {
	w := newIdleHarness(t)
	w.ingest(item("a", "Ana likes tea."))
	w.passHead()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := heldExtractor{begun: make(chan struct{}), release: make(chan struct{}), word: "tea"}
	worker := w.worker("test")
	worker.Extractor = held
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	<-held.begun
	cancel()
	close(held.release)
	runtest.Must(t, <-ended)
	var left int
	if err := w.db.QueryRow(t.Context(), `select count(*) from ops.leases`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d leases are left, %v", left, err)
	}
}
