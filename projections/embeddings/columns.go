package embeddings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/memory"
)

// Query asks for the data points of a project that are nearest to a direction.
type Query struct {
	Project uuid.UUID
	// Audiences are those that the reader reaches, uuid.Nil for what is project-visible; none reaches nothing.
	Audiences []uuid.UUID
	// From and To bound when a data point occurred, inclusive; nil is open.
	From, To *time.Time
	// Size is the most hits.
	Size int
}

// Hit is a data point that was found by its meaning. Similarity is the cosine of its best vector.
type Hit struct {
	DataPoint  uuid.UUID
	Revision   int
	Similarity float64
}

// columnsBytes is about the most that vectors take in memory; those of the project that was asked longest ago make room.
const columnsBytes = 1 << 30

// Columns keeps the vectors of one model in memory, by project, as the table has them. It is safe for concurrent use.
type Columns struct {
	db    *pgxpool.Pool
	model string
	log   *slog.Logger

	mu       sync.Mutex
	projects map[uuid.UUID]*column
}

// NewColumns makes columns of the vectors of a model; those of other models are passed over.
func NewColumns(db *pgxpool.Pool, model string) *Columns {
	return &Columns{db: db, model: model, log: slog.New(slog.DiscardHandler), projects: make(map[uuid.UUID]*column)}
}

// Nearest finds the best data points by brute force, the best first. What the table holds when it is called is known to it.
func (c *Columns) Nearest(ctx context.Context, q Query, vector []float32) ([]Hit, error) {
	scale, code, ok := memory.Quantize(vector)
	if !ok {
		return nil, nil
	}
	col := c.of(q.Project)
	if err := col.catchUp(ctx, c.db, c.model, q.Project); err != nil {
		return nil, err
	}
	c.makeRoom(col)
	hits, err := col.nearest(ctx, c.log, q, scale, code)
	return hits, errors.Join(err, ctx.Err())
}

func (c *Columns) of(project uuid.UUID) *column {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.projects[project]
	if col == nil {
		col = new(column)
		c.projects[project] = col
	}
	col.asked.Store(time.Now().UnixNano())
	return col
}

// makeRoom forgets the columns that were asked longest ago while all together are too big, but for one.
func (c *Columns) makeRoom(but *column) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		total := int64(0)
		var oldest uuid.UUID
		var since int64
		for id, col := range c.projects {
			total += col.size.Load()
			if asked := col.asked.Load(); col != but && (since == 0 || asked < since) {
				oldest, since = id, asked
			}
		}
		if total <= columnsBytes || since == 0 {
			return
		}
		delete(c.projects, oldest)
	}
}

const (
	selectRemovals = `select coalesce((select count from embeddings.removals where project_id = $1), 0)`
	selectVectors  = `select id, audience, occurred_at, revision, case when model = $3 then dims else 0 end, case when model = $3 then vectors else '' end, position
		from embeddings.points where project_id = $1 and position > $2 order by position`
)

// catchUp reads what changed. What was removed stays, hidden by the gate of whoever shows it, until it is too much.
func (col *column) catchUp(ctx context.Context, db *pgxpool.Pool, model string, project uuid.UUID) error {
	col.sync.Lock()
	defer col.sync.Unlock()
	for {
		batch := new(pgx.Batch)
		var removals int64
		anew := false
		batch.Queue(selectRemovals, project).QueryRow(func(row pgx.Row) error { return row.Scan(&removals) })
		batch.Queue(selectVectors, project, col.position, model).Query(func(rows pgx.Rows) error {
			if anew = removals < col.removals || removals-col.removals > col.tolerated(); anew {
				return nil
			}
			for rows.Next() {
				var p entry
				var dims int
				var packed []byte
				var position int64
				if err := rows.Scan(&p.id, &p.audience, &p.occurredAt, &p.revision, &dims, &packed, &position); err != nil {
					return err
				}
				col.put(p, dims, packed)
				col.position = position
			}
			return rows.Err()
		})
		if err := db.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("read vectors: %w", err)
		}
		if !anew && !col.wasteful() {
			return nil
		}
		col.clear(removals)
	}
}
