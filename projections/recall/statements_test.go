package recall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// statements counts the statements of a pool.
type statements struct{ atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.Add(1) }

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// The number of statements of a recall does not grow with its limit: there is none for each document.
func TestRecall_StatementsDoNotGrowWithTheLimit(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 400 {
		id := fmt.Sprint("turn/", n)
		h.Send(recalltest.DataPoint{
			ID: id, Content: fmt.Sprintf("The harbour of town %d has ropes and %d ships.", n, n%7), Author: []string{"Ana", "Ben"}[n%2],
			Metadata: json.RawMessage(`{"m":"` + strings.Repeat("m", n) + `"}`), OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
		})
		h.Derive(id, 1, at(1).Add(time.Duration(n)*time.Minute), false, recalltest.Line{
			Kind: "claim", Content: fmt.Sprint("Town ", n, " has a harbour."), Excerpt: fmt.Sprint("The harbour of town ", n),
			Subject: fmt.Sprint("town ", n), Attribute: "harbour",
		})
	}
	h.CatchUp()
	counted, config := new(statements), h.Config()
	pool := config.DB.Config().Copy()
	pool.ConnConfig.Tracer = counted
	db, err := pgxpool.NewWithConfig(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	config.DB = db
	service := recall.New(config)
	of := map[int]int64{}
	for _, limit := range []int{1, 10, 100, 200} {
		q := h.Ask("Which harbour has ropes and ships?")
		q.Limit, q.Budget = limit, 32_000
		before := counted.Load()
		page, err := service.Recall(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Results) != limit {
			t.Fatalf("%d results, want %d", len(page.Results), limit)
		}
		of[limit] = counted.Load() - before
	}
	// Of a small project more candidates are looked up, which is one look-up more of each kind.
	const more = 2
	for limit, n := range of {
		if n == 0 || n > of[1]+more {
			t.Errorf("limit %d: %d statements, of limit 1 %d", limit, n, of[1])
		}
	}
}
