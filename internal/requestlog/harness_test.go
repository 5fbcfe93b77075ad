package requestlog

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// hang is a deadline for what hangs.
const hang = 2 * time.Minute

// harness is a request log on a database of its own.
type harness struct {
	*Log
	*Writer
	db *pgxpool.Pool
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	db := pgtest.Database(t)
	return &harness{
		Log: &Log{DB: db}, db: db,
		Writer: NewWriter(db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler)),
	}
}

// add reserves room for calls, adds them, and writes them.
func (h *harness) add(t testing.TB, records ...Record) {
	t.Helper()
	for _, r := range records {
		hold, err := h.Open(t.Context(), allowance.Owner{Organization: r.Project})
		if err != nil {
			t.Fatal(err)
		}
		r.Hold = hold
		h.Add(r)
	}
	h.flushAll(t)
}

func (h *harness) flushAll(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	h.drain(ctx)
	if n := h.room.InUse(); n != 0 {
		t.Fatalf("after a flush %d bytes are reserved", n)
	}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// recordAt is a record of a call of a project at a time.
func recordAt(project uuid.UUID, at time.Time) Record {
	return Record{
		RequestID: idAt(at), Project: project, ReceivedAt: at, Endpoint: "POST /api/v1/ingest", Path: "/api/v1/ingest",
		Status: 202, Duration: 1500 * time.Microsecond, Key: Key{Name: "first", Prefix: "svc_sk_ab12"},
		Plan:    string(metering.SelfHosted),
		Payload: &Payload{Request: []byte(`{"content":"a"}`), Response: []byte(`{}`)}, RequestBytes: 15, ResponseBytes: 2,
	}
}

// idAt returns a UUIDv7 of a time.
func idAt(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	millis := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(millis >> (8 * (5 - i))) //nolint:gosec // the low 8 bits
	}
	return id
}

// pick returns one of some values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
