package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

// counted is a tally that counts how often it is asked for its categories.
type counted struct {
	tally
	asked *atomic.Int64
}

func (p counted) Categories() []string {
	p.asked.Add(1)
	return p.tally.Categories()
}

func TestApplyPage_DecidesOnceWhichEventsAreItsOwn(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int64
	apply := func(_ context.Context, page []eventstore.DecodedEvent) error {
		if len(page) > 2 {
			return errors.New("only two events fit") // so that the page is applied in halves
		}
		return nil
	}
	r := w.runtime(t, nil, counted{tally: tally{family: "apple", apply: apply}, asked: &asked}).runners[0]
	l, err := r.takeLease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.end()
	var events []eventstore.DecodedEvent
	for i := range 24 {
		name := "apple-1"
		if i%3 == 0 {
			name = "pear-1"
		}
		events = append(events, eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{
				Stream: name, Position: eventstore.Position(10 * (i + 1)), Type: "tally.added.v1", ID: uuid.New(),
			},
			Event: &added{N: 1},
		})
	}
	asked.Store(0)
	if err := r.applyPage(t.Context(), l, feed.Page{Next: 240, Events: events}); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != int64(len(events)) {
		t.Errorf("the categories were asked for %d times, want once for each of %d events", n, len(events))
	}
	w.wantTotals(t, "apples", total{"apple-1", 16, 16})
	if _, reached, _ := l.at(); reached != 240 {
		t.Errorf("the lease is at %d, want 240, the end of the page", reached)
	}
}

func TestPart_Cut(t *testing.T) {
	// The projector owns those at 20, 40 and 50.
	var events []eventstore.DecodedEvent
	for n := range 6 {
		at := eventstore.Position(10 * (n + 1))
		events = append(events, eventstore.DecodedEvent{Recorded: eventstore.Recorded{Position: at}})
	}
	at := []int{1, 3, 4}
	whole := part{after: 5, events: events, at: at}
	for _, i := range at {
		whole.own = append(whole.own, events[i])
	}
	for n := range len(at) + 1 {
		first, rest := whole.cut(n)
		for m := range len(rest.own) + 1 { // a rest is cut as the whole is
			middle, end := rest.cut(m)
			var got []eventstore.Position
			after := whole.after
			for _, p := range []part{first, middle, end} {
				if len(p.events) == 0 {
					continue
				}
				if p.after != after {
					t.Errorf("cut(%d) and cut(%d): a part begins after %d, want %d", n, m, p.after, after)
				}
				for i, own := range p.own {
					if is := p.events[p.at[i]-p.from].Position; is != own.Position {
						t.Errorf("cut(%d) and cut(%d): own event %d is at %d, want %d", n, m, i, is, own.Position)
					}
				}
				for _, f := range p.events {
					got = append(got, f.Position)
					after = f.Position
				}
			}
			if len(got) != len(events) || len(first.own) != n || len(middle.own) != m {
				t.Errorf("cut(%d) and cut(%d) have %d events, of them %d and %d own; want %d, %d and %d",
					n, m, len(got), len(first.own), len(middle.own), len(events), n, m)
			}
		}
	}
}
