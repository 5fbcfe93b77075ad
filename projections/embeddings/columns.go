package embeddings

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
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

// entry is a data point of a column. It has count vectors from first on, and their signs from the word signs on. It
// occurred at at, in microseconds.
type entry struct {
	id, audience        uuid.UUID
	at, position        int64
	revision            int
	spoken              bool
	first, count, signs int
}

// column holds the vectors of one project by one model. A caller holds sync while it reads changes; mu guards the
// vectors.
type column struct {
	asked, size atomic.Int64
	// limit is about the most memory that it may take, 0 for no limit.
	limit int64

	sync sync.Mutex
	// position and removed are the positions up to which changes and removals were read.
	position, removed int64

	mu      sync.RWMutex
	dims    int
	entries []entry
	// places are those of the entries by id; free are the places of removed ones.
	places map[uuid.UUID]int32
	free   []int32
	// order lists the places by audience, time and id, so that the neighbours of a data point in its conversation are
	// next to it.
	order []int32
	// ordered is the inverse of order: the index in order of each place.
	ordered []int32
	// joined holds for each of the order whether it continues the conversation of the one before.
	joined []bool
	scales []float32
	codes  []byte
	// signs holds one bit for each dimension of each vector.
	signs []uint64
	live  int
	// scattered counts the entries that were put since the entries and signs were laid out in order.
	scattered int
}

// wasteful reports whether most of the vectors were replaced.
func (col *column) wasteful() bool { return len(col.scales) > 1024 && len(col.scales) > 2*col.live }

func (col *column) clear() {
	col.mu.Lock()
	defer col.mu.Unlock()
	col.position, col.removed = 0, 0
	col.dims, col.entries, col.places, col.free, col.order, col.ordered, col.joined = 0, nil, nil, nil, nil, nil, nil
	col.scales, col.codes, col.signs, col.live, col.scattered = nil, nil, nil, 0, 0
}

// change is a row to put into a column.
type change struct {
	entry
	dims   int
	packed []byte
}

// removal is a deleted data point. What was accepted after its position stays.
type removal struct {
	id       uuid.UUID
	position int64
}

// apply puts and removes data points.
func (col *column) apply(changes []change, removals []removal) {
	if len(changes) == 0 && len(removals) == 0 {
		return
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	moved := make(map[int32]struct{}, len(changes)+len(removals))
	var put []int32
	for _, r := range removals {
		place, known := col.places[r.id]
		if !known || col.entries[place].position > r.position {
			continue
		}
		moved[place] = struct{}{}
		col.live -= col.entries[place].count
		col.entries[place] = entry{}
		delete(col.places, r.id)
		col.free = append(col.free, place)
	}
	for _, c := range changes {
		place, isNew := col.put(c)
		if _, twice := moved[place]; !twice || isNew {
			put = append(put, place)
		}
		moved[place] = struct{}{}
	}
	col.arrange(moved, put)
	col.scattered += len(put)
	col.account()
}

// entryBytes is about what an entry takes besides its vectors.
const entryBytes = 160

// account sets about how much memory the column takes.
func (col *column) account() {
	col.size.Store(int64(cap(col.codes) + 4*cap(col.scales) + 8*cap(col.signs) + entryBytes*len(col.entries)))
}

// put sets the vectors of a data point. Vectors with other dimensions than before replace all vectors of the column.
func (col *column) put(c change) (place int32, isNew bool) {
	if c.dims > 0 && col.dims != c.dims {
		for i := range col.entries {
			col.entries[i].count = 0
		}
		col.dims, col.scales, col.codes, col.signs, col.live = c.dims, nil, nil, nil, 0
	}
	e := c.entry
	e.first, e.signs = len(col.scales), len(col.signs)
	if c.dims > 0 {
		unpack(c.packed, c.dims, func(scale float32, code []byte) {
			col.scales, col.codes = append(col.scales, scale), append(col.codes, code...)
			col.signs = appendSigns(col.signs, code)
		})
	}
	e.count = len(col.scales) - e.first
	col.live += e.count
	place, known := col.places[e.id]
	switch {
	case known:
		col.live -= col.entries[place].count
		col.entries[place] = e
		return place, false
	case len(col.free) > 0:
		place, col.free = col.free[len(col.free)-1], col.free[:len(col.free)-1]
		col.entries[place] = e
	default:
		place = int32(len(col.entries))
		col.entries = append(col.entries, e)
	}
	if col.places == nil {
		col.places = make(map[uuid.UUID]int32)
	}
	col.places[e.id] = place
	return place, true
}

// arrange brings the order up to date: places that were put or removed leave it, and those that were put are merged
// into it.
func (col *column) arrange(moved map[int32]struct{}, put []int32) {
	slices.SortFunc(put, col.compare)
	put = slices.Compact(put)
	order := make([]int32, 0, len(col.order)+len(put))
	for _, place := range col.order {
		if _, gone := moved[place]; gone {
			continue
		}
		for len(put) > 0 && col.compare(put[0], place) < 0 {
			order, put = append(order, put[0]), put[1:]
		}
		order = append(order, place)
	}
	col.order = append(order, put...)
	col.ordered = slices.Grow(col.ordered[:0], len(col.entries))[:len(col.entries)]
	for i, place := range col.order {
		col.ordered[place] = int32(i)
	}
	col.join()
}

// join finds out which of the order continue a conversation.
func (col *column) join() {
	col.joined = slices.Grow(col.joined[:0], len(col.order))[:len(col.order)]
	for i := range col.joined {
		col.joined[i] = i > 0 && adjoin(&col.entries[col.order[i-1]], &col.entries[col.order[i]]) &&
			!col.together(i-1) && !col.together(i)
	}
}

// together reports whether an entry next to the one at a place of the order is of the same audience and instant. The
// order of such entries is chance, so they have no neighbours: another project would have others.
func (col *column) together(i int) bool {
	same := func(j int) bool {
		if j < 0 || j >= len(col.order) {
			return false
		}
		a, b := &col.entries[col.order[i]], &col.entries[col.order[j]]
		return a.at == b.at && a.audience == b.audience
	}
	return same(i-1) || same(i+1)
}

// compare orders two places by audience, time and id.
func (col *column) compare(a, b int32) int {
	x, y := &col.entries[a], &col.entries[b]
	return cmp.Or(bytes.Compare(x.audience[:], y.audience[:]), cmp.Compare(x.at, y.at), bytes.Compare(x.id[:], y.id[:]))
}

// continues reports whether the entry at a place of the order continues the conversation of the one before.
func (col *column) continues(i int) bool { return i < len(col.joined) && col.joined[i] }

// adjoin reports whether two entries, next to each other in the order, are of one conversation and one audience.
func adjoin(earlier, later *entry) bool {
	return earlier.spoken && later.spoken && earlier.audience == later.audience &&
		recall.SameThread(time.UnixMicro(earlier.at), time.UnixMicro(later.at))
}

// signBits is how many dimensions a word of signs holds.
const signBits = 64

// appendSigns appends a bit for each dimension of a vector: whether it is negative.
func appendSigns(signs []uint64, code []byte) []uint64 {
	for len(code) > 0 {
		word := uint64(0)
		n := min(signBits, len(code))
		for i, c := range code[:n] {
			word |= uint64(c>>7) << i
		}
		signs, code = append(signs, word), code[n:]
	}
	return signs
}

// forget forgets the data points that changed longest ago if the column is over its limit: an eighth more than
// needed, so that it is rare. The caller is the only one that changes the column.
func (col *column) forget() {
	if col.limit <= 0 || col.size.Load() <= col.limit {
		return
	}
	oldest := col.oldestWithin(col.limit / 8 * 7)
	vectors := 0
	for _, place := range col.order {
		if e := &col.entries[place]; e.position >= oldest {
			vectors += e.count
		}
	}
	words := (col.dims + signBits - 1) / signBits
	kept := column{
		scales: make([]float32, 0, vectors), codes: make([]byte, 0, vectors*col.dims),
		signs: make([]uint64, 0, vectors*words), places: make(map[uuid.UUID]int32),
	}
	for _, place := range col.order {
		e := col.entries[place]
		if e.position < oldest {
			continue
		}
		first, signs := e.first, e.signs
		if e.count > 0 {
			e.first, e.signs = len(kept.scales), len(kept.signs)
			kept.scales = append(kept.scales, col.scales[first:first+e.count]...)
			kept.codes = append(kept.codes, col.codes[first*col.dims:(first+e.count)*col.dims]...)
			kept.signs = append(kept.signs, col.signs[signs:signs+e.count*words]...)
		}
		at := int32(len(kept.entries))
		kept.entries, kept.places[e.id] = append(kept.entries, e), at
		kept.order, kept.ordered = append(kept.order, at), append(kept.ordered, at)
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	col.entries, col.places, col.order, col.ordered = kept.entries, kept.places, kept.order, kept.ordered
	col.scales, col.codes, col.signs = kept.scales, kept.codes, kept.signs
	col.live, col.free, col.scattered = vectors, nil, 0
	col.join()
	col.account()
}

// oldestWithin returns the position from which on the data points and their vectors take at most some bytes.
func (col *column) oldestWithin(bytes int64) int64 {
	newest := slices.Clone(col.order)
	slices.SortFunc(newest, func(a, b int32) int {
		return cmp.Compare(col.entries[b].position, col.entries[a].position)
	})
	words := (col.dims + signBits - 1) / signBits
	oldest := int64(math.MaxInt64)
	for _, place := range newest {
		e := &col.entries[place]
		if bytes -= int64(entryBytes + e.count*(col.dims+4+8*words)); bytes < 0 {
			break
		}
		oldest = e.position
	}
	return oldest
}

// A column is laid out again once a tidyShare of its entries, and at least tidyEntries, were put since the last time.
const (
	tidyShare   = 8
	tidyEntries = 1024
)

// tidy lays out the entries and the signs in their order: a search then reads memory from front to back, which is
// several times faster than in the order of their arrival. The caller is the only one that changes the column.
func (col *column) tidy() {
	if col.scattered < max(tidyEntries, len(col.order)/tidyShare) {
		return
	}
	words := (col.dims + signBits - 1) / signBits
	entries := make([]entry, len(col.order))
	signs := make([]uint64, 0, col.live*words)
	places := make(map[uuid.UUID]int32, len(col.order))
	order, ordered := make([]int32, len(col.order)), make([]int32, len(col.order))
	for i, place := range col.order {
		e := col.entries[place]
		if e.count > 0 {
			first := e.signs
			e.signs = len(signs)
			signs = append(signs, col.signs[first:first+e.count*words]...)
		}
		entries[i], places[e.id], order[i], ordered[i] = e, int32(i), int32(i), int32(i)
	}
	col.mu.Lock()
	defer col.mu.Unlock()
	col.entries, col.signs, col.places, col.order, col.ordered = entries, signs, places, order, ordered
	col.free, col.scattered = nil, 0
	col.account()
}
