package audit_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
)

// many appends events of a project.
func many(b *testing.B, l *audittest.Log, count int) (organization uuid.UUID) {
	b.Helper()
	organization, project := l.OfProject()
	name := stream.Name(stream.Identity, uuid.New())
	data := fmt.Appendf(nil, `{"projectId":%q,"requestId":%q}`, project, uuid.NewString())
	for n := range count {
		meta := []byte(`{"commandId":"` + uuid.NewString() + `","schema":1,"at":"2026-11-05T12:00:00Z"}`)
		l.Put(organization, name, eventstore.Proposed{
			ID: uuid.New(), Type: identity.Removed{}.EventType(), Data: data,
			Meta: event.WithSalt(meta, [event.SaltSize]byte(binary.BigEndian.AppendUint64(make([]byte, 8), uint64(n)))),
		})
	}
	return organization
}

// ended is a log that ends with each page.
type ended struct{ audit.Log }

func (ended) Head(context.Context) (eventstore.Position, error) { return 0, nil }

// BenchmarkProjector applies a log that was read and decoded: in one rebuild, in which leaves wait for the end, and in
// pages at the end of the log.
func BenchmarkProjector(b *testing.B) {
	l := audittest.New(b, 1)
	organization := many(b, l, 100_000)
	events := l.Events(0)
	p, db := audit.New(l.Store, l.Codec), pgtest.Database(b)
	projectiontest.Make(b, db, p)
	for name, c := range map[string]struct {
		audit.Projector
		page int
	}{"rebuild": {p, 4096}, "pages": {audit.New(ended{l.Store}, l.Codec), 512}} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				projectiontest.Empty(b, db, p)
				b.StartTimer()
				for page := range slices.Chunk(events, c.page) {
					projectiontest.Apply(b, db, c, page...)
				}
				if err := projectiontest.FollowUp(b.Context(), db, c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "leaves/s")
		})
	}
	q := audit.Queries{DB: db}
	b.Run("proof", func(b *testing.B) {
		reader, size := q.Reader(b.Context(), organization), int64(len(l.Leaves[organization]))
		for n := range b.N {
			if _, err := tlog.ProveRecord(size, int64(n)*7919%size, reader); err != nil {
				b.Fatal(err)
			}
		}
	})
}
