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
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
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
	w.batch([]commands.DataPoint{text("b", "two"), text("c", "three")}, "")
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
		if r := w.ingest(text("a", "one"), ""); r.Status != commands.StatusCompleted {
			t.Errorf("receipt %+v", r)
		}
	}
	if r := w.ingest(text("a", "one"), "key"); r.Status != commands.StatusQueued {
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
	if r := w.ingest(text("a", "one"), "other key"); r.Status != commands.StatusCompleted {
		t.Errorf("the key of a refused send answers %+v", r)
	}
}

func TestReserve_Batches(t *testing.T) {
	w, m := capped(t, 3)
	w.ingest(text("a", "one"), "")
	items := []commands.DataPoint{text("a", "one"), text("b", "two"), text("c", string(make([]byte, 351)))}
	r := w.batch(items, "key")
	m.want(t, 3, 40)
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Ingestion, r.IngestionID), 0)
	if err != nil {
		t.Fatal(err)
	}
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
	_, err = w.IngestBatch(t.Context(), w.call, []commands.DataPoint{text("a", "one"), text("d", "four", by("ana"))},
		"other key")
	wantFault(t, err, fault.CodeProjectCapReached)
	if got := w.types("d"); got != nil {
		t.Errorf("the refused batch left %v", got)
	}
	w.batch([]commands.DataPoint{text("a", "one")}, "other key")
}

// The projection has not applied the last send. A batch that repeats that send still costs nothing.
func TestReserve_UnchangedBatchAndLateProjection(t *testing.T) {
	w, m := capped(t, 1)
	w.configure(func(c *commands.Config) { c.DataPoints = knowsNothing{} })
	w.ingest(text("a", "one"), "")
	if r := w.batch([]commands.DataPoint{text("a", "one")}, ""); r.Unchanged == nil {
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
			_, errs[i] = on.IngestBatch(t.Context(), on.call, []commands.DataPoint{text("x"+id, "of all")}, "batch "+id)
		case i%4 == 0:
			_, errs[i] = on.Ingest(t.Context(), on.call, text("y"+id, "of all"), "key "+id)
		default:
			_, errs[i] = on.Ingest(t.Context(), on.call, text(id, fmt.Sprintf("text %d", i%4)), "")
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
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
		_, err := on.IngestBatch(ctx, w.call, []commands.DataPoint{text("b", "two")}, "")
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
		_, err := on.IngestBatch(ctx, w.call, []commands.DataPoint{text("c", "three")}, "")
		return err
	})
	m.want(t, 2, 20)
}
