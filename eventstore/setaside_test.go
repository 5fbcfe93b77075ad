package eventstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// A journal passes over what is set aside and cannot be read, and goes on at the end of the stream.
func TestJournal_PassesOver(t *testing.T) {
	store, codec := eventstoretest.NewMemory(), eventstoretest.Codec(t)
	j := eventstore.Journal{Store: store, Codec: codec, Aside: eventstore.NewSetAside(store, codec)}
	meta := event.NewMeta("test", time.Now())
	odd := func(name string, at eventstore.Revision, typ string) eventstore.Position {
		t.Helper()
		done, err := store.Append(t.Context(), name, at,
			[]eventstore.Proposed{{ID: uuid.New(), Type: typ, Data: []byte(`[]`), Meta: []byte(`{}`)}})
		runtest.Must(t, err)
		return done.Position
	}
	if last, ok, err := j.Last(t.Context(), stream.Pipeline); ok || err != nil || last.Revision != eventstore.NoStream {
		t.Errorf("without events the last is %+v, %t, %v", last, ok, err)
	}
	first := odd(stream.Pipeline, eventstore.NoStream, "pipeline.searchable.v1")
	if _, _, err := j.Last(t.Context(), stream.Pipeline); !isUnreadable(err) {
		t.Errorf("an event that is not set aside is read: %v", err)
	}
	next := eventstore.NoStream
	setAside := func(at eventstore.Position) {
		t.Helper()
		m := meta
		m.CommandID = uuid.New()
		done, err := j.Append(t.Context(), stream.Registry, next, m,
			registry.EventSetAside{Position: uint64(at), Projections: []string{"one"}})
		runtest.Must(t, err)
		next = done.Revision
	}
	setAside(first)
	if last, ok, err := j.Last(t.Context(), stream.Pipeline); ok || err != nil || last.Revision != 0 {
		t.Errorf("with nothing that can be read the last is %+v, %t, %v", last, ok, err)
	}
	if _, err := j.Append(t.Context(), stream.Pipeline, 0, meta, pipeline.Searchable{Position: 7}); err != nil {
		t.Fatal(err)
	}
	setAside(odd(stream.Pipeline, 1, "pipeline.unheard-of.v9"))
	last, ok, err := j.Last(t.Context(), stream.Pipeline)
	if e, is := last.Event.(*pipeline.Searchable); !ok || err != nil || !is || e.Position != 7 || last.Revision != 2 {
		t.Errorf("the last is %+v, %t, %v", last, ok, err)
	}
	all, err := j.ReadFrom(t.Context(), stream.Pipeline, 0)
	if err != nil || len(all) != 3 || !all[0].IsPassedOver() || all[1].IsPassedOver() || !all[2].IsPassedOver() {
		t.Errorf("all are %+v, %v", all, err)
	}
	// A decision that nobody can read decides nothing, and may be set aside itself.
	malformed := odd(stream.Registry, next, registry.EventSetAside{}.EventType())
	next++
	if err := j.Aside.Refresh(t.Context()); err != nil || len(j.Aside.All()) != 2 {
		t.Errorf("set aside are %v, %v", j.Aside.All(), err)
	}
	setAside(malformed)
	if _, err := j.ReadFrom(t.Context(), stream.Registry, 0); err != nil {
		t.Error(err)
	}
	if _, err := all[0].Kept(uuid.New()); err != nil {
		t.Errorf("an event without salt and time that is passed over has no record: %v", err)
	}
}

func isUnreadable(err error) bool {
	_, is := errors.AsType[*eventstore.UnreadableError](err)
	return is
}
