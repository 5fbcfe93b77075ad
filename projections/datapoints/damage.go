package datapoints

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/table"
)

// What somebody else did to a stream of ours in the event store.
const (
	StreamDeleted   = "deleted"   // tombstoned: nothing can be appended any more
	StreamHidden    = "hidden"    // soft-deleted: no event can be read
	StreamTruncated = "truncated" // its first events cannot be read
	StreamAged      = "aged"      // old events cannot be read
	StreamCounted   = "counted"   // all but its last events cannot be read
)

// damage is a row of table damaged_streams.
type damage struct {
	Stream   string              `db:"stream"`
	Damage   string              `db:"damage"`
	Position eventstore.Position `db:"position"`
}

var damagedStreams = table.New[damage](Name, schema, "damaged_streams")

// isOfDataPoint reports whether a stream is that of a data point or of its memories.
func isOfDataPoint(name string) bool {
	of := stream.Category(name)
	return of == stream.DataPoint || of == stream.Memory
}

// noteTombstone records that a stream ended that only the service ends, or that it does not end yet: those of a data
// point after its deletion.
func (f *fold) noteTombstone(at eventstore.Position, name string) {
	if !stream.IsOurs(name) {
		return
	}
	switch stream.Category(name) {
	case stream.DataPoint, stream.Memory:
		if f.dataPoints[stream.Owner(name)] == nil {
			f.damaged[name] = nil
			return
		}
	case stream.Blob, stream.Person, stream.Offer:
		f.damaged[name] = nil
		return
	}
	f.damaged[name] = &damage{name, StreamDeleted, at}
}

// metadataWritten records what metadata hides of a stream. The service itself truncates identities.
func (f *fold) metadataWritten(at eventstore.Position, e *eventstore.MetadataWritten) {
	what := ""
	switch of := stream.Category(e.Stream); {
	case isOfDataPoint(e.Stream) && f.dataPoints[stream.Owner(e.Stream)] == nil:
	case e.TruncatedBefore == eventstore.SoftDeleted:
		what = StreamHidden
	case e.Aged:
		what = StreamAged
	case e.Counted:
		what = StreamCounted
	case e.TruncatedBefore > 0 && of != stream.Identity:
		what = StreamTruncated
	}
	if what == "" {
		f.damaged[e.Stream] = nil
		return
	}
	f.damaged[e.Stream] = &damage{e.Stream, what, at}
}

// undamaged forgets the damage to the streams of a data point, which is deleted.
func (f *fold) undamaged(dataPoint uuid.UUID) {
	for _, of := range []string{stream.DataPoint, stream.Memory} {
		f.damaged[stream.Name(of, dataPoint)] = nil
	}
}

const deleteDamage = `delete from damaged_streams where stream = any($1::text[])`

func (f *fold) saveDamage(b *pgx.Batch) {
	var over []string
	for name, d := range f.damaged {
		if d == nil {
			over = append(over, name)
		}
	}
	if len(over) > 0 {
		slices.Sort(over) // two processes delete rows in the same order
		b.Queue(deleteDamage, over)
	}
	damagedStreams.Save(b, table.Filter(f.damaged, func(d *damage) bool { return d != nil }))
}

// DamagedStream is a stream of ours that somebody else ended or hid in the event store.
type DamagedStream struct {
	Stream string `json:"stream"`
	// Damage is deleted, hidden, truncated, aged or counted.
	Damage string `json:"damage"`
	// Position is that of the tombstone or of the metadata in the log.
	Position uint64 `json:"position"`
}

// DamagedStreams lists at most limit damaged streams by position, after a position; 0 begins.
func (q Queries) DamagedStreams(ctx context.Context, after uint64, limit int) ([]DamagedStream, error) {
	rows, err := q.DB.Query(ctx, `select stream, damage, position from datapoints.damaged_streams
		where position > $1 order by position limit $2`, int64(after), limit)
	if err != nil {
		return nil, fmt.Errorf("list damaged streams: %w", err)
	}
	damaged, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DamagedStream, err error) {
		err = row.Scan(&d.Stream, &d.Damage, &d.Position)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list damaged streams: %w", err)
	}
	return damaged, nil
}

// damagedPage is how many damaged streams EachDamaged reads at once.
const damagedPage = 500

// EachDamaged passes on all damaged streams by position.
func (q Queries) EachDamaged(ctx context.Context, emit func(DamagedStream) error) error {
	for after := uint64(0); ; {
		page, err := q.DamagedStreams(ctx, after, damagedPage)
		if err != nil {
			return err
		}
		for _, d := range page {
			if err := emit(d); err != nil {
				return err
			}
			after = d.Position
		}
		if len(page) < damagedPage {
			return nil
		}
	}
}
