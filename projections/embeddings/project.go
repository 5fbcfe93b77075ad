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

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
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
		Name: Name, Version: 1, Categories: []string{stream.DataPoint, stream.Memory, stream.Deletion}, Schema: schema,
		TextTables: []string{"vectors"}, // a text can be guessed from its vector
		Counted:    []string{"points"},
		Pace:       projections.Pace{Min: 200 * time.Millisecond},
	})}
}

// No row is loaded: each statement is of one event, and depends on the revision of the row that is there.
const (
	acceptPoint = `insert into points as p (id, project_id, audience, occurred_at, spoken, revision, position)
		values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (id) do update set audience = excluded.audience, occurred_at = excluded.occurred_at,
			spoken = excluded.spoken, revision = excluded.revision, position = excluded.position, model = ''
		where p.revision < excluded.revision`
	// dropVectors drops those of the revisions before the one that was accepted at a position.
	dropVectors  = `delete from vectors v using points p where v.id = $1 and p.id = $1 and p.position = $2`
	movePoint    = `update points set audience = $2, position = $3 where id = $1 and audience <> $2`
	capturePoint = `update points set captured = $2 where id = $1 and captured < $2`
	beginVectors = `insert into vectors (id, model, part, partial)
		select id, $3, 1, $4 from points where id = $1 and revision = $2
		on conflict (id, model) do update set part = 1, partial = excluded.partial`
	addVectors = `update vectors set part = part + 1, partial = partial || $4 where id = $1 and model = $3
		and part = $5 - 1 and exists (select from points where id = $1 and revision = $2)`
	endVectors = `with complete as (
			update vectors set dims = $4, vectors = partial, part = 0, partial = ''
			where id = $1 and model = $3 and part = $6 and exists (select from points where id = $1 and revision = $2)
			returning id
		)
		update points set model = $3, position = $5 where id in (select id from complete)`
	forgetVectors = `delete from vectors where id = $1`
	forgetPoint   = `with gone as (delete from points where id = $1 returning project_id)
		insert into removals (project_id, position, id) select project_id, $2, $1 from gone`
	// pruneRemovals keeps the last removals of a project. A process that lacks earlier ones reads the project again.
	pruneRemovals = `with old as (
			delete from removals where project_id = $1 and position <= (
				select position from removals where project_id = $1 order by position desc offset $2 limit 1)
			returning position
		)
		insert into pruned as p (project_id, position) select $1, max(position) from old having max(position) is not null
		on conflict (project_id) do update set position = greatest(p.position, excluded.position)`
)

// keptRemovals is how many removals of a project are listed.
const keptRemovals = 1000

// Apply writes the page, with a few statements for each change, in one round trip.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	w := writer{removed: make(map[uuid.UUID]struct{})}
	if err := projections.Each(events, w.apply); err != nil {
		return err
	}
	for project := range w.removed {
		w.batch.Queue(pruneRemovals, project, keptRemovals)
	}
	if err := pgarray.Flush(ctx, tx, &w.batch); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

// writer collects the statements of a page, and the projects that it deletes data points of.
type writer struct {
	batch   pgx.Batch
	removed map[uuid.UUID]struct{}
}

func (w *writer) apply(decoded eventstore.DecodedEvent) error {
	id, position := stream.Owner(decoded.Stream), int64(decoded.Position)
	switch e := decoded.Event.(type) {
	case *datapoint.RevisionAccepted:
		if !e.Historic() {
			w.batch.Queue(acceptPoint, id, e.ProjectID, e.Effect.Audience, pgarray.Instant(e.Effect.OccurredAt),
				e.Author != "", e.Effect.Revision, position)
			w.batch.Queue(dropVectors, id, position)
		}
	case *datapoint.Moved:
		if !e.Historic() {
			w.batch.Queue(movePoint, id, e.Effect.Audience, position)
		}
	case *datapoint.Deleted:
		w.forget(id, e.ProjectID, position)
	case *deletion.FactsKept:
		w.forget(e.DataPoint, e.ProjectID, position)
	case *memory.Derived:
		w.batch.Queue(capturePoint, id, e.Revision)
	case *memory.Embedded:
		if e.Part == 1 {
			w.batch.Queue(beginVectors, id, e.Revision, e.Model, pack(e))
		} else {
			w.batch.Queue(addVectors, id, e.Revision, e.Model, pack(e), e.Part)
		}
		if e.Part == e.Parts {
			w.batch.Queue(endVectors, id, e.Revision, e.Model, e.Dims, position, e.Parts)
		}
	}
	return nil
}

func (w *writer) forget(id, project uuid.UUID, position int64) {
	w.batch.Queue(forgetVectors, id)
	w.batch.Queue(forgetPoint, id, position)
	w.removed[project] = struct{}{}
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

// LiveModel stores which model's vectors recall compares, for all processes. It is not part of the log: any model of
// which there are vectors may be live.
type LiveModel struct{ DB *pgxpool.Pool }

// Begin makes a model the live one if there is none yet, and returns the name of the live one.
func (l LiveModel) Begin(ctx context.Context, name string) (live string, err error) {
	_, err = l.DB.Exec(ctx, `insert into ops.embedding_model (name) values ($1) on conflict do nothing`, name)
	if err != nil {
		return "", fmt.Errorf("store the live embedding model: %w", err)
	}
	return l.Read(ctx)
}

// Stored returns the name of the live model, "" if there is none, and whether vectors of it are projected.
func (l LiveModel) Stored(ctx context.Context) (live string, vectors bool, err error) {
	var projected bool
	err = l.DB.QueryRow(ctx, `select coalesce((select name from ops.embedding_model), ''),
		to_regclass('embeddings.vectors') is not null`).Scan(&live, &projected)
	if err == nil && projected && live != "" {
		err = l.DB.QueryRow(ctx, `select exists (select from embeddings.vectors where model = $1 and dims > 0)`,
			live).Scan(&vectors)
	}
	if err != nil {
		return "", false, fmt.Errorf("read the model of the stored vectors: %w", err)
	}
	return live, vectors, nil
}

// Forget makes no model the live one.
func (l LiveModel) Forget(ctx context.Context) error {
	if _, err := l.DB.Exec(ctx, `delete from ops.embedding_model`); err != nil {
		return fmt.Errorf("forget the live embedding model: %w", err)
	}
	return nil
}

// Read returns the name of the live model.
func (l LiveModel) Read(ctx context.Context) (name string, err error) {
	if err := l.DB.QueryRow(ctx, `select name from ops.embedding_model`).Scan(&name); err != nil {
		return "", fmt.Errorf("read the live embedding model: %w", err)
	}
	return name, nil
}

// Switch makes a model the live one.
func (l LiveModel) Switch(ctx context.Context, name string) error {
	_, err := l.DB.Exec(ctx, `update ops.embedding_model set name = $1, switched_at = now()`, name)
	if err != nil {
		return fmt.Errorf("switch the live embedding model: %w", err)
	}
	return nil
}

// droppedAtOnce is how many vectors one statement deletes.
const droppedAtOnce = 1000

// DropOthers deletes the vectors of models that are not the live one, if it has been the live one for a while: until
// then other processes may compare those of the model before it.
func (l LiveModel) DropOthers(ctx context.Context, after time.Duration) error {
	for {
		tag, err := l.DB.Exec(ctx, `with live as (
				select name from ops.embedding_model where switched_at < now() - $1::interval
			), others as (
				select id, model from embeddings.vectors, live where model < live.name or model > live.name limit $2
			)
			delete from embeddings.vectors v using others o where v.id = o.id and v.model = o.model`, after, droppedAtOnce)
		if err != nil {
			return fmt.Errorf("drop the vectors of other models: %w", err)
		}
		if tag.RowsAffected() < droppedAtOnce {
			return nil
		}
	}
}

// Progress is how far the vectors of a model are made.
type Progress struct {
	// Model is the model of the vectors, Live the one that recall uses.
	Model string `json:"model"`
	Live  string `json:"live"`
	// Embedded of Captured data points have vectors of the model.
	Embedded int64 `json:"embedded"`
	Captured int64 `json:"captured"`
}

// Progress counts what a model embedded. "" is no model, with the zero value.
func (q Queries) Progress(ctx context.Context, model string) (p Progress, err error) {
	if p.Model = model; model == "" {
		return p, nil
	}
	err = q.DB.QueryRow(ctx, `select (select name from ops.embedding_model), count(*) filter (where model = $1), count(*)
		from embeddings.points where captured = revision`, model).Scan(&p.Live, &p.Embedded, &p.Captured)
	if err != nil {
		return p, fmt.Errorf("count embeddings: %w", err)
	}
	return p, nil
}

// Queries reads the tables of this projection.
type Queries struct{ DB *pgxpool.Pool }

const selectUnembedded = `select project_id, id, revision from embeddings.points
	where captured = revision and model = '' and id <> all($1::uuid[]) limit $2`

// Unembedded lists at most limit captured revisions without vectors, in any order, except those of the data points in
// but.
func (q Queries) Unembedded(ctx context.Context, but []uuid.UUID, limit int) ([]work.Embedding, error) {
	return q.list(ctx, selectUnembedded, exceptions(but), limit)
}

// Search between the empty name and that of the model, and above it: an index serves both, but not "<>".
const selectOfOthers = `select project_id, id, revision from (
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > ''
			and model < $1 and id <> all($2::uuid[]) limit $3) a
		union all
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > $1
			and id <> all($2::uuid[]) limit $3) b
	) due limit $3`

// EmbeddedByOthers lists at most limit captured revisions whose last vectors another model made, in any order, except
// those of the data points in but.
func (q Queries) EmbeddedByOthers(
	ctx context.Context, model string, but []uuid.UUID, limit int,
) ([]work.Embedding, error) {
	return q.list(ctx, selectOfOthers, model, exceptions(but), limit)
}

func exceptions(but []uuid.UUID) []uuid.UUID {
	return pgarray.IDs(but, func(id uuid.UUID) uuid.UUID { return id })
}

func (q Queries) list(ctx context.Context, query string, args ...any) ([]work.Embedding, error) {
	rows, err := q.DB.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list pending embeddings: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e work.Embedding, err error) {
		err = row.Scan(&e.ProjectID, &e.DataPoint, &e.Revision)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("list pending embeddings: %w", err)
	}
	return list, nil
}
