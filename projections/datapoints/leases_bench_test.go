package datapoints_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// BenchmarkClaim leases 256 items of a backlog: of very many projects, and of one with a very long
// queue.
func BenchmarkClaim(b *testing.B) {
	for _, backlog := range []struct{ projects, each int }{{10000, 10}, {1, 100000}, {16, 6000}} {
		b.Run(fmt.Sprintf("projects=%d/items=%d", backlog.projects, backlog.projects*backlog.each), func(b *testing.B) {
			db := pgtest.Database(b)
			projectiontest.Make(b, db, datapoints.New(nil))
			fillBacklog(b, db, backlog.projects, backlog.each)
			q, after := datapoints.Queries{DB: db}, uuid.Nil
			b.ResetTimer()
			for b.Loop() {
				items, next, err := q.Lease(b.Context(), work.LeaseRequest{
					Lane: work.LaneBulk, Holder: "bench", Limit: 256, After: after, Now: noon, Until: noon.Add(time.Minute),
				})
				after = next
				if err != nil || len(items) != 256 {
					b.Fatalf("%d items, %v", len(items), err)
				}
				// Release earlier leases, as happens while derivation goes on.
				b.StopTimer()
				points := make([]uuid.UUID, len(items))
				for i := range items {
					points[i] = items[i].DataPoint
				}
				if b.N%4 == 0 {
					if err := q.Release(b.Context(), "bench", points); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/claim")
		})
	}
}

// fillBacklog stores sends with one untouched item each.
func fillBacklog(b testing.TB, db *pgxpool.Pool, projects, each int) {
	b.Helper()
	for _, statement := range []string{
		`insert into datapoints.items (ingestion_id, ordinal, project_id, data_point, revision, historic, outcome, phase,
			attempt, overtaken, outdated, position, batch, bytes, due)
		select md5('send ' || n)::uuid, 0, md5('project ' || n % $1)::uuid, md5('point ' || n)::uuid, 1, false, 'created',
			'queued', 0, false, false, n, true, 300, 'bulk' from generate_series(1, $1::int * $2::int) n`,
		`insert into datapoints.sends (id, project_id, request_id, accepted_at, item_count, batch, phase, failure_open,
			round, ingestions, bytes, credit_tenths, month, fanned_out, final_phase, queued, processing, captured, failed,
				open_failures,
			unchanged, deleted, position)
		select md5('send ' || n)::uuid, md5('project ' || n % $1)::uuid, md5('send ' || n)::uuid, now(), 1, false, 'queued',
			false, 0, 1, 300, 10, '2026-11', true, '', 1, 0, 0, 0, 0, 0, 0, n from generate_series(1, $1::int * $2::int) n`,
		`insert into datapoints.revisions (data_point, number, project_id, node_id, historic, content, occurred_at,
			ingestion_id, accepted_at)
		select md5('point ' || n)::uuid, 1, md5('project ' || n % $1)::uuid, md5('node ' || n)::uuid, false,
			convert_to(repeat('x', 300), 'UTF8'), now(), md5('send ' || n)::uuid, now()
		from generate_series(1, $1::int * $2::int) n`,
	} {
		if _, err := db.Exec(b.Context(), statement, projects, each); err != nil {
			b.Fatal(err)
		}
	}
}
