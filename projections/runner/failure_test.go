package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

// syncBuffer is a buffer for the log of several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// What a stopped projection stores and logs names the event and the kind of error, and quotes nothing.
func TestStop_HoldsNoTextOfTheEvent(t *testing.T) {
	t.Parallel()
	for number, kind := range map[int]string{
		refusedWithText:           "error of type *errors.errorString",
		refusedByDatabaseWithText: "the database returned error 22P02",
		refusedByDatabase:         "the database returned error 23514, table totals, constraint totals_total_check",
	} {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(t, "apple-1", 1, 2)
			bad := w.add(t, "apple-2", number)
			last := w.add(t, "apple-1", 4)
			log := new(syncBuffer)
			rt := w.start(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }, tally{family: "apple"})
			wantUnavailable(t, rt.Waiter().Wait(limited(t), last, "apples"), "has stopped")
			eventually(t, "the stop is in the checkpoint", func() bool { return NewWaiter(w.db).Stopped(t.Context(), "apples") != nil })
			stored, ok := errors.AsType[*Stop](NewWaiter(w.db).Stopped(t.Context(), "apples"))
			if !ok || stored.Position != bad || stored.Type != "tally.added.v1" || stored.EventID == uuid.Nil ||
				!strings.Contains(stored.Error(), kind) {
				t.Errorf("stored is %+v, want the event at %d and %q", stored, bad, kind)
			}
			var row string
			runtest.Must(t, w.db.QueryRow(t.Context(), `select stopped::text from apples.checkpoint`).Scan(&row))
			for what, text := range map[string]string{
				"checkpoint": row, "log": log.text(), "status": status(t, rt, "apples").Stop.Error(),
			} {
				if strings.Contains(text, "marigold") {
					t.Errorf("the %s quotes the event: %s", what, text)
				}
			}
			if !strings.Contains(log.text(), stored.EventID.String()) || !strings.Contains(log.text(), kind) {
				t.Errorf("the log does not name the event %s and %q: %s", stored.EventID, kind, log.text())
			}
		})
	}
}

func TestCauseOf(t *testing.T) {
	var number int
	undecodable := json.Unmarshal([]byte(`"marigold"`), &number)
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"rule of a fold": {
			&projections.EventError{Stream: "apple-1", Revision: 7, Err: fmt.Errorf("fold: %w", errors.New("no rule"))},
			"event 7 of apple-1: fold: no rule",
		},
		"value in a fold": {
			&projections.EventError{Stream: "apple-1", Revision: 7, Err: fmt.Errorf("metadata: %w", undecodable)},
			"error of type *json.UnmarshalTypeError",
		},
		"unknown event": {
			fmt.Errorf("page: %w", &eventstore.UnknownEventError{Stream: "apple-1", Type: "tally.of-tomorrow.v1"}),
			(&eventstore.UnknownEventError{Stream: "apple-1", Type: "tally.of-tomorrow.v1"}).Error(),
		},
		"panic":         {&panics.Error{Value: "marigold"}, "panic with a value of type string"},
		"database":      {fmt.Errorf("write: %w", &pgconn.PgError{Code: "22P05", Message: "marigold"}), "the database returned error 22P05"},
		"away for now":  {projections.Transient(errors.New("index is away")), "index is away"},
		"several":       {errors.Join(errors.New("marigold"), undecodable), "error of type *errors.errorString"},
		"a known cause": {causeOf(errors.New("marigold")), "error of type *errors.errorString"},
	} {
		got := causeOf(test.err)
		if got == nil || got.Error() != test.want || !errors.Is(got, test.err) {
			t.Errorf("%s: %v, want %q", name, got, test.want)
		}
		if transient(got) != transient(test.err) {
			t.Errorf("%s: transient %t, want %t", name, transient(got), transient(test.err))
		}
	}
	if err := causeOf(nil); err != nil {
		t.Errorf("no error has the cause %v", err)
	}
}

// A failure that no event caused stops nothing. It is repeated and named, no event can be set aside for it, and it
// ends with its cause.
func TestRunner_CauseOutsideTheEvents(t *testing.T) {
	t.Parallel()
	const trigger = `create function apples.refuse() returns trigger language plpgsql as $$begin %s; return new; end$$;
		create trigger refuse before insert on apples.totals for each row execute function apples.refuse()`
	for name, c := range map[string]struct{ damage, repair, want string }{
		"trigger that raises": {
			fmt.Sprintf(trigger, `raise 'marigold'`), `drop trigger refuse on apples.totals`,
			"the database returned error P0001 (a trigger or a function that is not of this program raised it",
		},
		"trigger with an error of a data class": {
			fmt.Sprintf(trigger, `new.total = 1 / 0`), `drop trigger refuse on apples.totals`,
			"the database returned error 22012 (a trigger or a function that is not of this program raised it",
		},
		"missing table": {
			`alter table apples.totals rename to mislaid`, `alter table apples.mislaid rename to totals`,
			"the database returned error 42P01 (something that this program made is missing or was changed",
		},
		"missing schema": {
			`alter schema apples rename to mislaid`, `alter schema mislaid rename to apples`,
			"the database returned error 42P01",
		},
		"foreign key of somebody else": {
			`create table known (stream text primary key);
			 alter table apples.totals add constraint foreign_to_us foreign key (stream) references known`,
			`alter table apples.totals drop constraint foreign_to_us`,
			"the database returned error 23503, table totals, constraint foreign_to_us (a foreign key that is not",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rt := w.start(t, nil, tally{family: "apple"})
			mustWait(t, rt.Waiter(), w.add(t, "pear-1", 1), "apples")
			w.exec(t, c.damage)
			first := w.add(t, "apple-1", 1)
			wantHeldUp(t, rt, first, c.want)
			last := w.add(t, "apple-2", 2, 3)
			w.exec(t, c.repair)
			mustWait(t, rt.Waiter(), last, "apples")
			w.wantTotals(t, "apples", total{"apple-1", 1, 1}, total{"apple-2", 5, 2})
			if s := status(t, rt, "apples"); s.Repeat != nil || s.Stop != nil || s.LastErr != nil {
				t.Errorf("it is over and still shown: %+v", s)
			}
		})
	}
}

// As TestRunner_CauseOutsideTheEvents, of what a server answers in a state that a test does not bring it to.
func TestRunner_AnswersWithCauseOutside(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"42501": "the role of ANNALS_POSTGRES lacks a right",
		"26000": "default_query_exec_mode=cache_describe",
		"42P05": "default_query_exec_mode=cache_describe",
		"25006": "the session is read-only",
		"53100": "the disk of the server is full",
		"08006": "the connection failed",
		"55P03": "an object is locked",
		"0A000": "the database returned error 0A000",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var broken atomic.Bool
			broken.Store(true)
			rt := w.start(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
				if broken.Load() {
					return fmt.Errorf("write rows: %w", &pgconn.PgError{Code: code, Message: "marigold"})
				}
				return nil
			}})
			at := w.add(t, "apple-1", 1)
			wantHeldUp(t, rt, at, want)
			broken.Store(false)
			mustWait(t, rt.Waiter(), at, "apples")
			w.wantTotals(t, "apples", total{"apple-1", 1, 1})
		})
	}
}

// wantHeldUp waits until the event at a position was tried again for a cause outside it.
func wantHeldUp(t *testing.T, rt *Runtime, at eventstore.Position, want string) {
	t.Helper()
	var now Status
	eventually(t, "the page was tried again", func() bool {
		now = status(t, rt, "apples")
		return now.Stop != nil || now.Repeat != nil && now.Repeat.Tries > 2
	})
	stopped, outside := rt.HeldUpAt(t.Context(), at)
	if now.Stop != nil || len(stopped) > 0 || outside["apples"] == nil {
		t.Fatalf("stopped %v by %v, and held up by %v", stopped, now.Stop, outside)
	}
	if text := outside["apples"].Error(); !strings.Contains(text, want) || strings.Contains(text, "marigold") {
		t.Errorf("the cause is %q, want %q", text, want)
	}
}

// setAside records that projections skip an event.
func (w *fixture) setAside(t testing.TB, at eventstore.Position, projections ...string) eventstore.Position {
	t.Helper()
	return w.append(t, stream.Registry, registry.EventSetAside{}.EventType(),
		registry.EventSetAside{Position: uint64(at), Projections: projections})
}

func TestRunner_SetAsideEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"}, tally{family: "pear"})
	other := w.start(t, nil, tally{family: "apple"})
	w.add(t, "apple-1", 1)
	bad := w.add(t, "apple-1", refusedByApply)
	last := w.add(t, "apple-1", 2)
	// After one process stops and releases its lease, the other one tries. The projection has stopped
	// once both have.
	eventually(t, "both have stopped", func() bool {
		s := status(t, rt, "apples")
		return rt.StoppedHere(t.Context(), "apples") && other.StoppedHere(t.Context(), "apples") && s.Stop != nil &&
			s.Stop.Position == bad
	})
	w.setAside(t, bad, "pears")
	w.setAside(t, bad+1)
	runtest.Must(t, rt.RefreshSetAside(t.Context()))
	if s := status(t, rt, "apples"); s.Stop == nil {
		t.Error("it continues though its event is set aside for another projection only")
	}
	w.setAside(t, bad, "apples")
	eventually(
		t, "neither runner is stopped",
		func() bool { return status(t, rt, "apples").Stop == nil && status(t, other, "apples").Stop == nil },
	)
	mustWait(t, rt.Waiter(), last, "apples")
	mustWait(t, other.Waiter(), w.add(t, "apple-1", 4), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
	// The other process may have continued before this one read the set-aside event.
	runtest.Must(t, rt.RefreshSetAside(t.Context()))
	if all := rt.IsSetAside(); len(all) != 2 || len(all[bad].Projections) != 2 {
		t.Errorf("set aside is %+v", all)
	}
}

// A rebuild skips an event that is set aside later in the log.
func TestRebuild_SetAsideEvent(t *testing.T) {
	w := newWorld(t)
	w.add(t, "apple-1", 1)
	w.setAside(t, w.add(t, "apple-1", refusedByPanic))
	w.setAside(t, w.append(t, "apple-1", "apple.unheard-of.v1", struct{}{}))
	last := w.add(t, "apple-1", 2)
	rt := w.start(t, nil, tally{family: "apple"})
	mustWait(t, rt.Waiter(), last, "apples")
	runtest.Must(t, rt.Rebuild(t.Context(), "apples", nil))
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// Catch-up reads a long log in large pages. It applies the events before one that cannot be
// applied, and no more.
func TestCatchUp_StopsAtTheEvent(t *testing.T) {
	w := newWorld(t)
	many := func(n int) (last eventstore.Position) {
		t.Helper()
		data, err := json.Marshal(added{N: 1})
		runtest.Must(t, err)
		meta, err := json.Marshal(event.Meta{Schema: event.FirstStep})
		runtest.Must(t, err)
		events := make([]eventstore.Proposed, n)
		for i := range events {
			events[i] = eventstore.Proposed{ID: uuid.New(), Type: added{}.EventType(), Data: data, Meta: meta}
		}
		done, err := w.store.Append(t.Context(), "apple-"+uuid.NewString(), eventstore.NoStream, events)
		runtest.Must(t, err)
		return done.Position
	}
	many(3000)
	bad := w.add(t, "apple-bad", -5)
	last := many(3000)
	rt := w.start(t, nil, quick{tally{family: "apple"}})
	eventually(t, "the projector stops", func() bool { return status(t, rt, "apples").Stop != nil })
	if s := status(t, rt, "apples"); s.Stop.Position != bad || s.Stop.Stream != "apple-bad" {
		t.Errorf("stopped at %+v", s.Stop)
	}
	sum := func() (n int64) {
		t.Helper()
		runtest.Must(t, w.db.QueryRow(t.Context(), `select sum(total) from apples.totals`).Scan(&n))
		return n
	}
	if n := sum(); n != 3000 {
		t.Errorf("%d are applied", n)
	}
	w.setAside(t, bad)
	eventually(t, "the projector goes on", func() bool { return status(t, rt, "apples").Stop == nil })
	mustWait(t, rt.Waiter(), last, "apples")
	if n := sum(); n != 6000 {
		t.Errorf("%d are applied", n)
	}
}

// whole is a tally that gets the events that are set aside too, and remembers them.
type whole struct {
	tally
	undecoded chan eventstore.Position
}

func (whole) TakesSetAside() {}

func (p whole) Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error {
	for n, f := range page {
		if f.Err != nil {
			p.undecoded <- f.Position
			page = append(slices.Clone(page[:n]), page[n+1:]...)
			return p.Apply(ctx, tx, page)
		}
	}
	return p.tally.Apply(ctx, tx, page)
}

// A projector that takes what is set aside stops at an event that cannot be decoded, and gets it once it is set aside.
func TestRunner_WholeProjector(t *testing.T) {
	w := newWorld(t)
	undecoded := make(chan eventstore.Position, 10)
	w.add(t, "apple-1", 1)
	bad := w.append(t, "apple-1", "apple.unheard-of.v1", struct{}{})
	last := w.add(t, "apple-1", 2)
	rt := w.start(t, nil, whole{tally{family: "apple"}, undecoded})
	eventually(t, "it stops", func() bool { return status(t, rt, "apples").Stop != nil })
	if len(undecoded) > 0 {
		t.Error("it got the event before that was set aside")
	}
	w.setAside(t, bad)
	eventually(t, "it goes on", func() bool { return status(t, rt, "apples").Stop == nil })
	mustWait(t, rt.Waiter(), last, "apples")
	if got := <-undecoded; got != bad {
		t.Errorf("it got %d, want %d", got, bad)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}
