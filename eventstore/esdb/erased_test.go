package esdb_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// TestRead_AfterErasedEvents has the node remove the events of a tombstoned stream from the log,
// and with them positions that readers have reached.
func TestRead_AfterErasedEvents(t *testing.T) {
	store, ctx := open(t, startNode(t), 1), within(t, hangLimit)
	append := func(stream string, expected eventstore.Revision) eventstore.Appended {
		t.Helper()
		events := oneEvent()
		events[0].ID = uuid.New()
		done, err := store.Append(ctx, stream, expected, events)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	append("before-1", eventstore.NoStream)
	gone := append("gone-1", eventstore.NoStream)
	end, err := store.Tombstone(ctx, "gone-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, there, err := store.ReadAt(ctx, gone.Position); err != nil {
			t.Fatal(err)
		} else if !there {
			break
		}
	}
	if head, err := store.Head(ctx); err != nil || head < end {
		t.Errorf("head is %d, %v; the tombstone is at %d", head, err, end)
	}
	after := append("after-1", eventstore.NoStream)
	want := []eventstore.Position{end, after.Position}
	events, err := store.ReadAll(ctx, gone.Position, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || events[0].Position != want[0] || events[1].Position != want[1] {
		t.Errorf("after %d: %+v, want what is at %v", gone.Position, events, want)
	}
	sub, err := store.Subscribe(ctx, gone.Position)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, at := range want {
		r, err := sub.Next(ctx)
		if err != nil || r.Position != at {
			t.Errorf("got %+v, %v; want what is at %d", r, err, at)
		}
	}
}
