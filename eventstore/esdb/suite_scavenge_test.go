package esdb_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// conformsInScavenge checks that a scavenge of a store removes from the log what was deleted, and nothing else. The
// last event of a deleted stream stays, since the stream may continue.
func conformsInScavenge(t *testing.T, store eventstore.Store, scavenge func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	b := &fixture{T: t, ctx: ctx, store: store}
	before := b.head()
	var want []uuid.UUID
	write := func(events []eventstore.Proposed, left int) string {
		name := b.stream()
		b.append(name, eventstore.NoStream, events...)
		want = append(want, ids(events[len(events)-left:])...)
		return name
	}
	whole, truncated, deleted, ended := write(events(3), 3), write(events(3), 1), write(events(3), 1), write(events(3), 0)
	continued, later := write(events(3), 0), events(2)
	if err := store.Truncate(ctx, truncated, 2); err != nil {
		t.Fatal(err)
	}
	b.delete(deleted, 2)
	if _, err := store.Tombstone(ctx, ended, 2); err != nil {
		t.Fatal(err)
	}
	b.delete(continued, 2)
	b.append(continued, 2, later...)
	want = append(want, ids(later)...)
	if err := scavenge(ctx); err != nil {
		t.Fatal(err)
	}
	var left []uuid.UUID
	for _, r := range eventstoretest.All(t, store, before) {
		if !r.System() {
			left = append(left, r.ID)
		}
	}
	if !slices.Equal(left, want) {
		t.Errorf("the log has %d events, want %d: %v, %v", len(left), len(want), left, want)
	}
	b.empty(deleted)
	if len(b.all(whole)) != 3 || len(b.all(truncated)) != 1 || len(b.all(continued)) != 2 {
		t.Errorf("streams have %d, %d and %d events", len(b.all(whole)), len(b.all(truncated)), len(b.all(continued)))
	}
	if after := b.head(); after <= before {
		t.Errorf("the head went from %d to %d", before, after)
	}
	b.append(whole, 2, noted("after"))
}
