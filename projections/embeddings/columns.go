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

// Query is a semantic search in a project.
type Query struct {
	Project uuid.UUID
	// Audiences are those that the viewer reaches; uuid.Nil is what is project-visible. An empty
	// list finds nothing.
	Audiences []uuid.UUID
	// From and To limit when a data point occurred, inclusive; nil is unlimited.
	From, To *time.Time
	// Size is the most hits to return.
	Size int
}

// Hit is a data point that semantic search found. Similarity is the cosine of its best vector.
type Hit struct {
	DataPoint  uuid.UUID
	Revision   int
	Similarity float64
}

// columnsBytes is about the most memory for vectors. Above it, the projects that were searched
// longest ago are evicted.
const columnsBytes = 1 << 30

// Columns keeps the vectors of one model in memory, by project. It is safe for concurrent use.
type Columns struct {
	db    *pgxpool.Pool
	model string
	log   *slog.Logger

	mu       sync.Mutex
	projects map[uuid.UUID]*column
}

// NewColumns makes columns for the vectors of a model. It ignores those of other models.
func NewColumns(db *pgxpool.Pool, model string) *Columns {
	return &Columns{db: db, model: model, log: slog.New(slog.DiscardHandler), projects: make(map[uuid.UUID]*column)}
}

// Nearest finds the nearest data points by brute force, best first. It knows all vectors in the
// table at the call.
func (c *Columns) Nearest(ctx context.Context, q Query, vector []float32) ([]Hit, error) {
	scale, code, ok := memory.Quantize(vector)
	if !ok {
		return nil, nil
	}
	col := c.of(q.Project)
	if err := col.catchUp(ctx, c.db, c.model, q.Project); err != nil {
		return nil, err
	}
	c.evict(col)
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

// evict evicts the columns that were searched longest ago, but not the given one, while all are
// too big.
func (c *Columns) evict(but *column) {
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
	selectVectors  = `select id, audience, occurred_at, revision, case when model = $3 then dims else 0 end,
		case when model = $3 then vectors else '' end, position
		from embeddings.points where project_id = $1 and position > $2 order by position`
)

// catchUp reads the changes of the table. Deleted data points stay, since the gate of recall hides
// them, until there are too many; then the column is read again.
func (col *column) catchUp(ctx context.Context, db *pgxpool.Pool, model string, project uuid.UUID) error {
	col.sync.Lock()
	defer col.sync.Unlock()
	for {
		batch := new(pgx.Batch)
		var removals int64
		reread := false
		batch.Queue(selectRemovals, project).QueryRow(func(row pgx.Row) error { return row.Scan(&removals) })
		batch.Queue(selectVectors, project, col.position, model).Query(func(rows pgx.Rows) error {
			if reread = removals < col.removals || removals-col.removals > col.tolerated(); reread {
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
		if !reread && !col.wasteful() {
			return nil
		}
		col.clear(removals)
	}
}
