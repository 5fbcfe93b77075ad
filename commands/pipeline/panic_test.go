package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// panicking panics at content with the word in it, and derives all other like the built-in extractor.
type panicking struct {
	Builtin
	word string
}

func (p panicking) Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error) {
	if strings.Contains(in.Content, p.word) {
		var none []string
		_ = none[len(in.Content)]
	}
	return p.Builtin.Extract(ctx, in)
}

// stacks counts the log lines that carry the stack of a panic.
type stacks struct {
	slog.Handler
	seen *atomic.Int64
}

func countStacks() (*slog.Logger, *atomic.Int64) {
	seen := new(atomic.Int64)
	return slog.New(stacks{slog.DiscardHandler, seen}), seen
}

func (stacks) Enabled(context.Context, slog.Level) bool { return true }

func (s stacks) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" && strings.Contains(a.Value.String(), "goroutine") {
			s.seen.Add(1)
		}
		return true
	})
	return nil
}

func TestDerive_ExtractorPanics(t *testing.T) {
	b := newFixture(t, "ok, poison")
	logger, seen := countStacks()
	b.Extractor, b.Logger = panicking{word: "poison"}, logger
	clock := at
	b.Now = func() time.Time { return clock }
	for n := 1; n <= maxAttempts; n++ {
		r := b.Worker.attempt(t.Context(), b.item)
		facts := b.history()
		e, ok := facts[len(facts)-1].Event.(*memory.Failed)
		if !ok || e.Code != ingestion.Internal || e.Attempt != n || e.Final != (n == maxAttempts) ||
			strings.Contains(e.Message, "index") {
			t.Fatalf("attempt %d ends with %+v", n, facts[len(facts)-1].Event)
		}
		if int(seen.Load()) != n || r.dataPoint != b.item.DataPoint {
			t.Errorf("after attempt %d: %d stacks, result %+v", n, seen.Load(), r)
		}
		clock = clock.Add(r.backoff)
		b.item.Attempt = n
	}
	b.Worker.attempt(t.Context(), b.item)
	if facts := b.history(); len(facts) != maxAttempts {
		t.Errorf("%d events after the item has ended", len(facts))
	}
}

func TestWorker_AttemptCannotBeRecordedForAPanic(t *testing.T) {
	b := newFixture(t, "text")
	b.Worker.Journal = engine.NewJournal(panicsAt(b.Journal.Store, stream.Name(stream.Memory, b.item.DataPoint)),
		b.Journal.Codec, b.Logger)
	if r := b.Worker.attempt(t.Context(), b.item); r.dataPoint != b.item.DataPoint || r.backoff != firstBackoff {
		t.Errorf("result %+v", r)
	}
}

// panickingQueue panics at its first claims.
type panickingQueue struct {
	queue
	left *atomic.Int64
}

func (q panickingQueue) Lease(ctx context.Context, c work.LeaseRequest) ([]work.Item, uuid.UUID, error) {
	if q.left.Add(-1) >= 0 {
		panic("claim")
	}
	return q.queue.Lease(ctx, c)
}

// One poisoned text ends as a failure of its own send, and everything else is derived and confirmed.
func TestPipeline_OneTextPanics(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprintf("slow %t", slow), func(t *testing.T) {
			w.part(t)
			logger, seen := countStacks()
			queue := panickingQueue{w.queries, new(atomic.Int64)}
			queue.left.Store(2)
			worker := w.worker("test")
			worker.Queue, worker.Extractor, worker.Logger, worker.Slow = queue, panicking{word: "poison"}, logger, slow
			confirmer := w.confirmer()
			confirmer.Logger = logger
			runtest.Part(t, worker.Run)
			runtest.Part(t, confirmer.Run)
			var ids []uuid.UUID
			for _, text := range []string{"Ana likes tea.", "ok, poison", "Bo lives in Berlin."} {
				ids = append(ids, w.ingest(item(text, text)))
			}
			poisoned := stream.Name(stream.Memory, w.pointID("ok, poison"))
			w.until("the first attempt fails", func() bool {
				last, _, err := w.log.Last(t.Context(), poisoned)
				runtest.Must(t, err)
				_, failed := last.Event.(*memory.Failed)
				return failed
			})
			w.clock.move(retryBudget) // so the second attempt is the last one
			codes := make([]string, len(ids))
			w.until("every send ends", func() bool {
				for i, id := range ids {
					s, _, err := w.queries.Send(t.Context(), w.call.Principal.Project, id)
					runtest.Must(t, err)
					if codes[i] = ""; s.Phase == "indexed" {
						codes[i] = s.Phase
					} else if s.Failure != nil {
						codes[i] = s.Failure.Code
					}
				}
				return !slices.Contains(codes, "")
			})
			if !slices.Equal(codes, []string{"indexed", ingestion.Internal, "indexed"}) || seen.Load() < 2+2 {
				t.Errorf("ends %v, %d stacks", codes, seen.Load())
			}
		})
	}
}

func TestConfirmer_EndOfASendPanics(t *testing.T) {
	b := newFixture(t, "text")
	logger, seen := countStacks()
	poisoned := work.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10}
	other := work.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10}
	log := engine.NewJournal(panicsAt(b.Journal.Store, stream.Name(stream.Ingestion, poisoned.IngestionID)),
		b.Journal.Codec, b.Logger)
	c := &Confirmer{
		Journal: log, Sends: listed{others: []work.Send{poisoned, other}}, Logger: logger,
		Progress: stalled{projection.DataPoints: 5, projection.Memories: 20, projection.RecallIndex: 20},
		IndexErr: func(context.Context) error { return nil }, Now: func() time.Time { return at },
		ended: make(map[uuid.UUID]eventstore.Position),
	}
	last := func(id uuid.UUID) string {
		t.Helper()
		facts, err := b.Journal.ReadFrom(t.Context(), stream.Name(stream.Ingestion, id), 0)
		runtest.Must(t, err)
		if len(facts) == 0 {
			return ""
		}
		if e, failed := facts[len(facts)-1].Event.(*ingestion.Failed); failed {
			return e.Code
		}
		return facts[len(facts)-1].Type
	}
	for n := 1; n <= maxAttempts; n++ {
		if _, err := c.round(t.Context()); err == nil {
			t.Fatal("a panic is no error")
		}
		if got := last(other.IngestionID); got != "ingestion.indexed.v1" || int(seen.Load()) != n {
			t.Fatalf("round %d: the other send %q, %d stacks", n, got, seen.Load())
		}
	}
	c.Journal = b.Journal
	if _, err := c.round(t.Context()); err != nil || last(poisoned.IngestionID) != ingestion.Internal {
		t.Errorf("it ends as %q, %v", last(poisoned.IngestionID), err)
	}
}

func TestConfirmer_EndOfASendPanicsAlways(t *testing.T) {
	b := newFixture(t, "text")
	logger, seen := countStacks()
	poisoned := work.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10}
	log := engine.NewJournal(panicsAt(b.Journal.Store, stream.Name(stream.Ingestion, poisoned.IngestionID)),
		b.Journal.Codec, b.Logger)
	c := &Confirmer{
		Journal: log, Sends: listed{others: []work.Send{poisoned}}, Logger: logger,
		Progress: stalled{projection.DataPoints: 5, projection.Memories: 20, projection.RecallIndex: 20},
		IndexErr: func(context.Context) error { return nil }, Now: func() time.Time { return at },
	}
	for range 3 * maxAttempts {
		_, _ = c.round(t.Context())
	}
	if seen.Load() != 2*maxAttempts {
		t.Errorf("%d attempts", seen.Load())
	}
}

func TestEmbedder_OneDataPointPanics(t *testing.T) {
	b := newFixture(t, "text")
	b.attempt()
	e, _ := newEmbedder(b, func([]string) error { return nil })
	healthy, broken := b.Journal, engine.NewJournal(panickingReads{b.Journal.Store}, b.Journal.Codec, b.Logger)
	for n := 1; n <= maxAttempts; n++ {
		e.Journal = broken
		later := map[uuid.UUID]time.Time{}
		if worked, err := e.round(t.Context(), later); err != nil || !worked || len(later) != 1 ||
			e.panicked[b.item.DataPoint] != n {
			t.Fatalf("round %d: worked %v, %v, later %v, panicked %v", n, worked, err, later, e.panicked)
		}
	}
	b.wantTypes("derivation-started", "derived")
	e.Journal = healthy
	runtest.Must(t, errorOf(e.round(t.Context(), map[uuid.UUID]time.Time{})))
	b.wantTypes("derivation-started", "derived", "embedded")
	if got := b.history()[2].Event.(*memory.Embedded); len(got.Vectors) != 0 {
		t.Errorf("vectors %+v", got.Vectors)
	}
}

// panickingReads panics at each read.
type panickingReads struct{ eventstore.Store }

func (panickingReads) Read(context.Context, string, eventstore.Revision, eventstore.Direction,
	int,
) ([]eventstore.Recorded, error) {
	panic("read")
}

// panickingList panics where the finisher looks for fan-outs.
type panickingList struct{ fanOutList }

func (panickingList) PendingFanOuts(context.Context, int) ([]work.Operation, error) {
	panic("unfanned")
}

func TestFinisher_StepPanics(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.ingest(item("one", "Ana likes tea."))
	w.remove("one")
	w.passHead()
	logger, seen := countStacks()
	f := w.finisher
	f.Logger, f.FanOuts = logger, panickingList{f.FanOuts}
	done, err := f.EraseNow(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fan-outs") || seen.Load() == 0 {
		t.Errorf("error %v, %d stacks", err, seen.Load())
	}
	if done.Deletions != 1 {
		t.Errorf("the other steps did %+v", done)
	}
}

func TestFinisher_OneItemPanics(t *testing.T) {
	logger, seen := countStacks()
	f := &Finisher{Logger: logger}
	err := f.bounded(t.Context(), func(context.Context) error { panic(errors.New("one item")) })
	if err == nil || !strings.Contains(err.Error(), "one item") || seen.Load() != 1 {
		t.Errorf("error %v, %d stacks", err, seen.Load())
	}
}

// A batch and a bulk write whose fan-outs panic each time are tried ever more rarely, and hold up no
// other.
func TestFinisher_FanOutPanicsAlways(t *testing.T) {
	w := newIdleHarness(t)
	w.commitBatch("poison", item("a", "one"), item("b", "two"))
	w.dead(w.stop(2).BulkIdentities(t.Context(), w.call, []identity.Row{{Identity: "ana"}, {Identity: "bo"}}))
	w.passHead()
	names := []string{
		w.pointName("a"), w.recordName("ana"),
	}
	store := w.store
	for _, name := range names {
		store = panicsAt(store, name)
	}
	logger, seen := countStacks()
	log := engine.NewJournal(store, w.log.Codec, logger)
	log.Namespaces = w.log.Namespaces
	w.finishOver(log)
	w.finisher.Logger = logger
	round := func() int {
		before := seen.Load()
		w.finisher.complete(t.Context(), false, new(erasure.Report))
		return int(seen.Load() - before)
	}
	w.clock.move(finishAfter)
	if err := w.finisher.CatchUp(t.Context()); err != nil || seen.Load() != 2 {
		t.Fatalf("the start: %v, %d panics", err, seen.Load())
	}
	if n := w.finisher.StuckFanOuts(); n != 2 || len(w.finisher.Stuck()) != 0 {
		t.Errorf("%d fan-outs and %d deletions are stuck", n, len(w.finisher.Stuck()))
	}
	w.commitBatch("sound", item("c", "three"), item("d", "four"))
	w.passHead()
	w.clock.move(finishAfter)
	n, live := round(), w.live()
	if n != 0 || slices.Contains(live, "a") || !slices.Contains(live, "c") || !slices.Contains(live, "d") {
		t.Errorf("live are %v after %d further panics", live, n)
	}
	var tries []int
	for minute := range 200 {
		w.clock.move(time.Minute)
		for range 3 {
			if round() > 0 {
				tries = append(tries, minute)
			}
		}
	}
	if want := []int{0, 2, 6, 14, 30, 62, 122, 182}; !slices.Equal(tries, want) {
		t.Errorf("tries in minutes %v, want %v", tries, want)
	}
	log = engine.NewJournal(w.store, w.log.Codec, logger)
	log.Namespaces = w.log.Namespaces
	w.finishOver(log)
	w.clock.move(longestStuckPause)
	w.finisher.complete(t.Context(), false, new(erasure.Report))
	if live := w.live(); w.finisher.StuckFanOuts() != 0 || !slices.Equal(live, []string{"a", "b", "c", "d"}) {
		t.Errorf("repaired, live are %v and %d are stuck", live, w.finisher.StuckFanOuts())
	}
}

// mortal is a process that dies of a text with the word in it: from then on it appends nothing and
// releases nothing.
type mortal struct {
	queue
	Builtin
	word string
	dead atomic.Bool
	die  context.CancelFunc
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
	m := &mortal{queue: w.queries, word: "poison", die: cancel}
	worker := w.worker(name)
	store := around{w.store, func(_ context.Context, _ write, store func() error) error {
		if m.dead.Load() {
			return errDied
		}
		return store()
	}}
	worker.Journal, worker.Queue, worker.Extractor = engine.NewJournal(store, w.log.Codec, w.log.Logger), m, m
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
		names[n] = stream.Name(stream.Memory, w.pointID(id))
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
	b.race(func() *Worker { return b.Worker })
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
