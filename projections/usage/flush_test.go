package usage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// till is a log with the tables of its usage, and one project of an organization without limits.
type till struct {
	t       *testing.T
	db      *pgxpool.Pool
	store   *eventstoretest.Memory
	codec   *eventstore.Codec
	mu      sync.Mutex // of applied
	applied eventstore.Position
	queries usage.Queries
	recalls *usage.Recalls
	caller  auth.Principal
}

func newTill(t *testing.T) *till {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, datapoints.Projector{})
	projectiontest.Make(t, db, usage.New())
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	s := &till{t: t, db: db, store: eventstoretest.NewMemory(), codec: codec, queries: usage.Queries{DB: db, Tariff: metering.DefaultTariff()}}
	s.recalls = s.counter()
	s.newCaller()
	return s
}

// counter is that of another process.
func (s *till) counter() *usage.Recalls {
	log := slog.New(slog.DiscardHandler)
	return usage.NewRecalls(usage.NewMeters(s.db, metering.DefaultTariff(), nil, log), log)
}

// newCaller makes an organization with a project, whose key calls from now on.
func (s *till) newCaller() {
	s.t.Helper()
	s.caller = auth.Principal{Kind: auth.ProjectKey, OrganizationID: uuid.New(), Project: auth.Project{ID: uuid.New(), Namespace: uuid.New()}}
	var log projectiontest.Log
	log.Append(stream.Registry, &registry.ProjectCreated{ProjectID: s.caller.Project.ID, OrganizationID: s.caller.OrganizationID})
	projectiontest.Apply(s.t, s.db, usage.New(), log.Facts...)
}

func (s *till) identity(name string) uuid.UUID {
	return stream.IdentityID(s.caller.Project.Namespace, name)
}

// recall is answered.
func (s *till) recall(identity string, at time.Time) {
	s.t.Helper()
	if err := s.recalls.Recall(s.t.Context(), s.caller, identity, at, func() error { return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// project applies what the log has to the tables of usage.
func (s *till) project(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, err := s.store.ReadAll(ctx, s.applied, 1000)
	if err != nil || len(records) == 0 {
		return err
	}
	var page []eventstore.Fact
	for _, r := range records {
		page = append(page, s.codec.Fact(r))
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		return errors.Join(projectiontest.Enter(ctx, tx, usage.New()), usage.New().Apply(ctx, tx, page))
	})
	if err == nil {
		s.applied = records[len(records)-1].Position
	}
	return err
}

// charged is what stands in the log of the caller's month.
func (s *till) charged(month string) (list []*metering.Charged) {
	s.t.Helper()
	records, err := s.store.Read(s.t.Context(), stream.UsageName(s.caller.Project.ID, month), 0, eventstore.Forwards, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range records {
		list = append(list, s.codec.Fact(r).Event.(*metering.Charged))
	}
	return list
}

// used is what the caller's project used in a month, as a usage read says.
func (s *till) used(month string) usage.Used {
	s.t.Helper()
	a, err := s.queries.Account(s.t.Context(), s.caller.OrganizationID, month)
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Projects[s.caller.Project.ID]
}

// seen is when identities of the caller's project recalled, as the log and what is beside it say together.
func (s *till) seen(months ...string) map[uuid.UUID]time.Time {
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
	pending, err := s.queries.PendingSeen(s.t.Context(), s.caller.Project, []uuid.UUID{s.identity("ana"), s.identity("bo"), s.identity("cy")})
	if err != nil {
		s.t.Fatal(err)
	}
	for id, at := range pending {
		newer(id, at)
	}
	return last
}

// left is how many rows of the caller's project are beside the log.
func (s *till) left() (n int) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `select (select count(*) from ops.charges where project_id = $1) + (select count(*) from ops.seen where project_id = $1)`,
		s.caller.Project.ID).Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// age makes every open flush one that its process left behind.
func (s *till) age() {
	s.t.Helper()
	if _, err := s.db.Exec(s.t.Context(), `update ops.charges set since = since - interval '2 minutes'`); err != nil {
		s.t.Fatal(err)
	}
}

var errCrash = errors.New("the process was killed")

// crash kills a process at one of its steps, before or after that did what it does. What it does from then on, it does not.
type crash struct {
	mu    sync.Mutex
	steps int
	at    int
	after bool
}

func (c *crash) step(do func() error) error {
	c.mu.Lock()
	c.steps++
	step := c.steps
	c.mu.Unlock()
	if c.at > 0 && (step > c.at || step == c.at && !c.after) {
		return errCrash
	}
	err := do()
	if step == c.at && err == nil {
		return errCrash
	}
	return err
}

// process takes to the log what was counted, and may crash.
func (s *till) process(c *crash) *commands.Metering {
	log := slog.New(slog.DiscardHandler)
	return &commands.Metering{
		Log:     commands.NewLog(&crashingStore{s.store, c}, s.codec, log),
		Counted: &crashingCount{s.queries, c}, Waiter: &crashingWaiter{s, c}, Logger: log, Now: func() time.Time { return noon },
	}
}

func (s *till) flush() {
	s.t.Helper()
	if err := s.process(&crash{}).Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

type crashingStore struct {
	*eventstoretest.Memory
	crash *crash
}

func (s *crashingStore) Append(ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed) (done eventstore.Appended, err error) {
	err = s.crash.step(func() (err error) {
		done, err = s.Memory.Append(ctx, name, expected, events)
		return err
	})
	return done, err
}

type crashingCount struct {
	usage.Queries
	crash *crash
}

func (c *crashingCount) Take(ctx context.Context) (open []todo.Charge, err error) {
	err = c.crash.step(func() (err error) {
		open, err = c.Queries.Take(ctx)
		return err
	})
	return open, err
}

func (c *crashingCount) Begin(ctx context.Context, flush uuid.UUID, last eventstore.Revision) (after eventstore.Revision, ok bool, err error) {
	err = c.crash.step(func() (err error) {
		after, ok, err = c.Queries.Begin(ctx, flush, last)
		return err
	})
	return after, ok, err
}

func (c *crashingCount) DropCharges(ctx context.Context, known ...uuid.UUID) error {
	return c.crash.step(func() error { return c.Queries.DropCharges(ctx, known...) })
}

func (c *crashingCount) DropSeen(ctx context.Context) error {
	return c.crash.step(func() error { return c.Queries.DropSeen(ctx) })
}

// crashingWaiter lets the projection come to the head whenever it is waited for.
type crashingWaiter struct {
	till  *till
	crash *crash
}

func (w *crashingWaiter) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	return w.crash.step(func() error { return w.till.project(ctx) })
}

func TestARecallCountsAtOnceAndOnce(t *testing.T) {
	s := newTill(t)
	want := func(when string, recalls int64) {
		t.Helper()
		if got := s.used("2026-11"); got.Recalls != recalls || got.CreditTenths != 0 {
			t.Errorf("%s: %+v, want %d recalls", when, got, recalls)
		}
	}
	want("nothing", 0)
	s.recall("ana", noon)
	s.recall("ana", noon.Add(2*time.Second))
	s.recall("bo", noon.Add(time.Second))
	want("counted", 3)
	s.flush()
	want("flushed", 3)
	s.flush() // who was seen stays for a round
	if s.left() != 0 {
		t.Errorf("%d rows are left", s.left())
	}
	s.recall("ana", noon.Add(time.Second)) // a clock that is behind
	want("counted on", 4)
	s.flush()
	s.flush()
	want("flushed on", 4)
	list := s.charged("2026-11")
	if len(list) != 2 || list[0].Recalls != 3 || list[1].Recalls != 1 || list[0].OrganizationID != s.caller.OrganizationID || !list[0].At.Equal(noon) {
		t.Errorf("the log says %+v", list)
	}
	wantSeen := map[uuid.UUID]time.Time{s.identity("ana"): noon.Add(2 * time.Second), s.identity("bo"): noon.Add(time.Second)}
	if diff := cmp.Diff(wantSeen, s.seen("2026-11")); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	if got := s.used("2026-10"); got != (usage.Used{}) {
		t.Errorf("another month has %+v", got)
	}
}

func TestARecallCountsInTheMonthOfItsRequest(t *testing.T) {
	s := newTill(t)
	turn := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	s.recall("ana", turn.Add(-time.Microsecond))
	s.recall("ana", turn)
	s.recall("bo", turn.In(time.FixedZone("", -3600)))
	for range 2 {
		if november, december := s.used("2026-11").Recalls, s.used("2026-12").Recalls; november != 1 || december != 2 {
			t.Errorf("November has %d, December %d", november, december)
		}
		s.flush()
	}
	if len(s.charged("2026-11")) != 1 || len(s.charged("2026-12")) != 1 {
		t.Error("a month has no event of its own")
	}
}

// Whatever step of a flush a process is killed at, nothing is lost, nothing counts twice, at no moment; and the next process puts
// everything into the log once.
func TestACrashAtEachStepOfAFlush(t *testing.T) {
	s := newTill(t)
	for n := range 4 {
		after, applied := n%2 == 1, n/2 == 1
		for at := 1; ; at++ {
			t.Run(fmt.Sprintf("step %d, after %t, applied %t", at, after, applied), func(t *testing.T) {
				s.t = t
				s.newCaller()
				wantSeen := map[uuid.UUID]time.Time{s.identity("ana"): noon.Add(time.Second), s.identity("bo"): noon}
				want := func(when string, recalls int64) {
					t.Helper()
					if got := s.used("2026-11").Recalls; got != recalls {
						t.Errorf("%s there are %d recalls, want %d", when, got, recalls)
					}
					if diff := cmp.Diff(wantSeen, s.seen("2026-11")); diff != "" {
						t.Errorf("%s there were seen (-want +got):\n%s", when, diff)
					}
				}
				s.recall("ana", noon.Add(time.Second))
				s.recall("bo", noon)
				c := &crash{at: at, after: after}
				if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) && c.steps >= at {
					t.Fatalf("it did not crash: %v", err)
				}
				want("at the crash", 2)
				if applied {
					if err := s.project(t.Context()); err != nil {
						t.Fatal(err)
					}
					want("once the log is applied", 2)
				} else {
					s.age() // the next process finds what was left before its projection knows more of it
				}
				// Another process counts on meanwhile, and takes that to the same stream.
				s.recall("cy", noon)
				wantSeen[s.identity("cy")] = noon
				want("counted on", 3)
				s.flush()
				want("behind a flush of another", 3)
				s.age()
				s.flush()
				want("in the end", 3)
				s.flush()
				if s.left() != 0 {
					t.Errorf("%d rows are left", s.left())
				}
				var sum int64
				flushes := map[uuid.UUID]bool{}
				for _, e := range s.charged("2026-11") {
					sum += e.Recalls
					if flushes[e.FlushID] {
						t.Errorf("flush %s is in the log twice", e.FlushID)
					}
					flushes[e.FlushID] = true
				}
				if sum != 3 {
					t.Errorf("the log counts %d recalls", sum)
				}
				if c.steps < at {
					at = -1 // the flush was over before
				}
			})
			if at < 0 {
				break
			}
			if at > 50 {
				t.Fatal("a flush has no end")
			}
		}
	}
}

// Two processes that flush the same sum append it once.
func TestASumThatTwoProcessesAppend(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	c := &crash{at: 2, after: true} // taken and begun
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	s.age()
	ended := make(chan error)
	for range 2 {
		go func() { ended <- s.process(&crash{}).Flush(t.Context()) }()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log says %+v, and %d rows are left", list, s.left())
	}
}

func TestManyIdentitiesTakeSeveralEvents(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	const many = 4500
	if _, err := s.db.Exec(t.Context(), `insert into ops.seen (project_id, identity_id, flush_id, organization_id, at)
		select $1, gen_random_uuid(), $2, $3, $4 from generate_series(1, $5)`, s.caller.Project.ID, uuid.Nil, s.caller.OrganizationID, noon, many); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.flush()
	var seen, recalls int
	list := s.charged("2026-11")
	for _, e := range list {
		seen, recalls = seen+len(e.Seen), recalls+int(e.Recalls)
	}
	if len(list) != 3 || seen != many+1 || recalls != 1 || s.left() != 0 {
		t.Errorf("%d events, %d seen, %d recalls, and %d rows left", len(list), seen, recalls, s.left())
	}
}

// The projection remembers the newest flushes of a stream only; a sum that is older, and that nobody dropped, is found in the log.
func TestASumThatTheProjectionForgot(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	c := &crash{at: 3, after: true} // taken, begun and appended
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if err := s.project(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(t.Context(), `delete from usage.flushes`); err != nil {
		t.Fatal(err)
	}
	s.age()
	s.flush()
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log says %+v, and %d rows are left", list, s.left())
	}
}
