package feed_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

func TestNack_SamePageAgain(t *testing.T) {
	r := newFixture(t, nil)
	r.append(3)
	messages := r.subscribe(r.ctx, "access")
	msg, first := r.take(messages)
	msg.Nack()
	r.append(1)
	for range 3 {
		msg, again := r.take(messages)
		if again.After != first.After || again.Next != first.Next || len(again.Events) != 3 {
			t.Fatalf("page after %d up to %d, want after %d up to %d", again.After, again.Next, first.After, first.Next)
		}
		if msg.Context().Err() != nil {
			t.Error("the message has ended before it was answered")
		}
		msg.Nack()
	}
	if again := r.ack(messages); again.Next != first.Next {
		t.Errorf("page up to %d, want %d", again.Next, first.Next)
	}
	if next := r.ack(messages); next.After != first.Next || len(next.Events) != 1 {
		t.Errorf("page after %d with %d events, want after %d with 1", next.After, len(next.Events), first.Next)
	}
	if r.asked["access"] != 1 {
		t.Errorf("the checkpoint was read %d times", r.asked["access"])
	}
}

func TestRewind_ContinuesFromCheckpoint(t *testing.T) {
	r := newFixture(t, nil)
	for range 3 {
		r.append(600)
	}
	messages := r.subscribe(r.ctx, "access")
	var built reader
	for range 2 {
		if err := built.apply(r.ack(messages)); err != nil {
			t.Fatal(err)
		}
	}
	// The database fell back to the first page.
	fallen := reader{ids: slices.Clone(built.ids[:512])}
	fallen.at = r.positionOf(fallen.ids[511])
	r.setCheckpoint("access", fallen.at)
	msg, page := r.take(messages)
	if page.After != built.at {
		t.Fatalf("page after %d, want %d", page.After, built.at)
	}
	feed.Rewind(msg)
	msg.Nack()
	for len(fallen.ids) < 1800 {
		if err := fallen.apply(r.ack(messages)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(r.written(), fallen.ids); diff != "" {
		t.Error(diff)
	}
	// And once more at the head, where pages come from the shared subscription.
	r.append(5)
	at := fallen.at
	msg, _ = r.take(messages)
	r.setCheckpoint("access", 0)
	feed.Rewind(msg)
	msg.Nack()
	if page := r.ack(messages); page.After != 0 || len(page.Events) != feed.PageEvents {
		t.Errorf("page after %d (head was %d) with %d events", page.After, at, len(page.Events))
	}
}

func TestRewind_BeforeAck(t *testing.T) {
	r := newFixture(t, nil)
	messages := r.subscribe(r.ctx, "access")
	r.append(1)
	msg, page := r.take(messages)
	feed.Rewind(msg)
	msg.Ack()
	r.append(1)
	if next := r.ack(messages); next.After != page.Next {
		t.Errorf("page after %d, want %d", next.After, page.Next)
	}
}

func (r *fixture) positionOf(id uuid.UUID) eventstore.Position {
	r.Helper()
	for after := eventstore.Position(0); ; {
		page, err := r.memory.ReadAll(r.ctx, after, 1000)
		if err != nil || len(page) == 0 {
			r.Fatalf("event %s is not in the log: %v", id, err)
		}
		for _, e := range page {
			if e.ID == id {
				return e.Position
			}
		}
		after = page[len(page)-1].Position
	}
}
