package commands_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// between is a store that calls a function once, before the first append to a stream of a category.
type between struct {
	eventstore.Store
	category string
	once     *sync.Once
	do       func()
}

func (b between) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if stream.Category(name) == b.category {
		b.once.Do(b.do)
	}
	return b.Store.Append(ctx, name, expected, events)
}

// revisions counts the revisions of the data points as the monthly cap does.
func (w *fixture) revisions(ids ...string) (n int) {
	for _, id := range ids {
		for _, f := range w.history(id) {
			if _, is := f.Event.(*datapoint.RevisionAccepted); is {
				n++
			}
		}
	}
	return n
}

// A batch that changes nothing reserves nothing, so it must not create a revision, even if another
// process changes its data points between the decision and the end of the fan-out. The other
// process uses the cap up.
func TestCap_UnchangedBatchRacesWithAChange(t *testing.T) {
	team := func(w *fixture) {
		put := commands.AudiencePut{Slug: "team", Kind: "fixed", Identities: []string{"ana"}}
		if _, err := w.PutAudience(t.Context(), w.call, put); err != nil {
			t.Fatal(err)
		}
	}
	to := func(slug string) func(*commands.DataPoint) {
		return func(in *commands.DataPoint) { in.Audience = &slug }
	}
	for _, c := range []struct {
		name string
		// when the other process changes the data points: before an append of the batch to this category
		before  string
		change  []func(*commands.DataPoint) // to the items of the batch
		crash   bool                        // the process of the batch dies after its commit, and another one completes it
		outcome string
	}{
		{"before its commit", stream.Ingestion, nil, false, ingestion.Unchanged},
		{"before its first item", stream.DataPoint, nil, false, ingestion.Unchanged},
		{"before its commit, and it moves", stream.Ingestion, []func(*commands.DataPoint){to("team")}, false, ingestion.Moved},
		{"before another process ends it", stream.Ingestion, nil, true, ingestion.Unchanged},
		{"before another process ends it, and it moves", stream.Ingestion, []func(*commands.DataPoint){to("team")}, true, ingestion.Moved},
	} {
		t.Run(c.name, func(t *testing.T) {
			const points, most = 20, 40
			w, m := capped(t, most)
			team(w)
			ids := make([]string, points)
			old, changed := make([]commands.DataPoint, points), make([]commands.DataPoint, points)
			for i := range ids {
				ids[i] = fmt.Sprint("p", i)
				old[i], changed[i] = text(ids[i], "old", c.change...), text(ids[i], "new")
				w.ingest(text(ids[i], "old"), "")
			}
			store := eventstore.Store(between{w.store, c.before, &sync.Once{}, func() { w.batch(changed, "") }})
			if c.crash {
				d := &dying{Store: store}
				d.left.Store(2) // stage and commit
				store = d
			}
			other := fixtureOver(t, store)
			other.configure(func(c *commands.Config) { c.Limits = m })
			other.call = w.call
			r, err := other.IngestBatch(t.Context(), other.call, old, "key")
			if c.crash {
				if err == nil {
					t.Fatal("answered without a fan-out")
				}
				id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
				if err := w.log.ResumeBatch(t.Context(), id, w.call.ReceivedAt); err != nil {
					t.Fatal(err)
				}
				r, err = w.IngestBatch(t.Context(), w.call, old, "key")
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Unchanged == nil || !*r.Unchanged || r.Status != commands.StatusCompleted {
				t.Errorf("receipt %+v", r)
			}
			if n := w.revisions(ids...); n != most {
				t.Errorf("%d revisions, the cap is %d", n, most)
			}
			m.want(t, most, most*10)
			for _, id := range ids {
				facts := w.history(id)
				wantCommitOrder(t, facts)
				outcome, _ := datapoint.OutcomeOf(facts[len(facts)-1].Event)
				if outcome.Outcome != c.outcome {
					t.Errorf("%s ends as %s, want %s", id, outcome.Outcome, c.outcome)
				}
				if head := w.head(id); head.Content != datapoint.Digest([]byte("new")) || head.Revision != 2 {
					t.Errorf("%s: revision %d, %.8s", id, head.Revision, head.Content)
				}
			}
			// The next send is decided on the state that the other process left.
			if again := w.batch(changed, ""); again.Unchanged == nil {
				t.Errorf("what was sent last is not unchanged: %+v", again)
			}
			_, err = w.IngestBatch(t.Context(), w.call, old, "")
			wantFault(t, err, fault.CodeProjectCapReached)
		})
	}
}

// At a reached cap, a batch that changes nothing or only moves data points is accepted. A batch
// with a new revision is refused.
func TestCap_ReachedByAnUnchangedBatch(t *testing.T) {
	w, m := capped(t, 2)
	put := commands.AudiencePut{Slug: "team", Kind: "fixed", Identities: []string{}}
	if _, err := w.PutAudience(t.Context(), w.call, put); err != nil {
		t.Fatal(err)
	}
	team := "team"
	moved := func(in *commands.DataPoint) { in.Audience = &team }
	w.batch([]commands.DataPoint{text("a", "one"), text("b", "two")}, "")
	m.want(t, 2, 20)
	for name, items := range map[string][]commands.DataPoint{
		"unchanged": {text("a", "one"), text("b", "two")}, "moved": {text("a", "one", moved), text("b", "two", moved)}, "both": {text("a", "one", moved), text("b", "two")},
	} {
		if r := w.batch(items, ""); r.Unchanged == nil || !*r.Unchanged {
			t.Errorf("%s: receipt %+v", name, r)
		}
	}
	_, err := w.IngestBatch(t.Context(), w.call, []commands.DataPoint{text("a", "one"), text("b", "three")}, "")
	wantFault(t, err, fault.CodeProjectCapReached)
	m.want(t, 2, 20)
}
