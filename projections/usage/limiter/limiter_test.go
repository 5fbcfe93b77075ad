package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// limiterFixture has meters over tables that the projectors fill from a log in memory.
type limiterFixture struct {
	*limiter.Limiter
	t            testing.TB
	db           *pgxpool.Pool
	mu           sync.Mutex // of log
	log          projectiontest.Log
	organization uuid.UUID
	project      uuid.UUID
	limits       metering.Caps
	at           time.Time
}

const hold = 30 * time.Second

func newLimiterFixture(t testing.TB, limits metering.Caps) *limiterFixture {
	t.Helper()
	l := &limiterFixture{
		t: t, db: pgtest.Database(t), organization: uuid.New(), limits: limits, at: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC),
	}
	projectiontest.Make(t, l.db, datapoints.New(nil))
	projectiontest.Make(t, l.db, usage.New())
	l.Limiter = l.process(nil)
	l.project = l.newProject(l.organization)
	return l
}

// process is the meters of another process.
func (l *limiterFixture) process(p limiter.Projections) *limiter.Limiter {
	return limiter.New(l.db, metering.DefaultPlanTerms(), p, slog.New(slog.DiscardHandler))
}

func (l *limiterFixture) newProject(organization uuid.UUID) uuid.UUID {
	l.t.Helper()
	id := uuid.New()
	from := len(l.log.Facts)
	l.log.Append(stream.Registry, &registry.ProjectCreated{ProjectID: id, OrganizationID: organization})
	projectiontest.Apply(l.t, l.db, usage.New(), l.log.Facts[from:]...)
	return id
}

// plan puts the organization on a metered plan with so many starting credits, in tenths.
func (l *limiterFixture) plan(plan metering.Plan, tenths int64) {
	l.t.Helper()
	from := len(l.log.Facts)
	name := stream.Name(stream.Organization, l.organization)
	month := metering.Month(l.at)
	l.log.Append(name, &organization.PlanSet{OrganizationID: l.organization, Plan: plan, Month: month})
	l.log.Append(name,
		&organization.CreditsGranted{OrganizationID: l.organization, Kind: metering.Starting, Tenths: tenths, Month: month})
	projectiontest.Apply(l.t, l.db, usage.New(), l.log.Facts[from:]...)
	l.limits.Plan = plan
}

// of returns a reservation of some items at a credit each, for a separate send.
func (l *limiterFixture) of(items int64) metering.Reservation {
	return metering.Reservation{
		OrganizationID: l.organization, ProjectID: l.project, SendID: uuid.New(), Try: uuid.New(), Limits: l.limits, At: l.at,
		Items: items, CreditTenths: 10 * items,
	}
}

// fact stores a send in the form that the projection reads. A reservation of several items becomes
// a send with the same total price.
func (l *limiterFixture) fact(r metering.Reservation) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	id := uuid.New()
	from := len(l.log.Facts)
	l.log.Append(stream.Name(stream.DataPoint, id), &datapoint.RevisionAccepted{
		Send: datapoint.Send{
			ProjectID: r.ProjectID, IngestionID: r.SendID, Items: 1, AcceptedAt: r.At, Bytes: 1, CreditTenths: r.CreditTenths, Month: metering.Month(r.At),
		},
		States: datapoint.States{
			Effect: datapoint.State{SourceID: id.String(), Revision: 1, LastNumber: 1, OccurredAt: r.At, IngestionID: r.SendID},
		},
		Body: datapoint.Body{Content: datapoint.Text{Inline: "x"}},
	})
	projectiontest.Apply(l.t, l.db, datapoints.New(nil), l.log.Facts[from:]...)
}

func (l *limiterFixture) reserve(r metering.Reservation) metering.Reservation {
	l.t.Helper()
	runtest.Must(l.t, l.Reserve(l.t.Context(), r, hold))
	return r
}

// refuse checks that a reservation is refused, and returns the data of the refusal.
func (l *limiterFixture) refuse(r metering.Reservation, code string) map[string]any {
	l.t.Helper()
	err := l.Reserve(l.t.Context(), r, hold)
	return wantFault(l.t, err, code).Data
}

// open returns the number of reservations.
func (l *limiterFixture) open() (n int) {
	l.t.Helper()
	runtest.Must(l.t, l.db.QueryRow(l.t.Context(), `select count(*) from ops.reservations`).Scan(&n))
	return n
}

func limit(n int64) *int64 { return &n }

func TestReserve_UpToTheCap(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(3)})
	first := l.reserve(l.of(2))
	l.refuse(l.of(2), fault.CodeProjectCapReached)
	l.reserve(l.of(1))
	if f := l.refuse(l.of(1), fault.CodeProjectCapReached); f["used"] != int64(3) {
		t.Errorf("data %v", f)
	}
	runtest.Must(t, l.Release(t.Context(), first.SendID, first.Try))
	l.reserve(l.of(2))
	// Other months, other projects and other organizations are not affected.
	december := l.of(3)
	december.At = l.at.Add(time.Hour)
	l.reserve(december)
	sister, stranger := l.of(3), l.of(3)
	sister.ProjectID = l.newProject(l.organization)
	l.reserve(sister)
	stranger.OrganizationID = uuid.New()
	stranger.ProjectID = l.newProject(stranger.OrganizationID)
	l.reserve(stranger)
	l.refuse(l.of(1), fault.CodeProjectCapReached)
}

// A send counts once, as a reservation and then as a fact, regardless of the number of its tries.
func TestReserve_ReservationBecomesFact(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{CreditCapTenths: limit(30)})
	first := l.reserve(l.of(2))
	last := l.reserve(l.of(1))
	again := first
	again.Try = uuid.New()
	l.reserve(again) // the cap is full, and another try of the same send adds nothing
	full := func(when string) {
		t.Helper()
		if f := l.refuse(l.of(1), fault.CodeProjectCapReached); f["used"] != metering.Credits(30) {
			t.Errorf("%s the data is %v", when, f)
		}
	}
	full("reserved,")
	l.fact(first)
	full("half stored,")
	if next, err := l.DropFacts(t.Context()); err != nil || next <= 0 || l.open() != 1 {
		t.Fatalf("next %s, %v, and %d reservations", next, err, l.open())
	}
	full("half dropped,")
	l.fact(last)
	full("stored,")
	if next, err := l.DropFacts(t.Context()); err != nil || next != 0 || l.open() != 0 {
		t.Fatalf("next %s, %v, and %d reservations", next, err, l.open())
	}
	full("dropped,")
	if next, err := l.DropFacts(t.Context()); err != nil || next != 0 {
		t.Errorf("of nothing: next %s, %v", next, err)
	}
}

// Tries of one send in one decision reserve as much as the largest of them.
func TestReserve_TriesOfOneSend(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(2)})
	one := l.of(1)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			try := one
			try.Try = uuid.New()
			if err := l.Reserve(t.Context(), try, hold); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	bigger := l.of(2)
	bigger.SendID = one.SendID
	l.reserve(bigger)
	l.refuse(l.of(1), fault.CodeProjectCapReached)
	bigger = l.of(3)
	bigger.SendID = one.SendID
	l.refuse(bigger, fault.CodeProjectCapReached)
}

// Requests that arrive during a decision are decided together, in order. A cancelled one reserves
// nothing.
func TestReserve_ManyCallersInOneDecision(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(4)})
	l.reserve(l.of(1))
	tx, err := l.db.Begin(t.Context())
	runtest.Must(t, err)
	if _, err := tx.Exec(t.Context(), `select from ops.meters where organization_id = $1 for update`, l.organization); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { first <- l.Reserve(t.Context(), l.of(1), hold) }()
	for waits := false; !waits; { // the first one waits for the lock
		err := l.db.QueryRow(t.Context(), `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%ops.meters%' and datname = current_database())`).
			Scan(&waits)
		runtest.Must(t, err)
	}
	gone, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := l.Reserve(gone, l.of(1), hold); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	answers := make(chan error, 6)
	for range cap(answers) {
		go func() { answers <- l.Reserve(t.Context(), l.of(1), hold) }()
	}
	runtest.Must(t, tx.Rollback(t.Context()))
	if err := <-first; err != nil {
		t.Error(err)
	}
	refused := 0
	for range cap(answers) {
		if err := <-answers; err != nil {
			refused++
		}
	}
	if refused != 4 || l.open() != 4 {
		t.Errorf("%d are refused and %d reservations kept; want 4 of each", refused, l.open())
	}
}

func TestReserve_OverdueReservations(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(2)})
	late := l.of(1)
	runtest.Must(t, l.Reserve(t.Context(), late, -time.Second))
	l.reserve(l.of(1))
	l.refuse(l.of(1), fault.CodeProjectCapReached) // an overdue one counts until it is dropped
	overdue, err := l.Overdue(t.Context(), 10)
	if err != nil || len(overdue) != 1 || overdue[0].SendID != late.SendID || overdue[0].Try != late.Try {
		t.Fatalf("overdue %v, %v", overdue, err)
	}
	runtest.Must(t, l.Drop(t.Context(), overdue))
	l.reserve(l.of(1))
	l.refuse(l.of(1), fault.CodeProjectCapReached)
}

func TestReserve_CreditsAndSpendCap(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{})
	l.plan(metering.Flex, 45)
	l.reserve(l.of(2))
	l.fact(l.reserve(l.of(1)))
	sister := l.newProject(l.organization)
	other := l.of(1)
	other.ProjectID = sister
	l.reserve(other)
	f := l.refuse(l.of(1), fault.CodeOutOfCredits)
	if f["creditsLeft"] != metering.Credits(5) || f["creditsNeeded"] != metering.Credits(10) {
		t.Errorf("data %v", f)
	}
	capped := l.of(1)
	capped.Limits.SpendCapTenths = limit(40)
	if f := l.refuse(capped, fault.CodeSpendCapReached); f["spent"] != metering.Credits(40) {
		t.Errorf("data %v", f)
	}
	// The next month opens the spend cap. Reservations of the month before still reduce the balance.
	capped.At = l.at.Add(time.Hour)
	f = l.refuse(capped, fault.CodeOutOfCredits)
	if f["creditsLeft"] != metering.Credits(5) {
		t.Errorf("data %v", f)
	}
	exact := l.of(1)
	exact.CreditTenths = 5
	l.reserve(exact)
}

type stopped string

func (s stopped) Stopped(_ context.Context, name string) error {
	if name == string(s) {
		return errors.New("stopped")
	}
	return nil
}

func TestReserve_StoppedProjections(t *testing.T) {
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(2)})
	for _, name := range []string{"datapoints", "usage"} {
		l.Limiter = l.process(stopped(name))
		l.refuse(l.of(1), fault.CodeServiceUnavailable)
	}
	l.Limiter = l.process(stopped("memories"))
	l.reserve(l.of(1))
}

// Callers of two processes reserve, and some release, while sends become facts and are dropped. The
// accepted sends reach the cap and never exceed it.
func TestReserve_ExactUnderLoad(t *testing.T) {
	const items, callers = 200, 16
	l := newLimiterFixture(t, metering.Caps{IngestionCap: limit(items)})
	seed := seedtest.Of(t)
	processes := []*limiter.Limiter{l.Limiter, l.process(nil)}
	stored := make(chan metering.Reservation, 16)
	var accepted atomic.Int64
	var group, projector sync.WaitGroup
	projector.Go(func() {
		n := 0
		for r := range stored {
			l.fact(r)
			if n++; n%8 == 0 {
				if _, err := l.DropFacts(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			on := processes[i%2]
			for {
				r := l.of(1 + rng.Int64N(2))
				r.Items = 1 // a fact is one item of any price
				err := on.Reserve(t.Context(), r, hold)
				if f, ok := errors.AsType[*fault.Error](err); ok && f.Code == fault.CodeProjectCapReached {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(4) == 0 {
					if err := on.Release(t.Context(), r.SendID, r.Try); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				accepted.Add(1)
				stored <- r
			}
		})
	}
	group.Wait()
	close(stored)
	projector.Wait()
	if n := accepted.Load(); n > items || n < items-callers {
		t.Errorf("accepted %d of %d", n, items)
	}
	for accepted.Load() < items {
		l.fact(l.reserve(l.of(1)))
		accepted.Add(1)
	}
	l.refuse(l.of(1), fault.CodeProjectCapReached)
	var facts int64
	if err := l.db.QueryRow(t.Context(), `select ingestions from datapoints.month_usage where project_id = $1 and month = '2026-11'`, l.project).Scan(&facts); err != nil ||
		facts != items {
		t.Errorf("%d facts, %v", facts, err)
	}
}

// A decision that panics refuses its requests, and the organization can ask again.
func TestLimiter_DecisionPanics(t *testing.T) {
	l := limiter.New(nil, metering.DefaultPlanTerms(), nil, slog.New(slog.DiscardHandler)) // no database: a nil pointer
	r := metering.Reservation{
		OrganizationID: uuid.New(), ProjectID: uuid.New(), SendID: uuid.New(), Try: uuid.New(), Items: 1, At: time.Now(),
	}
	r.Limits.IngestionCap = new(int64(5))
	for range 2 {
		wantFault(t, l.Reserve(t.Context(), r, time.Minute), fault.CodeServiceUnavailable)
	}
}

// BenchmarkReserve is one reservation and its release, with 500 others open and 32 callers of one
// organization at once.
func BenchmarkReserve(b *testing.B) {
	l := newLimiterFixture(b, metering.Caps{IngestionCap: limit(1 << 40)})
	for range 500 {
		l.reserve(l.of(1))
	}
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := l.of(1)
			if err := l.Reserve(b.Context(), r, hold); err != nil {
				b.Error(err)
				return
			}
			if err := l.Release(b.Context(), r.SendID, r.Try); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkRecallCounted measures the cost of counting a recall: for one caller, and for many at
// once.
func BenchmarkRecallCounted(b *testing.B) {
	db := pgtest.Database(b)
	projectiontest.Make(b, db, datapoints.New(nil))
	projectiontest.Make(b, db, usage.New())
	log := slog.New(slog.DiscardHandler)
	r := limiter.NewRecalls(limiter.New(db, metering.DefaultPlanTerms(), nil, log), log)
	p := auth.Principal{OrganizationID: uuid.New(), Project: auth.Project{ID: uuid.New(), Namespace: uuid.New()}}
	answer := func(n int) {
		if err := r.Charge(b.Context(), p, fmt.Sprint("identity ", n%100), noon, func() error { return nil }); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			answer(n)
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				answer(n)
			}
		})
	})
}
