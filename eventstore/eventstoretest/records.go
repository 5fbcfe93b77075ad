package eventstoretest

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Place is where the leaf of an event is.
type Place struct {
	Organization uuid.UUID
	Stream       string
	Revision     int64
	audit.Kept
}

// Ever returns every event that was ever stored, also what is removed, without the store's own.
func (m *Memory) Ever() []eventstore.Recorded {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []eventstore.Recorded
	for _, s := range m.streams {
		all = append(all, s.events...)
	}
	slices.SortFunc(all, func(a, b eventstore.Recorded) int { return int(a.Position) - int(b.Position) })
	return all
}

// CheckRecordsAtEnd checks at the end of a test that the log has the leaf of every event that was ever stored in it,
// once it is scavenged.
func CheckRecordsAtEnd(t *testing.T, m *Memory) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.Scavenge(context.Background()); err != nil {
			t.Error(err)
		}
		CheckRecords(t, m, m.Ever())
	})
}

// CheckRecords checks that a log has the leaf of every event that was ever stored in it: the event
// itself, or the record that was kept of it, at its place. Each record that is kept, also of an event
// that is still there, is that of an event. It returns of how many events records are kept.
func CheckRecords(t *testing.T, store eventstore.Store, ever []eventstore.Recorded) (kept int) {
	t.Helper()
	log := eventstore.Journal{Store: store, Codec: Codec(t)}
	organizations := organizationsIn(log, ever)
	stands, records := leavesIn(t, log)
	for _, r := range ever {
		if r.System() || !hasLeaf(r.Stream) {
			continue
		}
		places := records[r.Position]
		delete(records, r.Position)
		if len(places) == 0 {
			if !stands[r.Position] {
				t.Errorf("event %d of %s (%s) left the log without a record", r.Revision, r.Stream, r.Type)
			}
			continue
		}
		kept++
		organization := organizations(r)
		record, err := eventstore.DecodedEvent{Recorded: r, Event: eventstore.PassedOver{}}.Kept(organization)
		want := Place{organization, r.Stream, int64(r.Revision), record}
		for _, p := range places {
			if err != nil || p != want {
				t.Fatalf("the record of event %d of %s (%s) is %+v, want %+v, %v", r.Revision, r.Stream, r.Type, p, want, err)
			}
		}
	}
	for at, places := range records {
		t.Errorf("records at position %d, where no event was: %+v", at, places)
	}
	return kept
}

// leavesIn reads which events a log has that leaves can be computed of, and which records are kept.
func leavesIn(t *testing.T, log eventstore.Journal) (map[eventstore.Position]bool, map[eventstore.Position][]Place) {
	t.Helper()
	stands, records := map[eventstore.Position]bool{}, map[eventstore.Position][]Place{}
	keep := func(organization uuid.UUID, name string, from int64, list audit.KeptList) {
		for i, k := range list {
			at := eventstore.Position(k.Position)
			records[at] = append(records[at], Place{organization, name, from + int64(i), k})
		}
	}
	for _, r := range All(t, log.Store, 0) {
		if r.System() || !hasLeaf(r.Stream) {
			continue
		}
		if _, err := (eventstore.DecodedEvent{Recorded: r, Event: eventstore.PassedOver{}}).Kept(uuid.Nil); err != nil {
			t.Error(err)
		}
		stands[r.Position] = true
		switch e := log.Codec.DecodeRecorded(r).Event.(type) {
		case *audit.RecordsKept:
			keep(e.OrganizationID, e.Stream, e.From, e.Records)
		case *deletion.FactsKept:
			keep(e.OrganizationID, stream.Name(stream.DataPoint, e.DataPoint), e.From, e.Records)
			first := e.MemoriesTo - int64(len(e.MemoryRecords))
			keep(e.OrganizationID, stream.Name(stream.Memory, e.DataPoint), first, e.MemoryRecords)
		}
	}
	return stands, records
}

// hasLeaf reports whether the events of a stream have leaves. Those of a blob have none: its hash is in the event that
// refers to it.
func hasLeaf(name string) bool { return stream.Category(name) != stream.Blob }

// organizationsIn returns which organization each event belongs to.
func organizationsIn(log eventstore.Journal, events []eventstore.Recorded) func(eventstore.Recorded) uuid.UUID {
	ofProject := map[uuid.UUID]uuid.UUID{}
	for _, r := range events {
		if e, is := log.Codec.DecodeRecorded(r).Event.(*registry.ProjectCreated); is {
			ofProject[e.ProjectID] = e.OrganizationID
		}
	}
	return func(r eventstore.Recorded) uuid.UUID {
		organization, project := log.Codec.DecodeRecorded(r).LeafOwner()
		if project != uuid.Nil {
			return ofProject[project]
		}
		return organization
	}
}
