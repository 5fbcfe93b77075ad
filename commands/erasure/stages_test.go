package erasure_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// Each stage leaves to the next what is its own. What a neighbour has, in the same project or another, stays.
func TestErasure_StagesInTheirOrder(t *testing.T) {
	w := newWorld(t)
	ids := w.remember(w.own, "one", "two")
	neighbours := append(w.remember(w.own, "three"), w.remember(w.other, "one")...)
	kept := w.streamsOf(neighbours...)
	before := w.contents(kept)
	d := w.forget(w.own, "one", "two")
	e, report := w.eraser(nil), erasure.Report{}

	w.must(e.RetainAll(t.Context()))
	want(t, "events once facts are retained", w.typesOf(d.ID), []string{accepted, fannedOut, facts, facts})
	w.wantErased(false, ids...)
	events, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Deletion, d.ID), 2)
	w.must(err)
	for _, f := range events {
		part := f.Event.(*deletion.FactsKept)
		if len(part.Facts) != 1 || part.Facts[0].Bytes < blob.InlineLimit || !part.Facts[0].SearchableAt.Equal(w.now) ||
			len(part.Records) != 2 || len(part.MemoryRecords) != 1 || len(part.Blobs) != 1 || !part.Complete {
			t.Errorf("the facts are %+v", part)
		}
	}

	round, err := e.TombstoneAll(t.Context(), &report)
	w.must(err)
	w.wantErased(true, ids...)
	if report.Streams != 6 || round.IsEmpty() || len(w.did) > 0 {
		t.Errorf("%d streams are tombstoned, then %v", report.Streams, w.did)
	}

	w.must(e.Purge(t.Context(), round, &report))
	want(t, "what is purged", w.take(), []string{"blank calls", "vacuum", "purge index", "scavenge"})
	want(t, "events once all is purged", w.typesOf(d.ID), []string{accepted, fannedOut, facts, facts})

	w.must(e.RecordAll(t.Context(), round, &report))
	want(t, "events at the end", w.typesOf(d.ID), []string{accepted, fannedOut, facts, facts, cleaned})
	if report.Deletions != 1 || report.Tables != 3 || report.Indexes != 1 || report.Store != erasure.StoreScavenged {
		t.Errorf("the report is %+v", report)
	}

	if report, err := w.round(e); err != nil || report.Deletions+report.Streams > 0 || len(w.did) > 0 {
		t.Errorf("another round: %+v, %v, %v", report, w.did, err)
	}
	want(t, "what the neighbours have", w.contents(kept), before)
}

// A process dies at any of its writes, stored or not. Others complete what it left, and store nothing twice.
func TestErasure_DiesAtEachWrite(t *testing.T) {
	for _, stored := range []bool{false, true} {
		deaths := 0
		for died := true; died; deaths++ {
			died = dies(t, deaths, stored)
		}
		if deaths < 12 { // two parts of facts in an append, six tombstones, the end
			t.Errorf("a round has %d writes", deaths)
		}
	}
}

// dies erases with a process that dies after some writes, and then with another. It reports whether the first died.
func dies(t *testing.T, after int, stored bool) (died bool) {
	t.Helper()
	write := after + 1
	w := newWorld(t)
	ids := w.remember(w.own, "one", "two")
	single := w.remember(w.own, "three")
	neighbours := append(w.remember(w.own, "four"), w.remember(w.other, "one")...)
	kept := w.streamsOf(neighbours...)
	before := w.contents(kept)
	d, one := w.forget(w.own, "one", "two"), w.forget(w.own, "three")
	store := &hooked{Memory: w.memory, hook: func(string) (bool, error) {
		if after--; after >= 0 {
			return true, nil
		}
		first := !died
		died = true
		return first && stored, errDied
	}}
	if _, err := w.round(w.eraser(store)); died != (err != nil) {
		t.Errorf("at write %d the process died: %t, but its round ended with %v", write, died, err)
	}
	if !died {
		return false
	}
	for range 2 { // facts that a crash left are retained in the first round
		_, err := w.round(w.eraser(nil))
		w.must(err)
	}
	w.wantErased(true, append(ids, single...)...)
	at := fmt.Sprintf(" after a death at write %d, stored %t", write, stored)
	want(t, "events of the deletion"+at, w.typesOf(d.ID), []string{accepted, fannedOut, facts, facts, cleaned})
	want(t, "events of the deletion of one"+at, w.typesOf(one.ID), []string{facts, cleaned})
	want(t, "what the neighbours have"+at, w.contents(kept), before)
	return true
}

// What cannot be purged is not recorded as cleaned. The next round tries it again, even of another process.
func TestErasure_FailedPurge(t *testing.T) {
	failure := errors.New("the disk is away")
	for _, step := range []string{"blank calls", "vacuum", "purge index", "scavenge"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.remember(w.own, "one")
			d := w.forget(w.own, "one")
			w.fails[step] = failure
			e := w.eraser(nil)
			for range 2 {
				if report, err := w.round(e); !errors.Is(err, failure) || report.Deletions > 0 {
					t.Errorf("the round ended with %v, and %d deletions", err, report.Deletions)
				}
				if did := w.take(); did[len(did)-1] != step {
					t.Errorf("it went on after %q: %v", step, did)
				}
			}
			want(t, "events while it fails", w.typesOf(d.ID), []string{facts})
			delete(w.fails, step)
			for _, e := range []*erasure.Eraser{e, w.eraser(nil)} {
				_, err := w.round(e)
				w.must(err)
			}
			want(t, "events at the end", w.typesOf(d.ID), []string{facts, cleaned})
			want(t, "what is purged, once", w.take(), []string{"blank calls", "vacuum", "purge index", "scavenge"})
		})
	}
}

// Nothing is retained while the projection of data points lags: it could miss facts. Nothing is purged while another
// one lags, since that could write what was purged again.
func TestErasure_ProjectionsLag(t *testing.T) {
	for lags, left := range map[string][]string{
		projection.DataPoints: nil, projection.RecallIndex: {facts}, projection.Directory: {facts}, "extra": {facts},
	} {
		t.Run(lags, func(t *testing.T) {
			w := newWorld(t)
			ids := w.remember(w.own, "one")
			d := w.forget(w.own, "one")
			w.lags = lags
			e := w.eraser(nil)
			e.ExtraProjections = []string{"extra"}
			if _, err := w.round(e); !errors.Is(err, errLag) {
				t.Errorf("the round ended with %v", err)
			}
			want(t, "events of the deletion", w.typesOf(d.ID), left)
			want(t, "what is purged", w.take(), nil)
			w.wantErased(left != nil, ids...)
			w.lags = ""
			_, err := w.round(e)
			w.must(err)
			want(t, "events at the end", w.typesOf(d.ID), []string{facts, cleaned})
		})
	}
}

// A deletion whose text may be somewhere else is recorded once nothing else has the text. Another deletion does not
// wait for it.
func TestErasure_WaitsForCopies(t *testing.T) {
	for name, hold := range map[string]func(w *world, dataPoint uuid.UUID) (release func()){
		"an unreferenced stage": func(w *world, id uuid.UUID) func() {
			w.copied[id] = true
			return func() { delete(w.copied, id) }
		},
		"rows that are deleted in slices": func(w *world, id uuid.UUID) func() {
			w.followed[id] = true
			return func() { delete(w.followed, id) }
		},
		"a batch that is not fanned out": func(w *world, id uuid.UUID) func() {
			w.batches = []work.Batch{{IngestionID: uuid.New(), DataPoints: []uuid.UUID{id}}}
			return func() { w.batches = nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ids := w.remember(w.own, "one", "two")
			waits, other := w.forget(w.own, "one"), w.forget(w.own, "two")
			release := hold(w, ids[0])
			e := w.eraser(nil)
			for n := range 2 {
				report, err := w.round(e)
				w.must(err)
				if report.Deletions != 1-n {
					t.Errorf("round %d recorded %d deletions", n, report.Deletions)
				}
			}
			w.wantErased(true, ids...)
			want(t, "events of what waits", w.typesOf(waits.ID), []string{facts})
			want(t, "events of another", w.typesOf(other.ID), []string{facts, cleaned})
			release()
			_, err := w.round(e)
			w.must(err)
			want(t, "events at the end", w.typesOf(waits.ID), []string{facts, cleaned})
		})
	}
}

// A deletion of what another one took has to wait until that has erased its part. Until then it is purged once.
func TestErasure_WaitsForAnother(t *testing.T) {
	w := newWorld(t)
	w.remember(w.own, "one", "two")
	var first work.Deletion
	var once sync.Once
	_, slow := w.process(&hooked{Memory: w.memory, hook: func(name string) (bool, error) {
		if stream.Category(name) == stream.Deletion { // it has decided, and commits
			once.Do(func() { first = w.forget(w.own, "one") })
		}
		return true, nil
	}})
	second := w.forgetBy(slow, w.own, "one", "two")
	w.taken[second.ID] = w.taken[second.ID][1:]
	all := w.deletions
	w.deletions = all[1:] // the list does not have the first yet
	e := w.eraser(nil)
	for n := range 2 {
		report, err := w.round(e)
		w.must(err)
		if did := w.take(); report.Deletions != 0 || (len(did) > 0) != (n == 0) {
			t.Errorf("round %d recorded %d deletions, and purged %v", n, report.Deletions, did)
		}
	}
	want(t, "events while it waits", w.typesOf(second.ID), []string{accepted, fannedOut, facts})
	w.deletions = all
	report, err := w.round(e)
	w.must(err)
	if report.Deletions != 2 {
		t.Errorf("%d deletions are recorded", report.Deletions)
	}
	want(t, "events of the first", w.typesOf(first.ID), []string{facts, cleaned})
	want(t, "events of the second", w.typesOf(second.ID), []string{accepted, fannedOut, facts, cleaned})
}

// A blob that was written until its data point ended is tombstoned before the purge, and so is the stage of an
// abandoned batch.
func TestErasure_LateBlobs(t *testing.T) {
	w := newWorld(t)
	ids := w.remember(w.own, "one")
	write := func(owner uuid.UUID) string {
		ref, err := w.log.WriteBlob(t.Context(), owner, uuid.New(), w.own.Principal.Project.ID, w.now.Add(blob.Keep),
			event.NewMeta("test", w.now), []byte("text"))
		w.must(err)
		return ref.Stream
	}
	late, stage, pending := write(ids[0]), write(uuid.New()), write(uuid.New())
	w.forget(w.own, "one")
	w.late = []string{late}
	w.batches = []work.Batch{{IngestionID: uuid.New(), Stage: stage, Abandoned: true, DataPoints: ids}}
	report, err := w.round(w.eraser(nil))
	w.must(err)
	if report.Deletions != 1 || !w.isErased(late) || !w.isErased(stage) || w.isErased(pending) {
		t.Errorf("%d deletions, erased are %t, %t and %t", report.Deletions, w.isErased(late), w.isErased(stage),
			w.isErased(pending))
	}
}

// The event store denies its user one stream. The other deletions go on, and this one once the right is back.
func TestErasure_DeniedStream(t *testing.T) {
	w := newWorld(t)
	ids := w.remember(w.own, "one", "two")
	denied, other := w.forget(w.own, "one"), w.forget(w.own, "two")
	name := stream.Name(stream.DataPoint, ids[0])
	may := false
	e := w.eraser(&hooked{Memory: w.memory, hook: func(of string) (bool, error) {
		if of == name && !may {
			return false, &eventstore.DeniedError{Stream: of, Err: eventstore.ErrDenied}
		}
		return true, nil
	}})
	report, err := w.round(e)
	if many := erasure.Denied(err); many == nil || many.Count != 1 || !errors.Is(err, eventstore.ErrDenied) ||
		report.Deletions != 1 {
		t.Errorf("%d deletions, %v", report.Deletions, err)
	}
	want(t, "events of what is denied", w.typesOf(denied.ID), []string{facts})
	want(t, "events of another", w.typesOf(other.ID), []string{facts, cleaned})
	may = true
	_, err = w.round(e)
	w.must(err)
	want(t, "events once it may", w.typesOf(denied.ID), []string{facts, cleaned})
	w.wantErased(true, ids...)
}

// A removed identity is truncated once the rows of bulk writes are complete, and recorded as cleared once no bulk
// write from before can bring anything back. The record of another project with the same name stays.
func TestErasure_Identities(t *testing.T) {
	w := newWorld(t)
	w.remember(w.own, "one")
	w.remember(w.other, "one")
	idOf := func(call engine.Call) uuid.UUID { return stream.IdentityID(call.Principal.Project.Namespace, "ana") }
	name, neighbour := stream.Name(stream.Identity, idOf(w.own)), []string{stream.Name(stream.Identity, idOf(w.other))}
	before := w.contents(neighbour)
	project := w.own.Principal.Project.ID
	w.append(name, identity.Removed{ProjectID: project, RemovedAt: w.now})
	last, _, err := w.log.Last(t.Context(), name)
	w.must(err)
	w.removals = []work.Removal{{
		ProjectID: project, IdentityID: idOf(w.own), Revision: last.Revision, RemovedAt: w.now, Position: last.Position,
	}}
	w.bulks = []work.Bulk{{ProjectID: project, ID: uuid.New(), Position: last.Position - 1}}

	e := w.eraser(nil)
	failure := errors.New("a row cannot be applied")
	w.fails["complete rows"] = failure
	if _, err := w.round(e); !errors.Is(err, failure) || len(w.contents([]string{name})[name]) != 2 {
		t.Errorf("%v, and it has the events %v", err, w.contents([]string{name})[name])
	}
	delete(w.fails, "complete rows")
	w.take()
	for n := range 2 {
		report, err := w.round(e)
		w.must(err)
		if report.Identities != 0 || (len(w.take()) > 0) != (n == 0) {
			t.Errorf("round %d cleared %d identities", n, report.Identities)
		}
		if events := w.contents([]string{name})[name]; len(events) != 1 {
			t.Errorf("it has the events %v", events)
		}
	}
	w.bulks = nil
	report, err := w.round(e)
	w.must(err)
	end, _, err := w.log.Last(t.Context(), name)
	w.must(err)
	cleared, is := end.Event.(*identity.Cleared)
	if report.Identities != 1 || !is || cleared.Removal != int64(last.Revision) {
		t.Errorf("%d identities are cleared, and it ends with %s", report.Identities, end.Type)
	}
	if report, err := w.round(w.eraser(nil)); err != nil || report.Identities != 0 {
		t.Errorf("another round: %d, %v", report.Identities, err)
	}
	want(t, "the record of the neighbour", w.contents(neighbour), before)
}

// A blob is swept once its deadline has passed and nothing refers to it. One that an event names stays.
func TestErasure_Sweep(t *testing.T) {
	w := newWorld(t)
	ids := w.remember(w.own, "one")
	ref, err := w.log.WriteBlob(t.Context(), ids[0], uuid.New(), w.own.Principal.Project.ID, w.now.Add(blob.Keep),
		event.NewMeta("test", w.now), []byte("text"))
	w.must(err)
	for _, name := range w.streamsOf(ids[0]) {
		if strings.HasPrefix(name, "blob-") { // the list is a hint, and has the blob of the data point too
			w.blobs = append(w.blobs, work.Blob{Stream: name, Owner: ids[0], Deadline: w.now.Add(blob.Keep)})
		}
	}
	if len(w.blobs) != 2 {
		t.Fatalf("the data point has the blobs %v", w.blobs)
	}
	e := w.eraser(nil)
	for _, at := range []struct {
		after time.Duration
		swept int
	}{{blob.Keep - time.Second, 0}, {blob.Keep, 1}, {blob.Keep + time.Hour, 0}} {
		swept, err := e.Sweep(t.Context(), w.now.Add(at.after))
		w.must(err)
		if swept != at.swept {
			t.Errorf("%d blobs are swept after %s", swept, at.after)
		}
	}
	for _, b := range w.blobs {
		if w.isErased(b.Stream) != (b.Stream == ref.Stream) {
			t.Errorf("erased is %t, of %s", w.isErased(b.Stream), b.Stream)
		}
	}
}
