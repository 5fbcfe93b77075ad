package visits_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/visits"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func decode(name string, payload []byte) (event.Event, error) {
	var e event.Event
	switch name {
	case visit.SignedIn{}.EventType():
		e = &visit.SignedIn{}
	case visit.SignInRefused{}.EventType():
		e = &visit.SignInRefused{}
	default:
		return nil, errors.New("another event")
	}
	return e, json.Unmarshal(payload, e)
}

func start(t *testing.T) visits.Queue {
	t.Helper()
	q := visits.Queue{DB: pgtest.Database(t), Decode: decode}
	runtest.Must(t, ops.Migrate(t.Context(), q.DB, uuid.Nil))
	return q
}

// taken are the entries that are due at a time.
func taken(t *testing.T, q visits.Queue, now time.Time) (list []visits.Entry) {
	t.Helper()
	for {
		found, err := q.Take(t.Context(), now, func(_ context.Context, e visits.Entry) error {
			list = append(list, e)
			return nil
		})
		runtest.Must(t, err)
		if !found {
			return list
		}
	}
}

var at = time.Date(2026, 11, 5, 9, 31, 0, 0, time.UTC)

func refused(person uuid.UUID, at time.Time, network string) visits.Entry {
	return visits.Entry{Person: person, At: at, Event: &visit.SignInRefused{Visit: visit.Visit{Network: network}}}
}

// However often a stranger tries the address of a person, it is one entry for 15 minutes.
func TestQueue_RefusalsAreOneEntryOfAWindow(t *testing.T) {
	q := start(t)
	ana, ben := uuid.New(), uuid.New()
	for i := range 300 {
		runtest.Must(t, q.Add(t.Context(), refused(ana, at.Add(time.Duration(i)*time.Second), "192.0.2.1")))
	}
	runtest.Must(t, q.Add(t.Context(), refused(ana, at.Add(300*time.Second), "192.0.2.2")))
	runtest.Must(t, q.Add(t.Context(), refused(ben, at, "192.0.2.3")))
	runtest.Must(t, q.Add(t.Context(), refused(ana, at.Add(visit.RefusedTime), "192.0.2.4")))
	if list := taken(t, q, at.Add(10*time.Minute)); len(list) > 0 {
		t.Fatalf("%d entries before the end of the window", len(list))
	}
	list := taken(t, q, at.Add(time.Hour))
	if len(list) != 3 {
		t.Fatalf("%d entries, want 3", len(list))
	}
	for i, want := range []visits.Entry{
		{Person: ana, At: at, Attempts: 301, LastAt: at.Add(300 * time.Second), Event: refused(ana, at, "192.0.2.2").Event},
		{Person: ben, At: at, Attempts: 1, LastAt: at, Event: refused(ben, at, "192.0.2.3").Event},
		{
			Person: ana, At: at.Add(visit.RefusedTime), Attempts: 1, LastAt: at.Add(visit.RefusedTime),
			Event: refused(ana, at, "192.0.2.4").Event,
		},
	} {
		want.ID, want.Principal = list[i].ID, "person:"+want.Person.String()
		if diff := cmp.Diff(want, list[i]); diff != "" {
			t.Errorf("entry %d: %s", i, diff)
		}
	}
}

// Others are entries of their own, in order, and stay until they are taken.
func TestQueue_OthersAreEachAnEntry(t *testing.T) {
	q := start(t)
	ana, of := uuid.New(), uuid.New()
	entry := visits.Entry{
		Person: ana, Organization: of, RequestID: uuid.New(), At: at, Event: &visit.SignedIn{Way: visit.Link},
	}
	runtest.Must(t, q.Add(t.Context(), entry))
	b := &pgx.Batch{}
	runtest.Must(t, visits.Add(b, entry))
	runtest.Must(t, q.DB.SendBatch(t.Context(), b).Close())
	failed := errors.New("the log is away")
	if found, err := q.Take(t.Context(), at, func(context.Context, visits.Entry) error { return failed }); found ||
		!errors.Is(err, failed) {
		t.Errorf("taken: %t, %v", found, err)
	}
	list := taken(t, q, at)
	if len(list) != 2 {
		t.Fatalf("%d entries, want 2", len(list))
	}
	entry.ID, entry.Attempts, entry.LastAt, entry.Principal = list[0].ID, 1, at, "person:"+ana.String()
	if diff := cmp.Diff(entry, list[0]); diff != "" || list[1].ID == entry.ID {
		t.Errorf("%s; %+v", diff, list[1])
	}
}

// One process takes at a time.
func TestQueue_OneAtATime(t *testing.T) {
	q := start(t)
	runtest.Must(t, q.Add(t.Context(), refused(uuid.New(), at, "")))
	_, err := q.Take(t.Context(), at.Add(time.Hour), func(ctx context.Context, _ visits.Entry) error {
		found, err := q.Take(ctx, at.Add(time.Hour), func(context.Context, visits.Entry) error { return nil })
		if found {
			t.Error("two processes take")
		}
		return err
	})
	runtest.Must(t, err)
}

func TestQueue_Forget(t *testing.T) {
	q := start(t)
	ana, ben := uuid.New(), uuid.New()
	for _, person := range []uuid.UUID{ana, ben} {
		runtest.Must(t, q.Add(t.Context(), visits.Entry{Person: person, At: at, Event: &visit.SignedIn{}}))
	}
	runtest.Must(t, q.Forget(t.Context(), ana))
	if list := taken(t, q, at); len(list) != 1 || list[0].Person != ben {
		t.Errorf("left %+v", list)
	}
}
