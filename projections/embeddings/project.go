// Package embeddings projects the vectors that a model made of texts, and finds the data points
// that are nearest to a text: semantic search.
//
// The vectors are in Postgres, with all else that is derived from a data point, so that they are
// rebuilt, moved and erased with it. They are not in the index documents: an engine could not
// change them without analysing the text again. A process that serves recalls keeps the vectors of
// a project in memory and compares all of them (Columns). An engine with a vector index that
// supports filters could replace Columns.
package embeddings

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Embeddings

//go:embed schema.sql
var schema string

// Projector keeps schema embeddings.
type Projector struct{ projections.Base }

// New makes the projector.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 2, Categories: []string{stream.DataPoint, stream.Memory, stream.Deletion}, Schema: schema,
		TextTables: []string{"points"}, // a text can be guessed from its vector
		Counted:    []string{"points"},
		Pace:       projections.Pace{Min: 200 * time.Millisecond},
	})}
}

const (
	acceptPoint = `insert into points as p (id, project_id, audience, occurred_at, revision, position) values ($1, $2,
		$3, $4, $5, $6)
		on conflict (id) do update set audience = excluded.audience, occurred_at = excluded.occurred_at,
			revision = excluded.revision,
			position = excluded.position, model = '', dims = 0, vectors = '', part = 0, partial = ''
		where p.revision < excluded.revision`
	movePoint    = `update points set audience = $2, position = $3 where id = $1 and audience <> $2`
	capturePoint = `update points set captured = $2 where id = $1 and captured < $2`
	beginVectors = `update points set part = 1, partial = $3 where id = $1 and revision = $2`
	addVectors   = `update points set part = part + 1, partial = partial || $3 where id = $1 and revision = $2
		and part = $4 - 1`
	endVectors = `update points set model = $3, dims = $4, vectors = partial, part = 0, partial = '', position = $5
		where id = $1 and revision = $2 and part = $6`
	forgetPoint = `with gone as (delete from points where id = $1 returning project_id)
		insert into removals as r (project_id, count) select project_id, 1 from gone
		on conflict (project_id) do update set count = r.count + 1`
)

// Apply writes the page, with one statement for each change, in one round trip.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	batch := new(pgx.Batch)
	queue := func(decoded eventstore.DecodedEvent) error { return apply(batch, decoded) }
	if err := projections.Each(events, queue); err != nil {
		return err
	}
	if err := pgarray.Flush(ctx, tx, batch); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func apply(batch *pgx.Batch, decoded eventstore.DecodedEvent) error {
	id, position := stream.Owner(decoded.Stream), int64(decoded.Position)
	switch e := decoded.Event.(type) {
	case *datapoint.RevisionAccepted:
		if !e.Historic() {
			batch.Queue(acceptPoint, id, e.ProjectID, e.Effect.Audience, pgarray.Instant(e.Effect.OccurredAt),
				e.Effect.Revision, position)
		}
	case *datapoint.Moved:
		if !e.Historic() {
			batch.Queue(movePoint, id, e.Effect.Audience, position)
		}
	case *datapoint.Deleted:
		batch.Queue(forgetPoint, id)
	case *deletion.FactsKept:
		batch.Queue(forgetPoint, e.DataPoint)
	case *memory.Derived:
		batch.Queue(capturePoint, id, e.Revision)
	case *memory.Embedded:
		if e.Part == 1 {
			batch.Queue(beginVectors, id, e.Revision, pack(e))
		} else {
			batch.Queue(addVectors, id, e.Revision, pack(e), e.Part)
		}
		if e.Part == e.Parts {
			batch.Queue(endVectors, id, e.Revision, e.Model, e.Dims, position, e.Parts)
		}
	case *datapoint.Resent, *memory.DerivationStarted, *memory.Failed,
		*deletion.Accepted, *deletion.FannedOut, *deletion.Cleaned:
	default:
		return fmt.Errorf("no rule for %s", decoded.Type)
	}
	return nil
}

// pack encodes the vectors of an event for a row. It drops vectors that do not have the dimensions
// of the event.
func pack(e *memory.Embedded) []byte {
	packed := []byte{}
	for _, v := range e.Vectors {
		if len(v.Code) == e.Dims {
			packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(v.Scale))
			packed = append(packed, v.Code...)
		}
	}
	return packed
}

// unpack calls yield with each vector of a row. code aliases packed.
func unpack(packed []byte, dims int, yield func(scale float32, code []byte)) {
	for size := 4 + dims; dims > 0 && len(packed) >= size; packed = packed[size:] {
		yield(math.Float32frombits(binary.LittleEndian.Uint32(packed)), packed[4:size])
	}
}
