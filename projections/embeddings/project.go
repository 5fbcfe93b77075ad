// Package embeddings projects the vectors that a model made of texts, and finds the data points that are nearest to a text in meaning.
//
// Vectors lie in Postgres beside everything else that is derived from a data point: so they are rebuilt, moved and erased with it. They
// are no part of the documents of the search index, which an engine cannot change without analysing the text anew. A process that
// answers keeps those of a project in memory and compares all of them; an engine with an index of its own for vectors (knn with a
// filter) can take the place of Columns, which is all that the finder asks.
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
	"github.com/annals-project/annals/internal/unnest"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "embeddings"

//go:embed schema.sql
var schema string

// Projector keeps schema embeddings.
type Projector struct{}

var _ projections.Projector = Projector{}

// Name implements projections.Projector.
func (Projector) Name() string { return Name }

// Version implements projections.Projector.
func (Projector) Version() int { return 2 }

// Families implements projections.Projector.
func (Projector) Families() []string {
	return []string{stream.DataPoint, stream.Memory, stream.Deletion}
}

// Schema implements projections.Projector.
func (Projector) Schema() string { return schema }

// Pace implements projections.Paced: nobody waits for a vector.
func (Projector) Pace() time.Duration { return 200 * time.Millisecond }

// TextTables implements projections.TextKeeper: a vector tells much of its text.
func (Projector) TextTables() []string { return []string{"points"} }

const (
	acceptPoint = `insert into points as p (id, project_id, audience, occurred_at, revision, position) values ($1, $2, $3, $4, $5, $6)
		on conflict (id) do update set audience = excluded.audience, occurred_at = excluded.occurred_at, revision = excluded.revision,
			position = excluded.position, model = '', dims = 0, vectors = '', part = 0, partial = ''
		where p.revision < excluded.revision`
	movePoint    = `update points set audience = $2, position = $3 where id = $1 and audience <> $2`
	capturePoint = `update points set captured = $2 where id = $1 and captured < $2`
	beginVectors = `update points set part = 1, partial = $3 where id = $1 and revision = $2`
	addVectors   = `update points set part = part + 1, partial = partial || $3 where id = $1 and revision = $2 and part = $4 - 1`
	endVectors   = `update points set model = $3, dims = $4, vectors = partial, part = 0, partial = '', position = $5
		where id = $1 and revision = $2 and part = $6`
	forgetPoint = `with gone as (delete from points where id = $1 returning project_id)
		insert into removals as r (project_id, count) select project_id, 1 from gone
		on conflict (project_id) do update set count = r.count + 1`
)

// Apply writes what the events say, one statement for each, in one message.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	batch := new(pgx.Batch)
	if err := projections.Each(facts, func(f eventstore.Fact) error { return apply(batch, f) }); err != nil {
		return err
	}
	if err := unnest.Flush(ctx, tx, batch); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

func apply(batch *pgx.Batch, f eventstore.Fact) error {
	id, position := stream.Owner(f.Stream), int64(f.Position)
	switch e := f.Event.(type) {
	case *datapoint.RevisionAccepted:
		if !e.Historic() {
			batch.Queue(acceptPoint, id, e.ProjectID, e.Effect.Audience, unnest.Instant(e.Effect.OccurredAt), e.Effect.Revision, position)
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
	case *datapoint.Resent, *memory.DerivationStarted, *memory.Failed, *deletion.Accepted, *deletion.FannedOut, *deletion.Cleaned:
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

// pack is how the vectors of an event stand in a row. One of other dimensions than the rest is no vector.
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

// unpack calls with each vector of a row. The code is the row's own.
func unpack(packed []byte, dims int, yield func(scale float32, code []byte)) {
	for size := 4 + dims; dims > 0 && len(packed) >= size; packed = packed[size:] {
		yield(math.Float32frombits(binary.LittleEndian.Uint32(packed)), packed[4:size])
	}
}
