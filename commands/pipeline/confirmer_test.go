package pipeline

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// stalled is projections that do not move.
type stalled map[string]eventstore.Position

func (stalled) Wait(context.Context, eventstore.Position, ...string) error { return nil }
func (s stalled) Position(_ context.Context, name string) (eventstore.Position, error) {
	return s[name], nil
}
func (stalled) Watch(string) (<-chan struct{}, func()) { return nil, func() {} }

// listed is a work list that always returns the same sends: those that wait for a watermark, and
// others.
type listed struct{ waiting, others []work.Send }

func (l listed) Confirmable(context.Context, int) ([]work.Send, error) { return l.others, nil }

func (l listed) Searchable(
	_ context.Context, after, upTo eventstore.Position, limit int,
) (position eventstore.Position, err error) {
	for _, s := range l.waiting[:min(limit, len(l.waiting))] {
		if s.Position > after && s.Position <= upTo {
			position = max(position, s.Position)
		}
	}
	return position, nil
}

func (l listed) Unsearchable(_ context.Context, lagging eventstore.Position, _ int) (sends []work.Send, err error) {
	for _, s := range l.waiting {
		if s.Position > lagging {
			sends = append(sends, s)
		}
	}
	return sends, nil
}

// confirming is a confirmer on a list, with a clock and projections that a test controls.
type confirming struct {
	*Confirmer
	b        *fixture
	clock    time.Time
	indexErr error
	progress stalled
}

func newConfirming(b *fixture, list listed, progress stalled) *confirming {
	c := &confirming{b: b, clock: at, progress: progress}
	c.Confirmer = &Confirmer{
		Journal: b.Journal, Sends: list, Progress: progress, Logger: b.Logger,
		IndexErr: func(context.Context) error { return c.indexErr },
		Now:      func() time.Time { return c.clock }, ended: make(map[uuid.UUID]eventstore.Position),
	}
	return c
}

func (c *confirming) mustRound() (worked bool) {
	c.b.t.Helper()
	worked, err := c.round(c.b.t.Context())
	runtest.Must(c.b.t, err)
	return worked
}

func (c *confirming) want(name string, types ...string) {
	c.b.t.Helper()
	c.mustRound()
	facts, err := c.b.Journal.ReadFrom(c.b.t.Context(), name, 0)
	runtest.Must(c.b.t, err)
	var got []string
	for _, f := range facts {
		got = append(got, f.Type)
	}
	if strings.Join(got, " ") != strings.Join(types, " ") {
		c.b.t.Errorf("events of %s %v, want %v", name, got, types)
	}
}

// marks returns the positions of all watermarks.
func (b *fixture) marks() []uint64 {
	b.t.Helper()
	facts, err := b.Journal.ReadFrom(b.t.Context(), stream.Pipeline, 0)
	runtest.Must(b.t, err)
	var marks []uint64
	for _, f := range facts {
		marks = append(marks, f.Event.(*pipeline.Searchable).Position)
	}
	return marks
}

func (b *fixture) wantMarks(t *testing.T, when string, want ...uint64) {
	t.Helper()
	if got := b.marks(); !slices.Equal(got, want) {
		t.Errorf("%s: watermarks %v, want %v", when, got, want)
	}
}

func sendAt(position eventstore.Position) work.Send {
	return work.Send{ProjectID: uuid.New(), IngestionID: uuid.New(), Position: position}
}

func streamOf(s work.Send) string { return stream.Name(stream.Ingestion, s.IngestionID) }

// A send waits for the index as long as the index may come back, and then stops with its reason;
// its own failure ends it at once.
func TestConfirmer_WaitsForTheIndex(t *testing.T) {
	waits, fails, short := sendAt(10), sendAt(10), sendAt(10)
	fails.Failure = &work.Failure{Code: ingestion.ModelUnavailable, Message: "no answer"}
	list := listed{[]work.Send{waits}, []work.Send{fails, short}}
	progress := stalled{projection.DataPoints: 5, projection.Memories: 20, projection.RecallIndex: 9}
	c := newConfirming(newFixture(t, "text"), list, progress)
	c.want(streamOf(fails), "ingestion.failed.v1")
	c.want(streamOf(waits))
	c.indexErr = errors.New("disk full")
	c.want(streamOf(waits))
	c.clock = c.clock.Add(indexTimeout)
	c.want(streamOf(waits)) // within the time limit
	c.indexErr = nil
	c.want(streamOf(waits)) // the index came back: the time limit starts again
	c.indexErr = errors.New("disk full")
	c.want(streamOf(waits))
	c.clock = c.clock.Add(indexTimeout + time.Second)
	for _, send := range []work.Send{waits, short} {
		c.want(streamOf(send), "ingestion.failed.v1")
		facts, err := c.b.Journal.ReadFrom(t.Context(), streamOf(send), 0)
		if err != nil || facts[0].Event.(*ingestion.Failed).Code != ingestion.IndexUnavailable {
			t.Errorf("it stopped with %+v, %v", facts, err)
		}
	}
	if marks := c.b.marks(); len(marks) > 0 {
		t.Errorf("watermarks %v below what is searchable", marks)
	}

	// Once the index is back, each waiting send ends once: by a watermark, or by itself if it lost
	// a data point.
	other := sendAt(10)
	c.Sends, c.indexErr = listed{[]work.Send{sendAt(10)}, []work.Send{other}}, nil
	c.progress[projection.RecallIndex] = 10
	for range 2 {
		c.want(streamOf(other), "ingestion.indexed.v1")
		c.b.wantMarks(t, "the index is back", 10)
	}
}

// A watermark covers the searchable part of what waits. While the list does not show the effect of the
// last one, only sends after that count.
func TestConfirmer_Watermarks(t *testing.T) {
	b := newFixture(t, "text")
	list := listed{waiting: []work.Send{sendAt(10), sendAt(20), sendAt(30)}}
	c := newConfirming(b, list, stalled{projection.DataPoints: 0, projection.Memories: 30, projection.RecallIndex: 25})
	steps := []struct {
		name   string
		change func()
		worked bool
		want   []uint64
	}{
		{"at first", func() {}, true, []uint64{20}},
		{"the list is old, and a later send is searchable", func() {
			c.progress[projection.RecallIndex] = 40
		}, true, []uint64{20, 30}},
		{"the list is old", func() {}, false, []uint64{20, 30}},
		{"the list shows it", func() {
			c.Sends, c.progress[projection.DataPoints] = listed{}, 1<<40
		}, false, []uint64{20, 30}},
		{"the memories are behind", func() {
			c.Sends, c.progress[projection.Memories] = listed{waiting: []work.Send{sendAt(35)}}, 34
		}, false, []uint64{20, 30}},
		{"nothing waits", func() { c.Sends, c.progress[projection.Memories] = listed{}, 40 }, false, []uint64{20, 30}},
		{"one waits behind the last, which was set aside", func() {
			c.Sends = listed{waiting: []work.Send{sendAt(5)}}
		}, true, []uint64{20, 30, 30}},
		{"the index is built again", func() { c.progress[projection.RecallIndex] = 29 }, false, []uint64{20, 30, 30}},
	}
	for _, step := range steps {
		c.clock = c.clock.Add(time.Second)
		step.change()
		if worked := c.mustRound(); worked != step.worked {
			t.Errorf("%s: worked is %v", step.name, worked)
		}
		b.wantMarks(t, step.name, step.want...)
	}
}

// Each watermark ends a bounded number of sends.
func TestConfirmer_WatermarkOfManySends(t *testing.T) {
	b, list := newFixture(t, "text"), listed{}
	for n := range watermarkSize + 1 {
		list.waiting = append(list.waiting, sendAt(eventstore.Position(n+1)))
	}
	applied := stalled{projection.DataPoints: 1 << 40, projection.Memories: 1 << 40, projection.RecallIndex: 1 << 40}
	c := newConfirming(b, list, applied)
	c.mustRound()
	b.wantMarks(t, "after a round", watermarkSize)
}

// Two processes read the watermarks of each other, so no watermark is below the one before it.
func TestConfirmer_TwoProcesses(t *testing.T) {
	b := newFixture(t, "text")
	far := stalled{projection.DataPoints: 1 << 40, projection.Memories: 1 << 40, projection.RecallIndex: 1 << 40}
	one := newConfirming(b, listed{waiting: []work.Send{sendAt(10)}}, far)
	two := newConfirming(b, listed{waiting: []work.Send{sendAt(20)}}, far)
	two.mustRound()
	one.watermark = watermark{known: true, revision: eventstore.NoStream} // it read before the other appended
	if !one.mustRound() {
		t.Error("after a conflict it does not look again")
	}
	b.wantMarks(t, "after a conflict", 20)
	one.mustRound()
	two.mustRound()
	two.mustRound()
	marks := b.marks()
	if len(marks) != 3 || !slices.IsSorted(marks) {
		t.Errorf("watermarks %v", marks)
	}
}

// After a process that dies at a watermark, or does not learn its result, the next process
// continues.
func TestConfirmer_DiesAtAWatermark(t *testing.T) {
	for _, stored := range []bool{false, true} {
		b := newFixture(t, "text")
		far := stalled{projection.DataPoints: 1 << 40, projection.Memories: 1 << 40, projection.RecallIndex: 1 << 40}
		list := listed{waiting: []work.Send{sendAt(10)}}
		dying := newConfirming(b, list, far)
		dying.mustRound()
		dying.Journal = engine.NewJournal((&victim{stored: stored}).over(b.Journal.Store), b.Journal.Codec, b.Logger)
		if _, err := dying.round(t.Context()); !errors.Is(err, errDied) {
			t.Fatalf("the store died: %v", err)
		}
		left := b.marks()
		if stored != (len(left) == 2) {
			t.Fatalf("stored %t: watermarks %v", stored, left)
		}
		next := newConfirming(b, listed{}, far)
		next.mustRound()
		b.wantMarks(t, "nothing waits", left...)
		next.Sends = listed{waiting: []work.Send{sendAt(20)}}
		next.mustRound()
		b.wantMarks(t, "another waits", append(left, 20)...)
	}
}

// Watermarks are few, however much waits: some at once after a pause, and then four a second.
func TestConfirmer_WatermarksAreFew(t *testing.T) {
	list := listed{waiting: []work.Send{sendAt(10)}}
	applied := stalled{projection.DataPoints: 1 << 40, projection.Memories: 10, projection.RecallIndex: 10}
	c := newConfirming(newFixture(t, "text"), list, applied)
	for range 200 {
		if !c.mustRound() {
			t.Fatal("it does not look again though something waits")
		}
		c.clock = c.clock.Add(50 * time.Millisecond)
	}
	if n := len(c.b.marks()); n < 40 || n > 44 {
		t.Errorf("%d watermarks in 10 s", n)
	}
	c.clock = c.clock.Add(-time.Hour) // the clock is set back
	if before := len(c.b.marks()); !c.mustRound() || len(c.b.marks()) != before+1 {
		t.Error("a clock that was put back holds watermarks up")
	}
}

// A decision about one round of a send is not stored after a later retry. A decision about the
// retried round is.
func TestConfirmer_FailureOfAnEarlierRound(t *testing.T) {
	b := newFixture(t, "text")
	send := sendAt(10)
	send.Failure = &work.Failure{Code: ingestion.ModelUnavailable, Message: "no answer"}
	c := newConfirming(b, listed{others: []work.Send{send}}, stalled{})
	c.want(streamOf(send), "ingestion.failed.v1")
	retry := func(round int) {
		t.Helper()
		last, _, err := b.Journal.Last(t.Context(), streamOf(send))
		if err == nil {
			_, err = b.Journal.Append(t.Context(), streamOf(send), last.Revision, event.NewMeta("test", time.Now()),
				ingestion.Retried{ProjectID: send.ProjectID, Round: round})
		}
		runtest.Must(t, err)
	}
	retry(1)
	clear(c.ended) // as in another process, whose list is old
	c.want(streamOf(send), "ingestion.failed.v1", "ingestion.retried.v1")
	if len(c.ended) > 0 {
		t.Error("it takes the send for ended")
	}
	send.Round = 1
	c.Sends = listed{others: []work.Send{send}}
	c.want(streamOf(send), "ingestion.failed.v1", "ingestion.retried.v1", "ingestion.failed.v1")
	retry(2)
	clear(c.ended)
	c.want(streamOf(send), "ingestion.failed.v1", "ingestion.retried.v1", "ingestion.failed.v1", "ingestion.retried.v1")
}

// sendRows returns the rows of all sends, without the positions of erased text.
func (w *harness) sendRows() []string {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `select (to_jsonb(s) - 'position')::text from datapoints.sends s order by s.id`)
	runtest.Must(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(w.t, err)
	return list
}

func (w *harness) phaseOf(send uuid.UUID) string {
	w.t.Helper()
	s, _, err := w.queries.Send(w.t.Context(), w.call.Principal.Project, send)
	runtest.Must(w.t, err)
	return s.Phase
}

// indexedAlone reports whether the stream of a send itself records that it is indexed.
func (w *harness) indexedAlone(send uuid.UUID) bool {
	w.t.Helper()
	last, _, err := w.log.Last(w.t.Context(), stream.Name(stream.Ingestion, send))
	runtest.Must(w.t, err)
	_, is := last.Event.(*ingestion.Indexed)
	return is
}

// The effect of watermarks outlives the streams of erased data points: a rebuilt projection has the
// same rows. A send that lost something before it was searchable ends by itself.
func TestErasedSends_SearchableSince(t *testing.T) {
	w := newIdleHarness(t)
	w.derive()
	ingest := func(id string) uuid.UUID { return w.ingestBatch(item(id, "Ana likes "+id)) }
	batch := func(one, two string) uuid.UUID {
		return w.ingestBatch(item(one, "Bo likes "+one), item(two, "Cy likes "+two))
	}
	halved := batch("halved one", "halved two")
	w.until("the batch is captured", func() bool { return w.phaseOf(halved) == "captured" })
	w.remove("halved one")
	w.confirm()
	sends := []uuid.UUID{
		halved, ingest("single"), batch("half one", "half two"),
		batch("whole one", "whole two"), batch("kept one", "kept two"),
	}
	for _, send := range sends {
		w.until("all is completed", func() bool { return w.phaseOf(send) == "indexed" })
	}
	for _, send := range sends {
		if alone := w.indexedAlone(send); alone != (send == halved) {
			t.Errorf("a send has an event of its own: %t", alone)
		}
	}
	w.remove("single")
	w.remove("half one")
	w.remove("whole one", "whole two")
	want := w.sendRows()
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 4 || done.Left.Deletions != 0 {
		t.Fatalf("erased %+v, %v", done, err)
	}
	for _, id := range []string{"halved one", "single", "half one", "whole one"} {
		name := w.pointName(id)
		w.wantEnded(t, name)
	}
	if diff := cmp.Diff(want, w.sendRows()); diff != "" {
		t.Errorf("the erasure changes sends (-before +after):\n%s", diff)
	}
	runtest.Must(t, w.runtime.Rebuild(t.Context(), datapoints.Name, nil))
	if diff := cmp.Diff(want, w.sendRows()); diff != "" {
		t.Errorf("after a rebuild, sends differ (-before +after):\n%s", diff)
	}
	if n := strings.Count(strings.Join(want, " "), `"searchable_at": "`); n != 4 {
		t.Errorf("%d sends are searchable since a watermark", n)
	}
}
