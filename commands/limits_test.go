package commands_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// meter is a Limiter in memory. A reservation counts until it is released.
type meter struct {
	mu    sync.Mutex
	held  map[uuid.UUID]metering.Reservation // by try
	asked int
}

func (m *meter) Reserve(_ context.Context, r metering.Reservation, hold time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if hold < 20*time.Second {
		return fmt.Errorf("held for %s, which is less than a command may take", hold)
	}
	if _, twice := m.held[r.Try]; twice {
		return errors.New("one try reserves twice")
	}
	var used metering.Used
	for _, h := range m.held {
		used.Ingestions += h.Items
		used.ProjectTenths += h.CreditTenths
	}
	if err := r.Refuse(used, metering.Terms{}); err != nil {
		return err
	}
	m.held[r.Try] = r
	return nil
}

func (m *meter) Release(_ context.Context, _, try uuid.UUID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.held[try]; !ok {
		return errors.New("what is not held is released")
	}
	delete(m.held, try)
	return nil
}

// taken returns the reserved items and credits.
func (m *meter) taken() (items, tenths int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		items += h.Items
		tenths += h.CreditTenths
	}
	return items, tenths
}

func (m *meter) want(t *testing.T, items, tenths int64) {
	t.Helper()
	if gotItems, gotTenths := m.taken(); gotItems != items || gotTenths != tenths {
		t.Errorf("held are %d items for %d tenths, want %d for %d", gotItems, gotTenths, items, tenths)
	}
}

// capped returns a fixture whose project has a monthly cap of data points.
func capped(t *testing.T, items int64) (*fixture, *meter) {
	t.Helper()
	w := newFixture(t)
	m := &meter{held: map[uuid.UUID]metering.Reservation{}}
	w.configure(func(c *commands.Config) { c.Limits = m })
	w.call.Principal.Limits = metering.Caps{Plan: metering.SelfHosted, IngestionCap: &items}
	return w, m
}

func TestReserve_NoCap(t *testing.T) {
	w, m := capped(t, 1)
	w.call.Principal.Limits = metering.Caps{Plan: metering.SelfHosted}
	w.ingest(text("a", "one"), "")
	w.batch([]ingest.DataPoint{text("b", "two"), text("c", "three")}, "")
	if m.asked != 0 {
		t.Errorf("the limiter was called %d times", m.asked)
	}
}

func TestReserve_SingleSends(t *testing.T) {
	w, m := capped(t, 2)
	w.ingest(text("a", "one"), "key")
	m.want(t, 1, 10)
	// An unchanged send, a move and a repeated key reserve nothing, so the cap does not refuse them.
	w.ingest(text("a", "one"), "")
	w.ingest(text("b", string(make([]byte, 351))), "")
	m.want(t, 2, 30)
	for range 2 {
		if r := w.ingest(text("a", "one"), ""); r.Status != ingest.StatusCompleted {
			t.Errorf("receipt %+v", r)
		}
	}
	if r := w.ingest(text("a", "one"), "key"); r.Status != ingest.StatusQueued {
		t.Errorf("receipt of the repetition %+v", r)
	}
	m.want(t, 2, 30)

	_, err := w.Ingest(t.Context(), w.call, text("c", "three", by("ana")), "other key")
	wantFault(t, err, fault.CodeProjectCapReached)
	if got := w.types("c"); got != nil {
		t.Errorf("the refused send left %v", got)
	}
	author := stream.Name(stream.Identity, stream.IdentityID(w.call.Principal.Project.Namespace, "ana"))
	if facts, err := w.log.ReadFrom(t.Context(), author, 0); err != nil || len(facts) > 0 {
		t.Errorf("the refused send left its author: %v, %v", facts, err)
	}
	// A refused call does not use up its key.
	if r := w.ingest(text("a", "one"), "other key"); r.Status != ingest.StatusCompleted {
		t.Errorf("the key of a refused send answers %+v", r)
	}
}

func TestReserve_Batches(t *testing.T) {
	w, m := capped(t, 3)
	w.ingest(text("a", "one"), "")
	items := []ingest.DataPoint{text("a", "one"), text("b", "two"), text("c", string(make([]byte, 351)))}
	r := w.batch(items, "key")
	m.want(t, 3, 40)
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Ingestion, r.IngestionID), 0)
	runtest.Must(t, err)
	for i, want := range []int64{0, 10, 20} {
		if got := facts[0].Event.(*ingestion.Accepted).Items[i].CreditTenths; got != want {
			t.Errorf("item %d costs %d tenths, want %d", i, got, want)
		}
	}
	// The same key and an unchanged batch are free, and one item too many refuses all of them.
	w.batch(items, "key")
	if again := w.batch(items, ""); again.Unchanged == nil {
		t.Errorf("receipt %+v", again)
	}
	m.want(t, 3, 40)
	_, err = w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("a", "one"), text("d", "four", by("ana"))},
		"other key")
	wantFault(t, err, fault.CodeProjectCapReached)
	if got := w.types("d"); got != nil {
		t.Errorf("the refused batch left %v", got)
	}
	w.batch([]ingest.DataPoint{text("a", "one")}, "other key")
}

// The projection has not applied the last send. A batch that repeats that send still costs nothing.
func TestReserve_UnchangedBatchAndLateProjection(t *testing.T) {
	w, m := capped(t, 1)
	w.configure(func(c *commands.Config) { c.DataPoints = knowsNothing{} })
	w.ingest(text("a", "one"), "")
	if r := w.batch([]ingest.DataPoint{text("a", "one")}, ""); r.Unchanged == nil {
		t.Errorf("receipt %+v", r)
	}
	m.want(t, 1, 10)
}

type knowsNothing struct{}

func (knowsNothing) Sent(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	return map[uuid.UUID]struct{}{}, nil
}

// Sends that race reserve exactly what they store.
func TestReserve_RacesReleaseUnstoredSends(t *testing.T) {
	w, m := capped(t, 1000)
	other := fixtureOver(t, w.store)
	other.configure(func(c *commands.Config) { c.Limits = m })
	other.call = w.call
	worlds := []*fixture{w, other}
	ids := []string{"a", "b", "c"}
	errs := make([]error, 48)
	race(len(errs), func(i int) {
		on, id := worlds[i%2], ids[i%3]
		switch {
		case i%5 == 0:
			_, errs[i] = on.IngestBatch(t.Context(), on.call, []ingest.DataPoint{text("x"+id, "of all")}, "batch "+id)
		case i%4 == 0:
			_, errs[i] = on.Ingest(t.Context(), on.call, text("y"+id, "of all"), "key "+id)
		default:
			_, errs[i] = on.Ingest(t.Context(), on.call, text(id, fmt.Sprintf("text %d", i%4)), "")
		}
	})
	runtest.Must(t, errors.Join(errs...))
	var items, tenths int64
	for _, id := range ids {
		for _, name := range []string{id, "x" + id, "y" + id} {
			for _, f := range w.history(name) {
				if e, ok := f.Event.(*datapoint.RevisionAccepted); ok {
					items, tenths = items+1, tenths+e.CreditTenths
				}
			}
		}
	}
	m.want(t, items, tenths)
}

// silent is a store that leaves the outcome of appends to a category unknown and cancels the
// caller.
type silent struct {
	eventstore.Store
	family string
	giveUp context.CancelFunc
}

func (s silent) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if stream.Category(name) == s.family {
		s.giveUp()
		return eventstore.Appended{}, eventstore.ErrUnknown
	}
	return s.Store.Append(ctx, name, expected, events)
}

// A send with an unknown outcome stays reserved. A send that cannot be stored is released.
func TestReserve_UnknownOutcome(t *testing.T) {
	w, m := capped(t, 10)
	try := func(family string, send func(ctx context.Context, on *fixture) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		on := fixtureOver(t, silent{w.store, family, cancel})
		on.configure(func(c *commands.Config) { c.Limits = m })
		on.call = w.call
		if err := send(ctx, on); err == nil {
			t.Fatal("answered without the store")
		}
	}
	try(stream.DataPoint, func(ctx context.Context, on *fixture) error {
		_, err := on.Ingest(ctx, w.call, text("a", "one"), "")
		return err
	})
	m.want(t, 1, 10)
	try(stream.Ingestion, func(ctx context.Context, on *fixture) error {
		_, err := on.IngestBatch(ctx, w.call, []ingest.DataPoint{text("b", "two")}, "")
		return err
	})
	m.want(t, 2, 20)
	// The author's record, the claim or the stage fails: the send itself was not appended.
	try(stream.Identity, func(ctx context.Context, on *fixture) error {
		_, err := on.Ingest(ctx, w.call, text("c", "three", by("ana")), "")
		return err
	})
	try(stream.Ingestion, func(ctx context.Context, on *fixture) error {
		_, err := on.Ingest(ctx, w.call, text("c", "three"), "key")
		return err
	})
	try(stream.Blob, func(ctx context.Context, on *fixture) error {
		_, err := on.IngestBatch(ctx, w.call, []ingest.DataPoint{text("c", "three")}, "")
		return err
	})
	m.want(t, 2, 20)
}

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
		put := identities.AudiencePut{Slug: "team", Kind: "fixed", Identities: []string{"ana"}}
		runtest.Must(t, errorOf(w.PutAudience(t.Context(), w.call, put)))
	}
	to := func(slug string) func(*ingest.DataPoint) {
		return func(in *ingest.DataPoint) { in.Audience = &slug }
	}
	for _, c := range []struct {
		name string
		// when the other process changes the data points: before an append of the batch to this category
		before  string
		change  []func(*ingest.DataPoint) // to the items of the batch
		crash   bool                      // the process of the batch dies after its commit, and another one completes it
		outcome string
	}{
		{"before its commit", stream.Ingestion, nil, false, ingestion.Unchanged},
		{"before its first item", stream.DataPoint, nil, false, ingestion.Unchanged},
		{"before its commit, and it moves", stream.Ingestion, []func(*ingest.DataPoint){to("team")}, false, ingestion.Moved},
		{"before another process ends it", stream.Ingestion, nil, true, ingestion.Unchanged},
		{"before another process ends it, and it moves", stream.Ingestion, []func(*ingest.DataPoint){to("team")}, true, ingestion.Moved},
	} {
		t.Run(c.name, func(t *testing.T) {
			const points, most = 20, 40
			w, m := capped(t, most)
			team(w)
			ids := make([]string, points)
			old, changed := make([]ingest.DataPoint, points), make([]ingest.DataPoint, points)
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
				runtest.Must(t, ingest.ResumeBatch(t.Context(), w.log, id, w.call.ReceivedAt))
				r, err = w.IngestBatch(t.Context(), w.call, old, "key")
			}
			runtest.Must(t, err)
			if r.Unchanged == nil || !*r.Unchanged || r.Status != ingest.StatusCompleted {
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
			wantFault(t, errorOf(w.IngestBatch(t.Context(), w.call, old, "")), fault.CodeProjectCapReached)
		})
	}
}

// At a reached cap, a batch that changes nothing or only moves data points is accepted. A batch
// with a new revision is refused.
func TestCap_ReachedByAnUnchangedBatch(t *testing.T) {
	w, m := capped(t, 2)
	put := identities.AudiencePut{Slug: "team", Kind: "fixed", Identities: []string{}}
	runtest.Must(t, errorOf(w.PutAudience(t.Context(), w.call, put)))
	team := "team"
	moved := func(in *ingest.DataPoint) { in.Audience = &team }
	w.batch([]ingest.DataPoint{text("a", "one"), text("b", "two")}, "")
	m.want(t, 2, 20)
	for name, items := range map[string][]ingest.DataPoint{
		"unchanged": {text("a", "one"), text("b", "two")}, "moved": {text("a", "one", moved), text("b", "two", moved)}, "both": {text("a", "one", moved), text("b", "two")},
	} {
		if r := w.batch(items, ""); r.Unchanged == nil || !*r.Unchanged {
			t.Errorf("%s: receipt %+v", name, r)
		}
	}
	_, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("a", "one"), text("b", "three")}, "")
	wantFault(t, err, fault.CodeProjectCapReached)
	m.want(t, 2, 20)
}
