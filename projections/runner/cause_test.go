package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
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
			rt := w.runtime(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }, tally{family: "apple"})
			run(t, rt)
			wantUnavailable(t, rt.Waiter().Wait(limited(t), last, "apples"), "has stopped")
			eventually(t, "the stop is in the checkpoint", func() bool { return NewWaiter(w.db).Stopped(t.Context(), "apples") != nil })
			stored, ok := errors.AsType[*Stop](NewWaiter(w.db).Stopped(t.Context(), "apples"))
			if !ok || stored.Position != bad || stored.Type != "tally.added.v1" || stored.EventID == uuid.Nil ||
				!strings.Contains(stored.Error(), kind) {
				t.Errorf("stored is %+v, want the event at %d and %q", stored, bad, kind)
			}
			var row string
			if err := w.db.QueryRow(t.Context(), `select stopped::text from apples.checkpoint`).Scan(&row); err != nil {
				t.Fatal(err)
			}
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
