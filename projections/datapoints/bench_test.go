package datapoints_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// BenchmarkApply applies pages of 512 events of single sends from acceptance to completion.
func BenchmarkApply(b *testing.B) {
	db, p := pgtest.Database(b), datapoints.New(nil)
	projectiontest.Make(b, db, p)
	const page = 512
	var position eventstore.Position
	number := 0
	fact := func(name string, e event.Event) eventstore.DecodedEvent {
		position += 100
		return eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{Stream: name, Position: position, Type: e.EventType()}, Event: e,
		}
	}
	next := func() []eventstore.DecodedEvent {
		var facts []eventstore.DecodedEvent
		var tail []eventstore.DecodedEvent
		for range page / 4 {
			number++
			dataPoint, send, source := uuid.New(), uuid.Must(uuid.NewV7()), fmt.Sprintf("source %d", number)
			facts = append(facts, fact(stream.Name(stream.DataPoint, dataPoint), &datapoint.RevisionAccepted{
				Send: datapoint.Send{
					ProjectID: project.ID, IngestionID: send, Items: 1, AcceptedAt: noon, RequestID: send, Bytes: 300,
					CreditTenths: 10, Month: "2026-11",
				},
				States: datapoint.States{
					Effect: datapoint.State{SourceID: source, Revision: 1, LastNumber: 1, OccurredAt: noon, IngestionID: send},
				},
				Body: datapoint.Body{Content: datapoint.Text{Inline: string(make([]byte, 300))}},
			}))
			tail = append(tail,
				fact(stream.Name(stream.Memory, dataPoint),
					&memory.DerivationStarted{ProjectID: project.ID, IngestionID: send, Revision: 1, Attempt: 1, StartedAt: noon}),
				fact(stream.Name(stream.Memory, dataPoint),
					&memory.Derived{ProjectID: project.ID, IngestionID: send, Revision: 1, DerivedAt: noon}),
				fact(stream.Name(stream.Ingestion, send), &ingestion.Indexed{ProjectID: project.ID, IndexedAt: noon}))
		}
		return append(facts, tail...)
	}
	var pages [][]eventstore.DecodedEvent
	for range 20 {
		pages = append(pages, next())
	}
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		if n == len(pages) {
			b.StopTimer()
			pages = append(pages, next())
			b.StartTimer()
		}
		projectiontest.Apply(b, db, p, pages[n]...)
	}
	b.ReportMetric(float64(b.N*page)/b.Elapsed().Seconds(), "events/s")
}

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
					runtest.Must(b, q.Release(b.Context(), "bench", points))
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
		exec(b, db, statement, projects, each)
	}
}
