package runner

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
)

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
			rt := w.runtime(t, nil, tally{family: "apple"})
			run(t, rt)
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
			rt := w.runtime(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
				if broken.Load() {
					return fmt.Errorf("write rows: %w", &pgconn.PgError{Code: code, Message: "marigold"})
				}
				return nil
			}})
			run(t, rt)
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
