package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

var (
	noon    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	discard = slog.New(slog.DiscardHandler)
)

// fixture is a log with the tables of its usage, and one project of an organization without limits.
type fixture struct {
	t       *testing.T
	db      *pgxpool.Pool
	store   *eventstoretest.Memory
	codec   *eventstore.Codec
	mu      sync.Mutex // of applied
	applied eventstore.Position
	queries usage.Queries
	pending limiter.PendingCharges
	recalls *limiter.Recalls
	events  *limiter.Events
	caller  auth.Principal
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, datapoints.New(nil))
	projectiontest.Make(t, db, usage.New())
	codec := eventstoretest.Codec(t)
	s := &fixture{
		t:       t,
		db:      db,
		store:   eventstoretest.NewMemory(),
		codec:   codec,
		queries: usage.Queries{DB: db, PlanTerms: metering.DefaultPlanTerms()},
		pending: limiter.PendingCharges{DB: db},
	}
	s.recalls = s.counter()
	s.events = limiter.NewEvents(s.limiter(metering.DefaultPlanTerms(), nil), discard)
	s.newCaller()
	return s
}

// counter returns the counter of another process.
func (s *fixture) counter() *limiter.Recalls {
	return limiter.NewRecalls(s.limiter(metering.DefaultPlanTerms(), nil), discard)
}

func (s *fixture) limiter(terms metering.PlanTerms, projections limiter.Projections) *limiter.Limiter {
	return limiter.New(s.db, terms, projections, discard)
}

// newCaller makes an organization with a project, whose key calls from now on.
func (s *fixture) newCaller() {
	s.t.Helper()
	s.caller = auth.Principal{
		Kind:           auth.ProjectKey,
		OrganizationID: uuid.New(),
		Project:        auth.Project{ID: uuid.New(), Namespace: uuid.New()},
	}
	var log projectiontest.Log
	log.Append(stream.Registry,
		&registry.ProjectCreated{ProjectID: s.caller.Project.ID, OrganizationID: s.caller.OrganizationID})
	projectiontest.Apply(s.t, s.db, usage.New(), log.Facts...)
}

func (s *fixture) identity(name string) uuid.UUID {
	return stream.IdentityID(s.caller.Project.Namespace, name)
}

// recall is answered.
func (s *fixture) recall(identity string, at time.Time) {
	s.t.Helper()
	runtest.Must(s.t, s.recalls.Charge(s.t.Context(), s.caller, identity, at, func() error { return nil }))
}

// project applies what the log has to the tables of usage.
func (s *fixture) project(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, err := s.store.ReadAll(ctx, s.applied, 1000)
	if err != nil || len(records) == 0 {
		return err
	}
	var page []eventstore.DecodedEvent
	for _, r := range records {
		page = append(page, s.codec.DecodeRecorded(r))
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		return errors.Join(projectiontest.Enter(ctx, tx, usage.New()), usage.New().Apply(ctx, tx, page))
	})
	if err == nil {
		s.applied = records[len(records)-1].Position
	}
	return err
}

// charged returns the charges in the log for the caller's month.
func (s *fixture) charged(month string) (list []*metering.Charged) {
	s.t.Helper()
	records, err := s.store.Read(s.t.Context(), stream.UsageName(s.caller.Project.ID, month), 0, eventstore.Forwards, 1000)
	runtest.Must(s.t, err)
	for _, r := range records {
		list = append(list, s.codec.DecodeRecorded(r).Event.(*metering.Charged))
	}
	return list
}

// used is what the caller's project used in a month, as a usage read reports it.
func (s *fixture) used(month string) usage.Used {
	s.t.Helper()
	a, err := s.queries.Account(s.t.Context(), s.caller.OrganizationID, month)
	runtest.Must(s.t, err)
	return a.Projects[s.caller.Project.ID]
}

// seen returns the last recall of each identity of the caller's project, from the log and the
// pending charges together.
func (s *fixture) seen(months ...string) map[uuid.UUID]time.Time {
	s.t.Helper()
	last := map[uuid.UUID]time.Time{}
	newer := func(id uuid.UUID, at time.Time) {
		if at.After(last[id]) {
			last[id] = at
		}
	}
	for _, month := range months {
		for _, e := range s.charged(month) {
			for _, seen := range e.Seen {
				newer(seen.IdentityID, seen.At)
			}
		}
	}
	pending, err := s.pending.PendingSeen(s.t.Context(), s.caller.Project,
		[]uuid.UUID{s.identity("ana"), s.identity("bo"), s.identity("cy")})
	runtest.Must(s.t, err)
	for id, at := range pending {
		newer(id, at)
	}
	return last
}

// left returns the number of pending rows of the caller's project.
func (s *fixture) left() (n int) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `select (select count(*) from ops.charges where project_id = $1) + (select count(*) from ops.seen where project_id = $1)`,
		s.caller.Project.ID).Scan(&n)
	runtest.Must(s.t, err)
	return n
}

func wantFault(t testing.TB, err error, code string) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return f
}

func (s *fixture) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), sql, args...)
	runtest.Must(s.t, err)
}

// age makes every open flush old enough for another process to finish it.
func (s *fixture) age() {
	s.t.Helper()
	s.exec(`update ops.charges set taken = taken - interval '2 minutes'`)
}

// flush appends the counts to the log.
func (s *fixture) flush() {
	s.t.Helper()
	runtest.Must(s.t, s.process(&crash{}).Flush(s.t.Context()))
}

func TestMain(m *testing.M) { pgtest.Main(m) }
