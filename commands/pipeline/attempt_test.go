package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

var at = time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)

// scripted answers each attempt with the next of its errors, nil being success.
type scripted struct {
	answers []error
	asked   []comprehend.Input
	found   []memory.Memory
}

func (*scripted) Name() string { return "scripted/1" }

func (s *scripted) Extract(_ context.Context, in comprehend.Input) ([]memory.Memory, error) {
	s.asked = append(s.asked, in)
	if len(s.answers) == 0 {
		return s.found, nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return s.found, err
}

// fixture is a worker with one accepted send.
type fixture struct {
	*Worker
	t         *testing.T
	extractor *scripted
	item      work.Item
}

func newFixture(t *testing.T, content string, answers ...error) *fixture {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, codec := eventstoretest.NewMemory(), eventstoretest.Codec(t)
	log := engine.NewJournal(store, codec, quiet)
	project := auth.Project{ID: uuid.New(), Namespace: uuid.New()}
	write := commands.New(commands.Config{Journal: log, HashKey: make([]byte, 32)})
	id, label, author := "s", "standup", "ana"
	r, err := write.Ingest(t.Context(), engine.Call{Principal: auth.Principal{Project: project}, ReceivedAt: at},
		ingest.DataPoint{Content: content, ID: &id, Label: &label, Identity: &author, Metadata: []byte(`{"k":1}`)}, "")
	runtest.Must(t, err)
	b := &fixture{t: t, extractor: &scripted{answers: answers}}
	b.Worker = &Worker{
		LoadGauge: idle{}, Age: noAge, Journal: log, Extractor: b.extractor, Logger: quiet,
		Now: func() time.Time { return at },
	}
	b.item = work.Item{
		ProjectID: project.ID, IngestionID: r.IngestionID, DataPoint: stream.DataPointID(project.Namespace, id),
		Revision: 1, Phase: work.Queued,
	}
	return b
}

// deleted records the deletion of the data point, which comes before its streams are tombstoned.
func (b *fixture) deleted() {
	b.t.Helper()
	_, err := b.Journal.Append(b.t.Context(), stream.Name(stream.DataPoint, b.item.DataPoint), 0,
		event.NewMeta("test", at), datapoint.Deleted{ProjectID: b.item.ProjectID, DeletionID: uuid.New(), DeletedAt: at})
	runtest.Must(b.t, err)
}

func (b *fixture) attempt() result {
	b.t.Helper()
	r, err := b.derive(b.t.Context(), b.item)
	runtest.Must(b.t, err)
	return r
}

// race lets eight workers derive the item at once.
func (b *fixture) race(worker func() *Worker) {
	b.t.Helper()
	results := make(chan error, 8)
	for range cap(results) {
		go func(w *Worker) {
			_, err := w.derive(context.WithoutCancel(b.t.Context()), b.item)
			results <- err
		}(worker())
	}
	for range cap(results) {
		if err := <-results; err != nil {
			b.t.Error(err)
		}
	}
}

func (b *fixture) history() []eventstore.DecodedEvent {
	b.t.Helper()
	facts, err := b.Journal.ReadFrom(b.t.Context(), stream.Name(stream.Memory, b.item.DataPoint), 0)
	runtest.Must(b.t, err)
	return facts
}

func (b *fixture) wantTypes(want ...string) {
	b.t.Helper()
	var got []string
	for _, f := range b.history() {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(f.Type, "memory."), ".v1"))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		b.t.Errorf("events %v, want %v", got, want)
	}
}

func TestDerive_StoresOneAnswer(t *testing.T) {
	b := newFixture(t, "Ana likes tea")
	b.extractor.found = []memory.Memory{{Kind: memory.Claim, Content: "Ana likes tea"}}
	if r := b.attempt(); r.position == 0 || r.backoff != 0 {
		t.Errorf("result %+v", r)
	}
	b.attempt() // the list lags and gives the item again
	b.wantTypes("derivation-started", "derived")
	in := b.extractor.asked[0]
	if len(b.extractor.asked) != 1 || in.Content != "Ana likes tea" || in.Label != "standup" || in.Author != "ana" ||
		string(in.Metadata) != `{"k":1}` || !in.OccurredAt.Equal(at) {
		t.Errorf("the extractor was given %+v", b.extractor.asked)
	}
	e := b.history()[1].Event.(*memory.Derived)
	if e.Extractor != "scripted/1" || len(e.Memories) != 1 || !e.OccurredAt.Equal(at) {
		t.Errorf("derived %+v", e)
	}
}

func TestAttempts_BackoffAndEnd(t *testing.T) {
	down := &Failure{Code: ingestion.ModelUnavailable, Message: "no answer", Retryable: true}
	b := newFixture(t, "text", down, down, down, down, down)
	var backoffs []time.Duration
	for range maxAttempts {
		backoffs = append(backoffs, b.attempt().backoff)
	}
	if backoffs[0] != time.Second || backoffs[3] != 8*time.Second || backoffs[4] != 0 {
		t.Errorf("backoffs %v", backoffs)
	}
	b.attempt() // the list lags: no sixth attempt
	facts := b.history()
	if len(facts) != 2*maxAttempts {
		t.Fatalf("%d events", len(facts))
	}
	last := facts[len(facts)-1].Event.(*memory.Failed)
	if !last.Final || last.Attempt != maxAttempts || last.Code != ingestion.ModelUnavailable {
		t.Errorf("the end: %+v", last)
	}
	// A retry of the send begins again at the first attempt.
	b.item.Round = 1
	b.attempt()
	facts = b.history()
	if e, ok := facts[len(facts)-1].Event.(*memory.Derived); !ok || e.Revision != 1 {
		t.Errorf("after the retry: %+v", facts[len(facts)-1].Event)
	}
	if e := facts[len(facts)-2].Event.(*memory.DerivationStarted); e.Attempt != 1 || e.Round != 1 {
		t.Errorf("attempt of the retry: %+v", e)
	}
}

// A retry of an older revision is worked on also where the attempt at a newer one was cut off:
// the newer one waits for it.
func TestRetry_AttemptWasCutOff(t *testing.T) {
	b := newFixture(t, "text", &Failure{Code: ingestion.ContentRejected, Message: "refused"})
	b.attempt()
	facts := b.history()
	cut := memory.DerivationStarted{
		ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Revision: 2, Attempt: 1,
		StartedAt: at,
	}
	meta := event.NewMeta("test", time.Now())
	if _, err := b.Journal.Append(t.Context(), stream.Name(stream.Memory, b.item.DataPoint),
		facts[len(facts)-1].Revision, meta, cut); err != nil {
		t.Fatal(err)
	}
	b.item.Round = 1
	b.attempt()
	b.wantTypes("derivation-started", "failed", "derivation-started", "derivation-started", "derived")
}

func TestAttempts_RejectedContent(t *testing.T) {
	b := newFixture(t, "text", &Failure{Code: ingestion.ContentRejected, Message: "refused"})
	b.attempt()
	if e := b.history()[1].Event.(*memory.Failed); !e.Final || e.Code != ingestion.ContentRejected {
		t.Errorf("failed %+v", e)
	}
}

func TestDerive_NothingToIndex(t *testing.T) {
	b := newFixture(t, "... --- !")
	b.attempt()
	if e := b.history()[1].Event.(*memory.Failed); e.Code != ingestion.ContentRejected || len(b.extractor.asked) != 0 {
		t.Errorf("failed %+v", e)
	}
}

func TestAttempts_UnforeseenError(t *testing.T) {
	b := newFixture(t, "text", errors.New("secret detail"))
	b.attempt()
	if e := b.history()[1].Event.(*memory.Failed); e.Code != ingestion.Internal || e.Final ||
		strings.Contains(e.Message, "secret") {
		t.Errorf("failed %+v", e)
	}
}

// A process that dies in every attempt leaves only their starts: the item ends all the same.
func TestAttempts_CrashLoop(t *testing.T) {
	b := newFixture(t, "text")
	name := stream.Name(stream.Memory, b.item.DataPoint)
	for n := range maxAttempts {
		started := memory.DerivationStarted{
			ProjectID: b.item.ProjectID, IngestionID: b.item.IngestionID, Revision: 1,
			Attempt: n + 1, StartedAt: at,
		}
		proposed, err := b.Journal.Codec.Encode(started, 0, event.NewMeta("test", time.Now()))
		runtest.Must(t, err)
		if _, err := b.Journal.Store.Append(t.Context(), name, eventstore.Revision(n-1),
			[]eventstore.Proposed{proposed}); err != nil {
			t.Fatal(err)
		}
	}
	b.attempt()
	facts := b.history()
	e, ok := facts[len(facts)-1].Event.(*memory.Failed)
	if !ok || !e.Final || e.Code != ingestion.Internal || len(b.extractor.asked) != 0 {
		t.Errorf("after %d deaths: %+v", maxAttempts, facts[len(facts)-1].Event)
	}
}

func TestDerive_ManyMemories(t *testing.T) {
	b := newFixture(t, strings.Repeat("word ", 100_000)) // a content in a blob, too
	for n := range 3000 {
		b.extractor.found = append(b.extractor.found,
			memory.Memory{ID: memory.ID(b.item.DataPoint, 1, n), Kind: memory.Mention, Content: strings.Repeat("m", 200)})
	}
	b.attempt()
	e := b.history()[1].Event.(*memory.Derived)
	if e.Blob == nil || e.Memories != nil || len(b.extractor.asked[0].Content) != 500_000 {
		t.Fatalf("derived inline: %d memories", len(e.Memories))
	}
	data, err := b.Journal.ReadBlob(t.Context(), *e.Blob)
	runtest.Must(t, err)
	if found, err := memory.Decode(data); err != nil || len(found) != 3000 {
		t.Errorf("%d memories read back: %v", len(found), err)
	}
}

func TestDerive_ErasedMeanwhile(t *testing.T) {
	b := newFixture(t, "text")
	b.attempt()
	runtest.Must(t, errorOf(b.Journal.Store.Tombstone(t.Context(), stream.Name(stream.Memory, b.item.DataPoint), 1)))
	b.deleted()
	b.item.Revision = 2
	if r := b.attempt(); r.position != 0 || len(b.extractor.asked) != 1 {
		t.Errorf("worked on an erased data point: %+v", r)
	}
}

// Of two workers that take the same item, one works.
func TestAttempts_StartIsTheLock(t *testing.T) {
	b := newFixture(t, "text")
	b.race(func() *Worker {
		return &Worker{
			LoadGauge: idle{}, Age: noAge, Journal: b.Journal, Extractor: &scripted{}, Logger: b.Logger, Now: b.Now,
		}
	})
	derived := 0
	for _, f := range b.history() {
		if _, ok := f.Event.(*memory.Derived); ok {
			derived++
		}
	}
	if derived != 1 {
		t.Errorf("derived %d times", derived)
	}
}

// The list may have the text of a revision at hand; then it is what the extractor is given.
func TestDerive_TextOfTheWorkList(t *testing.T) {
	b := newFixture(t, "in the stream")
	b.item.Text = &work.Text{
		Content: "in the list", Metadata: []byte(`{"k":2}`), Label: "retro", Author: "bo",
		OccurredAt: at.Add(time.Hour),
	}
	b.attempt()
	b.wantTypes("derivation-started", "derived")
	want := comprehend.Input{
		DataPoint: b.item.DataPoint, Revision: 1, Content: "in the list", Metadata: []byte(`{"k":2}`), Label: "retro",
		Author: "bo", OccurredAt: at.Add(time.Hour),
	}
	if diff := cmp.Diff([]comprehend.Input{want}, b.extractor.asked); diff != "" {
		t.Error(diff)
	}
	if e, ok := b.history()[1].Event.(*memory.Derived); !ok || !e.OccurredAt.Equal(at.Add(time.Hour)) {
		t.Errorf("stored as %+v", b.history()[1].Event)
	}
}

// unwell fails after so long by a clock that it moves itself.
type unwell struct {
	clock *time.Time
	takes []time.Duration
	asked int
}

func (*unwell) Name() string { return "unwell/1" }

func (u *unwell) Extract(context.Context, comprehend.Input) ([]memory.Memory, error) {
	*u.clock = u.clock.Add(u.takes[min(u.asked, len(u.takes)-1)])
	u.asked++
	return nil, &Failure{Code: ingestion.ModelUnavailable, Message: "status 500", Retryable: true}
}

func TestAttempts_EndWithinAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		takes []time.Duration
		asked int
		took  time.Duration
	}{
		"at once":           {[]time.Duration{0}, 5, 15 * time.Second},
		"slow":              {[]time.Duration{9 * time.Second}, 3, 30 * time.Second},
		"slowest":           {[]time.Duration{29 * time.Second}, 2, 59 * time.Second},
		"late":              {[]time.Duration{0, 0, 0, 0, 29 * time.Second}, 5, 44 * time.Second},
		"always hangs":      {[]time.Duration{30 * time.Second}, 5, 165 * time.Second},
		"hung at the first": {[]time.Duration{30 * time.Second, 0}, 5, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "text")
			clock := at
			model := &unwell{clock: &clock, takes: c.takes}
			b.Now, b.Extractor = func() time.Time { return clock }, model
			for {
				r := b.attempt()
				if r.backoff == 0 {
					break
				}
				clock = clock.Add(r.backoff)
			}
			facts := b.history()
			last, ok := facts[len(facts)-1].Event.(*memory.Failed)
			if !ok || !last.Final || last.Code != ingestion.ModelUnavailable {
				t.Errorf("the end: %+v", facts[len(facts)-1].Event)
			}
			if took := clock.Sub(at); model.asked != c.asked || took != c.took {
				t.Errorf("%d attempts in %s, want %d in %s", model.asked, took, c.asked, c.took)
			}
			// A retry of the send has time of its own.
			b.item.Round, model.takes = 1, []time.Duration{0}
			if r := b.attempt(); r.backoff != firstBackoff {
				t.Errorf("the first attempt of the retry: %+v", r)
			}
			if r := b.attempt(); r.backoff != 2*firstBackoff {
				t.Errorf("the second attempt of the retry: %+v", r)
			}
		})
	}
}

// readCounter counts the reads of streams.
type readCounter struct {
	eventstore.Store
	reads atomic.Int64
}

func (r *readCounter) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	r.reads.Add(1)
	return r.Store.Read(ctx, name, from, direction, limit)
}

func (r *readCounter) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	r.reads.Add(1)
	return r.Store.ReadLast(ctx, name)
}

// The second revision of a data point is derived at the end of the stream that the queue knows, without a
// read. If the queue is wrong, the stream is read: it gets the memories of the revision once, and an attempt
// that the queue does not know of is counted.
func TestDerive_HeadOfTheWorkList(t *testing.T) {
	const first, second = 1, 2
	ids := func(b *fixture) (project, send uuid.UUID) { return b.item.ProjectID, b.item.IngestionID }
	derived := func(revision int) func(b *fixture) event.Event {
		return func(b *fixture) event.Event {
			project, send := ids(b)
			return memory.Derived{ProjectID: project, IngestionID: send, Revision: revision, DerivedAt: at, OccurredAt: at}
		}
	}
	failed := func(final bool) func(b *fixture) event.Event {
		return func(b *fixture) event.Event {
			project, send := ids(b)
			return memory.Failed{
				ProjectID: project, IngestionID: send, Revision: second, Attempt: 1, Code: "internal", FailedAt: at, Final: final,
			}
		}
	}
	vectors := func(b *fixture) event.Event {
		project, _ := ids(b)
		return memory.Embedded{ProjectID: project, Revision: first, Model: "m", Part: 1, Parts: 1, EmbeddedAt: at}
	}
	known := func(at eventstore.Revision) *eventstore.Revision { return &at }
	for name, tt := range map[string]struct {
		stored  []func(*fixture) event.Event
		head    *eventstore.Revision
		isRead  bool
		want    []string
		deleted bool
	}{
		"current": {
			stored: []func(*fixture) event.Event{derived(first)}, head: known(0), want: []string{"derived", "derived"},
		},
		"current, after vectors": {
			stored: []func(*fixture) event.Event{derived(first), vectors}, head: known(1),
			want: []string{"derived", "embedded", "derived"},
		},
		"late for vectors": {
			stored: []func(*fixture) event.Event{derived(first), vectors}, head: known(0), isRead: true,
			want: []string{"derived", "embedded", "derived"},
		},
		"late for the memories": {
			stored: []func(*fixture) event.Event{derived(first), derived(second)}, head: known(0), isRead: true,
			want: []string{"derived", "derived"},
		},
		"late for a failure": {
			stored: []func(*fixture) event.Event{derived(first), failed(false)}, head: known(0), isRead: true,
			want: []string{"derived", "failed", "derived"},
		},
		"late for the last failure": {
			stored: []func(*fixture) event.Event{derived(first), failed(true)}, head: known(0), isRead: true,
			want: []string{"derived", "failed"},
		},
		"of another log": {
			stored: []func(*fixture) event.Event{derived(first)}, head: known(7), isRead: true, want: []string{"derived", "derived"},
		},
		"of another log, empty stream": {head: known(0), isRead: true, want: []string{"derived"}},
		"unknown": {
			stored: []func(*fixture) event.Event{derived(first)}, isRead: true, want: []string{"derived", "derived"},
		},
		"erased": {stored: []func(*fixture) event.Event{derived(first)}, head: known(0), isRead: true, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "Ana likes tea")
			b.Extractor = Builtin{}
			b.item.Revision, b.item.MemoryHead = second, tt.head
			b.item.Text = &work.Text{Content: "Ana likes coffee", OccurredAt: at}
			name := stream.Name(stream.Memory, b.item.DataPoint)
			for i, e := range tt.stored {
				_, err := b.Journal.Append(t.Context(), name, eventstore.Revision(i-1), event.NewMeta("test", time.Now()), e(b))
				runtest.Must(t, err)
			}
			if tt.deleted {
				b.deleted()
				_, err := b.Journal.Store.Tombstone(t.Context(), name, eventstore.Revision(len(tt.stored)-1))
				runtest.Must(t, err)
			}
			counter := &readCounter{Store: b.Journal.Store}
			b.Journal.Store = counter
			b.attempt()
			if isRead := counter.reads.Load() > 0; isRead != tt.isRead {
				t.Errorf("%d reads, want some: %v", counter.reads.Load(), tt.isRead)
			}
			if !tt.deleted {
				b.wantTypes(tt.want...)
			}
		})
	}
}

// Of several workers with the same outdated list, one derives the revision.
func TestDerive_HeadOfTheWorkListRaces(t *testing.T) {
	b := newFixture(t, "Ana likes tea")
	b.Extractor = Builtin{}
	b.attempt()
	head := eventstore.Revision(0)
	b.item.Revision, b.item.MemoryHead = 2, &head
	b.item.Text = &work.Text{Content: "Ana likes coffee", OccurredAt: at}
	b.race(func() *Worker { return b.Worker })
	b.wantTypes("derived", "derived")
}

// A text comes with its item, that of the item's revision though a later one is the newest. If its row is
// missing, it is read from the stream.
func TestWorker_TextOfTheRevision(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]bool{"row": false, "no row": true} {
		t.Run(name, func(t *testing.T) {
			w := newIdleHarness(t)
			for _, content := range []string{"Ana likes tea.", "Ana likes coffee."} {
				w.ingest(item("a", content))
			}
			w.passHead()
			if missing {
				w.ok(w.db.Exec(t.Context(), `delete from datapoints.revisions where number = 1`))
			}
			leased := w.lease()
			if leased.Revision != 1 || (leased.Text == nil) != missing || leased.MemoryHead != nil {
				t.Fatalf("leased %+v", leased)
			}
			asked := &scripted{}
			worker := w.worker("stalled")
			worker.Extractor = asked
			w.ok(worker.derive(t.Context(), leased))
			if len(asked.asked) != 1 || asked.asked[0].Content != "Ana likes tea." {
				t.Errorf("derived from %+v", asked.asked)
			}
		})
	}
}

// A worker has leased the second revision of a data point, with its text and the head of its memories, when
// the data point is erased: it stores nothing.
func TestWorker_StalledWithALaterRevisionUntilTheDeletionIsCleaned(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	worker, secret := w.worker("stalled"), runtest.Word()
	var leased work.Item
	for n, content := range []string{"Ana likes tea.", strings.Repeat("Ana's favourite editor is "+secret+". ", 1000)} {
		w.ingest(item("a", content))
		if leased = w.lease(); n > 0 {
			break
		}
		w.ok(worker.derive(t.Context(), leased))
		runtest.Must(t, w.queries.Release(t.Context(), "stalled", []uuid.UUID{leased.DataPoint}))
	}
	if leased.Revision != 2 || leased.Text == nil || leased.MemoryHead == nil || *leased.MemoryHead != 0 {
		t.Fatalf("leased %+v", leased)
	}
	w.deleteAndClean("a")
	w.ok(worker.derive(t.Context(), leased))
	name := stream.Name(stream.Memory, leased.DataPoint)
	w.wantEnded(t, name)
	w.gone(secret)
}
