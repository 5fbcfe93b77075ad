package reads_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
	readrecords "github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/internal/runtest"
)

// proved is the caller of a project whose reads are proved.
func proved() auth.Principal {
	p := caller
	p.Project.Reads = project.ReadsProved
	return p
}

// prove opens a read of a caller, shows texts and stores them.
func (f *fixture) prove(p auth.Principal, id uuid.UUID, texts ...readrecords.Shown) error {
	f.t.Helper()
	read, err := f.Open(f.t.Context(), p, id, noon)
	if err != nil {
		return err
	}
	read.Asked(readrecords.Recall, "ana", "what does ana drink?")
	if err = read.Show(f.t.Context(), readrecords.Recall, texts...); err == nil {
		err = read.Store(f.t.Context())
	}
	read.End(err == nil)
	return err
}

// An answer waits for its record, also for that of nothing found, and answers at once share appends.
func TestProve_TheRecordIsThereBeforeTheAnswer(t *testing.T) {
	f := newFixture(t)
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			id := uuid.New()
			var texts []readrecords.Shown
			if id[0]%2 == 0 {
				texts = append(texts, readrecords.Shown{Node: uuid.New()})
			}
			if err := f.prove(proved(), id, texts...); err != nil {
				t.Error(err)
			}
			if !slices.ContainsFunc(f.records(), func(r readrecords.Record) bool {
				return r.ID == id && r.Part == 0 && len(r.Shown) == len(texts)
			}) {
				t.Errorf("answered without the record of %s", id)
			}
		})
	}
	group.Wait()
	if n := len(f.records()); n != 40 {
		t.Errorf("%d records, want 40", n)
	}
	if n := f.Room().InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// gated is a store whose appends wait until a test lets them go on.
type gated struct {
	*away

	begun, goOn chan struct{}
}

func (s *gated) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	s.begun <- struct{}{}
	select {
	case <-s.goOn:
		return s.away.Append(ctx, name, at, events)
	case <-ctx.Done():
		return eventstore.Appended{}, ctx.Err()
	}
}

// Answers that come while an append is on its way share the next one. Another project does not wait for either.
func TestProve_SharesAppends(t *testing.T) {
	f := newFixture(t)
	store := &gated{f.store, make(chan struct{}), make(chan struct{})}
	f.Journal.Store = store
	other := proved()
	other.Project.ID = uuid.New()
	var group sync.WaitGroup
	begin := func(p auth.Principal) {
		group.Go(func() {
			if err := f.prove(p, uuid.New()); err != nil {
				t.Error(err)
			}
		})
	}
	begin(proved())
	<-store.begun
	for range 7 {
		begin(proved())
	}
	for f.Waiting(caller.Project.ID) < 8 {
		select {
		case <-t.Context().Done():
			t.Fatal("not all wait")
		case <-time.After(time.Millisecond):
		}
	}
	begin(other)
	<-store.begun // while the first one waits
	for range 2 {
		store.goOn <- struct{}{}
	}
	<-store.begun
	store.goOn <- struct{}{}
	group.Wait()
	var sizes []int
	events, err := f.journal.ReadFrom(t.Context(), streamName, 0)
	for _, e := range events {
		if batch, is := e.Event.(*readrecords.Recorded); is {
			sizes = append(sizes, len(batch.Records))
		}
	}
	if !slices.Equal(sizes, []int{1, 7}) || err != nil {
		t.Errorf("batches of %v, want 1 and 7; %v", sizes, err)
	}
}

// With the log away an answer is refused, and what it would have shown is not recorded later. An answer after that is
// given.
func TestProve_LogIsAway(t *testing.T) { synctest.Test(t, proveLogIsAway) }

func proveLogIsAway(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.Recorder)
	f.store.set(true)
	err := f.prove(proved(), uuid.New(), readrecords.Shown{Node: uuid.New()})
	if problem, is := errors.AsType[*fault.Error](err); !is || problem.Code != fault.CodeServiceUnavailable {
		t.Fatalf("answered with %v", err)
	}
	f.store.set(false)
	id := uuid.New()
	runtest.Must(t, f.prove(proved(), id, readrecords.Shown{Node: uuid.New()}))
	stop()
	if list := f.records(); len(list) != 1 || list[0].ID != id {
		t.Errorf("records %+v", list)
	}
	if n := f.Room().InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// Each part of a long answer is in the log before it goes on.
func TestProve_Parts(t *testing.T) { synctest.Test(t, proveParts) }

func proveParts(t *testing.T) {
	f := newFixture(t)
	read, err := f.Open(t.Context(), proved(), uuid.New(), noon)
	runtest.Must(t, err)
	want := 0
	for part := range 3 {
		texts := make([]readrecords.Shown, readlog.MaxShown+part)
		for i := range texts {
			texts[i].Node = uuid.New()
		}
		err := errors.Join(read.Show(t.Context(), readrecords.Export, texts...), read.Store(t.Context()),
			read.Store(t.Context())) // there is nothing more to store
		runtest.Must(t, err)
		want += len(texts)
		shown := 0
		for _, r := range f.records() {
			shown += len(r.Shown)
		}
		if shown != want {
			t.Errorf("%d texts are in the log, want %d", shown, want)
		}
	}
	f.store.set(true)
	runtest.Must(t, read.Show(t.Context(), readrecords.Export, make([]readrecords.Shown, 1)...))
	if err := read.Store(t.Context()); err == nil {
		t.Error("a part goes on without its record")
	}
	read.End(true)
	if n := f.Room().InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// An answer that is composed of others is stored once, as it was cut. What was done for it is undone if it cannot be
// given.
func TestProve_Composed(t *testing.T) { synctest.Test(t, proveComposed) }

func proveComposed(t *testing.T) {
	f := newFixture(t)
	left := readrecords.Shown{Node: uuid.New()}
	for _, isAway := range []bool{false, true} {
		read, err := f.Open(t.Context(), proved(), uuid.New(), noon)
		runtest.Must(t, err)
		read.Compose()
		undone := 0
		read.Unless(func() { undone++ })
		err = errors.Join(read.Show(t.Context(), readrecords.Recall, readrecords.Shown{Node: uuid.New()}, left),
			read.Store(t.Context()))
		runtest.Must(t, err)
		before := len(f.records())
		f.store.set(isAway)
		err = read.Cut(t.Context(), func(texts []readrecords.Shown) []readrecords.Shown { return texts[1:] })
		read.End(err == nil)
		list := f.records()
		if isAway {
			if err == nil || undone != 1 || len(list) != before {
				t.Errorf("given without its record: %v, undone %d times, %d records", err, undone, len(list))
			}
			continue
		}
		if err != nil || undone != 0 || before != 0 || len(list) != 1 || len(list[0].Shown) != 1 ||
			list[0].Shown[0].Node != left.Node {
			t.Errorf("records %+v, %d before, undone %d times, %v", list, before, undone, err)
		}
	}
}

// The record of an answer to which the clock was set back is refused: its day has left the log.
func TestProve_DayHasEnded(t *testing.T) {
	f := newFixture(t)
	runtest.Must(t, f.prove(proved(), uuid.New()))
	if _, err := f.store.Tombstone(t.Context(), streamName, 1); err != nil {
		t.Fatal(err)
	}
	if err := f.prove(proved(), uuid.New()); err == nil {
		t.Error("answered, and the record is lost")
	}
}
