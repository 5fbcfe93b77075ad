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
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/panics"
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

// Hit is a data point that semantic search found. Similarity is that of its best vector, Window the mean of it and of
// its neighbours in the conversation: both in standard deviations above what is usual among the data points that the
// query may read, or in quarters of the cosine if these are too few. Cosine is that of its best vector, to 1; what is
// below 0 is about 0.
type Hit struct {
	DataPoint          uuid.UUID
	Revision           int
	Similarity, Window float64
	Cosine             float64
}

// Found is what a search found: the nearest data points, and how near others are.
type Found struct {
	// Hits are the nearest data points, best first, none with a cosine below Least.
	Hits []Hit
	// Least is the cosine from which a text has something in common with the query, 0 if the model has no such limit.
	Least  float64
	search *search
}

// Of returns how near data points are, in any order: those of ids that have vectors and that the query may read, also
// those below Least. A nil Found knows none.
func (f *Found) Of(ids []uuid.UUID) []Hit {
	if f == nil || f.search == nil {
		return nil
	}
	return f.search.of(ids)
}

// columnsBytes is about the most memory for vectors. Above it, the projects that were searched
// longest ago are evicted. One project has at most half of it: of more vectors, those of the data
// points that changed longest ago are left out, and recall finds these by words.
const columnsBytes = 1 << 30

// Columns keeps the vectors of one model in memory, by project. It is safe for concurrent use.
type Columns struct {
	db    *pgxpool.Pool
	model string
	least Least
	log   *slog.Logger
	bytes int64 // columnsBytes, or less in a test

	mu       sync.Mutex
	projects map[uuid.UUID]*column
}

// NewColumns makes columns for the vectors of a model. It ignores those of other models.
func NewColumns(db *pgxpool.Pool, model string) *Columns {
	return &Columns{
		db: db, model: model, log: slog.New(slog.DiscardHandler), bytes: columnsBytes, projects: make(map[uuid.UUID]*column),
	}
}

// WithLeast sets the least cosine of hits, and returns the columns. It is called before the first search; without it
// there is no limit.
func (c *Columns) WithLeast(least Least) *Columns {
	c.least = least
	return c
}

// Nearest finds the data points nearest to the vector that embed returns. It knows all vectors in the table at the
// call, as many as a project may have in memory: it reads new ones while embed runs.
func (c *Columns) Nearest(ctx context.Context, q Query, embed func() ([]float32, error)) (*Found, error) {
	col := c.of(q.Project)
	var group errgroup.Group
	group.Go(func() error {
		return panics.Call(ctx, c.log, "reading vectors panicked", func() error {
			return col.catchUp(ctx, c.db, c.model, q.Project)
		})
	})
	vector, err := embed()
	if err := errors.Join(err, group.Wait()); err != nil {
		return nil, err
	}
	c.evict(col)
	scale, code, ok := memory.Quantize(vector)
	if !ok {
		return new(Found), nil
	}
	s := newSearch(col, q, scale, code)
	s.leastOf = c.least
	hits, err := s.run(ctx, c.log)
	if err != nil {
		return nil, err
	}
	return &Found{hits, float64(s.least), s}, nil
}

func (c *Columns) of(project uuid.UUID) *column {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.projects[project]
	if col == nil {
		col = &column{limit: c.bytes / 2}
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
		if total <= c.bytes || since == 0 {
			return
		}
		delete(c.projects, oldest)
	}
}

const (
	selectPruned   = `select coalesce((select position from embeddings.pruned where project_id = $1), 0)`
	selectRemovals = `select id, position from embeddings.removals where project_id = $1 and position > $2
		order by position`
	selectVectors = `select p.id, p.audience, p.occurred_at, p.spoken, p.revision, coalesce(v.dims, 0),
		coalesce(v.vectors, ''), p.position
		from embeddings.points p left join embeddings.vectors v on v.id = p.id and v.model = $3
		where p.project_id = $1 and p.position > $2 order by p.position`
)

// changesAtOnce is how many changes are put into a column at once: searches wait meanwhile.
const changesAtOnce = 2048

// catchUp reads the changes of the table. A column that lacks removals that are no longer listed is read again.
func (col *column) catchUp(ctx context.Context, db *pgxpool.Pool, model string, project uuid.UUID) error {
	col.sync.Lock()
	defer col.sync.Unlock()
	for {
		reread := false
		batch := new(pgx.Batch)
		batch.Queue(selectPruned, project).QueryRow(func(row pgx.Row) error {
			var pruned int64
			err := row.Scan(&pruned)
			reread = col.position > 0 && pruned > col.removed
			return err
		})
		batch.Queue(selectRemovals, project, col.removed).Query(func(rows pgx.Rows) error {
			if reread {
				return nil
			}
			return col.readRemovals(rows)
		})
		batch.Queue(selectVectors, project, col.position, model).Query(func(rows pgx.Rows) error {
			if reread {
				return nil
			}
			return col.readChanges(rows)
		})
		if err := db.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("read vectors: %w", err)
		}
		if !reread && !col.wasteful() {
			col.tidy()
			return nil
		}
		col.clear()
	}
}

// readRemovals removes data points. Removals are read before changes: what is deleted after that is in no change.
func (col *column) readRemovals(rows pgx.Rows) error {
	var removals []removal
	for rows.Next() {
		var r removal
		if err := rows.Scan(&r.id, &r.position); err != nil {
			return err
		}
		removals, col.removed = append(removals, r), r.position
	}
	col.apply(nil, removals)
	return rows.Err()
}

func (col *column) readChanges(rows pgx.Rows) error {
	var changes []change
	flush := func() {
		col.apply(changes, nil)
		if len(changes) > 0 {
			col.position = changes[len(changes)-1].position
			col.forget()
		}
		changes = changes[:0]
	}
	for rows.Next() {
		var c change
		var at time.Time
		if err := rows.Scan(&c.id, &c.audience, &at, &c.spoken, &c.revision, &c.dims, &c.packed, &c.position); err != nil {
			return err
		}
		c.at = at.UnixMicro()
		if changes = append(changes, c); len(changes) == changesAtOnce {
			flush()
		}
	}
	flush()
	return rows.Err()
}
