package datapoints_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
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
