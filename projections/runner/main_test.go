package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// added is the one event of the tests.
type added struct {
	N int `json:"n"`
}

func (added) EventType() string { return "tally.added.v1" }
func (a added) number() int     { return a.N }

func codec(t testing.TB) *eventstore.Codec {
	t.Helper()
	c, err := eventstore.NewCodec([]domain.Constructor{
		func() event.Event { return new(added) },
		func() event.Event { return new(registry.LogOpened) },
		func() event.Event { return new(registry.EventSetAside) },
	})
	runtest.Must(t, err)
	return c
}

// tally counts what its family adds, per stream. It adds to rows, so a page that is applied twice,
// or not at all, shows.
type tally struct {
	family  string
	version int
	// apply, if set, is called before each page.
	apply func(ctx context.Context, page []eventstore.DecodedEvent) error
	projections.Base
}

// The numbers that a tally cannot apply.
const (
	refusedByApply    = 13
	refusedByPanic    = 14
	refusedByDatabase = 15
	// The errors of these quote the text "marigold".
	refusedWithText           = 16
	refusedByDatabaseWithText = 17
	refusedByPanicWithText    = 18
)

func (p tally) Name() string         { return p.family + "s" }
func (p tally) Version() int         { return max(p.version, 1) }
func (p tally) Categories() []string { return []string{p.family} }
func (p tally) Counted() []string    { return []string{"totals"} }
func (p tally) Schema() string {
	return `create table totals (stream text primary key, total bigint not null check (total >= 0), events bigint not null);`
}

// external is a tally with a target that only counts its resets.
type external struct {
	tally
	target string
	reset  *atomic.Int64
}

func (p external) Target() string { return p.target }

func (p external) Reset(context.Context) error {
	if p.reset != nil {
		p.reset.Add(1)
	}
	return nil
}

func (external) Shadow(context.Context, string) (projections.Projector, bool, error) {
	return nil, false, errors.ErrUnsupported
}
func (external) Verify(context.Context, pgx.Tx) error          { return nil }
func (external) Close() error                                  { return nil }
func (external) Promote(context.Context, string) (bool, error) { return false, nil }
func (external) Discard(context.Context) error                 { return nil }
func (external) Purge(context.Context) error                   { return nil }

func (p tally) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	if p.apply != nil {
		if err := p.apply(ctx, page); err != nil {
			return err
		}
	}
	for _, f := range page {
		if stream.Category(f.Stream) != p.family {
			return fmt.Errorf("%s got %s", p.Name(), f.Stream)
		}
		n := f.Event.(interface{ number() int }).number()
		switch n {
		case refusedByApply:
			return errors.New("thirteen")
		case refusedByPanic:
			panic("fourteen")
		case refusedByDatabase:
			n = -1000000
		case refusedWithText:
			return fmt.Errorf("cannot encode %q", "marigold")
		case refusedByDatabaseWithText:
			_, err := tx.Exec(ctx, `select $1::text::int`, "marigold")
			return fmt.Errorf("write rows: %w", err)
		case refusedByPanicWithText:
			panic(errors.New("marigold"))
		}
		if _, err := tx.Exec(ctx, `insert into totals as t values ($1, $2, 1) on conflict (stream) do update set total = t.total + excluded.total, events = t.events + 1`, f.Stream, n); err != nil {
			return err
		}
	}
	return nil
}

// fixture is a database and a log.
type fixture struct {
	db    *pgxpool.Pool
	store eventstore.Store
	codec *eventstore.Codec
	logID uuid.UUID
	next  map[string]eventstore.Revision
}

func newWorld(t testing.TB) *fixture {
	t.Helper()
	return worldOver(t, pgtest.Database(t), eventstoretest.NewMemory())
}

// worldOver has a log of its own.
func worldOver(t testing.TB, db *pgxpool.Pool, store eventstore.Store) *fixture {
	t.Helper()
	return &fixture{db: db, store: store, codec: codec(t), logID: uuid.New(), next: map[string]eventstore.Revision{}}
}

// add appends numbers to a stream and returns the position of the last.
func (w *fixture) add(t testing.TB, name string, numbers ...int) eventstore.Position {
	t.Helper()
	var last eventstore.Position
	for _, n := range numbers {
		last = w.append(t, name, added{}.EventType(), added{N: n})
	}
	return last
}

func (w *fixture) append(t testing.TB, name, typ string, data any) eventstore.Position {
	t.Helper()
	body, err := json.Marshal(data)
	runtest.Must(t, err)
	meta, err := json.Marshal(event.Meta{CommandID: uuid.New(), Schema: event.FirstStep})
	runtest.Must(t, err)
	done, err := w.store.Append(
		t.Context(), name, w.next[name]-1, []eventstore.Proposed{{ID: uuid.New(), Type: typ, Data: body, Meta: meta}},
	)
	runtest.Must(t, err)
	w.next[name]++
	return done.Position
}

// id returns the id of the log.
func (w *fixture) id(context.Context) (uuid.UUID, error) { return w.logID, nil }

func (w *fixture) runtime(t testing.TB, change func(*Config), projectors ...projections.Projector) *Runtime {
	t.Helper()
	cfg := Config{
		DB: w.db, Store: w.store, Codec: w.codec, Projectors: projectors, Lease: 2 * time.Second,
		LogID:  w.id,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if change != nil {
		change(&cfg)
	}
	rt, err := New(cfg)
	runtest.Must(t, err)
	return rt
}

// start is runtime, and runs what it returns to the end of the test.
func (w *fixture) start(t testing.TB, change func(*Config), projectors ...projections.Projector) *Runtime {
	t.Helper()
	rt := w.runtime(t, change, projectors...)
	run(t, rt)
	return rt
}

// once lets a process apply one more event, and ends it.
func (w *fixture) once(t testing.TB, change func(*Config), p projections.Projector) *Runtime {
	t.Helper()
	rt := w.runtime(t, change, p)
	stop := run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	return rt
}

// run runs a runtime until stop is called, at the latest to the end of the test.
func run(t testing.TB, rt *Runtime) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// limited returns a context that ends a hanging test. A slow machine needs far less time.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustWait(t testing.TB, w *Waiter, pos eventstore.Position, names ...string) {
	t.Helper()
	runtest.Must(t, w.Wait(limited(t), pos, names...))
}

// total is a row of a tally.
type total struct {
	Stream        string
	Total, Events int64
}

func (w *fixture) totals(t testing.TB, projection string) []total {
	t.Helper()
	rows, err := w.db.Query(t.Context(), "select stream, total, events from "+projection+".totals order by stream")
	runtest.Must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[total])
	runtest.Must(t, err)
	return all
}

func (w *fixture) wantTotals(t testing.TB, projection string, want ...total) {
	t.Helper()
	if diff := cmp.Diff(want, w.totals(t, projection)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", projection, diff)
	}
}

func (w *fixture) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	runtest.Must(t, errorOf(w.db.Exec(t.Context(), sql, args...)))
}

// receive waits until a channel is closed.
func receive(t testing.TB, from <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-from:
	case <-limited(t).Done():
		t.Fatalf("%s: it does not come", what)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx := limited(t)
	for p := (backoff.Backoff{First: time.Millisecond, Longest: 50 * time.Millisecond}); !condition(); {
		if p.Wait(ctx) != nil {
			t.Fatalf("%s: it does not come about", what)
		}
	}
}

func status(t testing.TB, rt *Runtime, name string) Status {
	t.Helper()
	for _, s := range rt.Health(t.Context()) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no status of %s", name)
	return Status{}
}

// quick is a tally with one statement a page.
type quick struct{ tally }

func (q quick) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	totals := map[string]int{}
	for _, f := range page {
		totals[f.Stream] += f.Event.(*added).N
	}
	var streams []string
	var sums []int
	for name, sum := range totals {
		streams, sums = append(streams, name), append(sums, sum)
	}
	_, err := tx.Exec(ctx, `insert into totals as t select s, n, 1 from unnest($1::text[], $2::int[]) as p(s, n)
		on conflict (stream) do update set total = t.total + excluded.total, events = t.events + 1`, streams, sums)
	return err
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// wantError checks that an error is another one.
func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
