package estimate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// Batch is a part of an import that is sent in one call.
type Batch struct {
	// From and To are the first and the last time of its data points, the zero time for none.
	From, To     time.Time
	Points       int
	Bytes        int64
	CreditTenths int64
	// IdempotencyKey depends on everything that is sent, and on nothing else.
	IdempotencyKey string
}

// Room is what a project may still ingest. A nil field does not bind.
type Room struct {
	CreditTenths *int64
	Points       *int64
}

// Estimate is what a plan costs.
type Estimate struct {
	Files        []FileTotal
	Points       int
	Bytes        int64
	CreditTenths int64
	// Shown is how many data points are shown, the first in the order of the plan.
	Shown int
	// FitsFirst is how many data points in the order of the plan fit the room.
	FitsFirst int

	plan *Plan
	// order holds the places of the data points in the order of the plan.
	order []int32
}

// Fits reports whether all of it fits.
func (e *Estimate) Fits() bool { return e.FitsFirst == e.Points }

// Estimate orders the data points and compares them with the room. The error is that of the context.
func (p *Plan) Estimate(ctx context.Context, room Room) (*Estimate, error) {
	w := watch{ctx: ctx, ended: ctx.Err()}
	e := &Estimate{Files: p.files, Points: p.facts.count, Shown: p.facts.count, plan: p, order: p.sorted(&w)}
	if p.Rows >= 0 {
		e.Shown = min(p.Rows, e.Points)
	}
	fits := true
	for i, place := range e.order {
		if w.over(keptPoint) {
			break
		}
		f := p.facts.get(int(place))
		e.Bytes += int64(f.bytes)
		e.CreditTenths += metering.IngestTenths(int64(f.bytes))
		fits = fits && (room.CreditTenths == nil || e.CreditTenths <= *room.CreditTenths) &&
			(room.Points == nil || int64(i) < *room.Points)
		if fits {
			e.FitsFirst++
		}
	}
	if w.ended != nil {
		return nil, w.ended
	}
	return e, nil
}

// sorted returns the places of the data points by time, then as they were added. Those without a time come
// last: a send gives them the time at which it is accepted.
func (p *Plan) sorted(w *watch) []int32 {
	places := make([]int32, p.facts.count)
	for i := range places {
		places[i] = int32(i) //nolint:gosec // at most limit.EstimatePoints
	}
	slices.SortFunc(places, func(a, b int32) int {
		if w.over(1) {
			return 0
		}
		return cmp.Or(cmp.Compare(p.facts.get(int(a)).at, p.facts.get(int(b)).at), cmp.Compare(a, b))
	})
	return places
}

// Batches cuts the data points into batches, in the order of the plan.
func (e *Estimate) Batches() iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		b := batching{ids: map[uint64]bool{}}
		for _, place := range e.order {
			f := e.plan.facts.get(int(place))
			if !b.takes(f) && !yield(b.close()) {
				return
			}
			b.add(f)
		}
		if b.batch.Points > 0 {
			yield(b.close())
		}
	}
}

// batching is the batch that is being filled.
type batching struct {
	batch  Batch
	weight int64
	ids    map[uint64]bool
	sums   []byte
}

// takes reports whether a data point still belongs to the batch. One that exceeds the size of a batch is
// alone in its own.
func (b *batching) takes(f *fact) bool {
	return b.batch.Points == 0 ||
		b.batch.Points < limit.EstimateBatch && b.weight+f.weight() <= limit.EstimateBatchBytes && !b.ids[f.id]
}

func (b *batching) add(f *fact) {
	b.batch.Points++
	b.batch.Bytes += int64(f.bytes)
	b.batch.CreditTenths += metering.IngestTenths(int64(f.bytes))
	b.weight += f.weight()
	b.ids[f.id] = true
	b.sums = append(b.sums, f.sum[:]...)
	if f.at != math.MaxInt64 {
		b.batch.To = time.UnixMicro(f.at).UTC()
		if b.batch.From.IsZero() {
			b.batch.From = b.batch.To
		}
	}
}

// close returns the batch, and begins the next.
func (b *batching) close() Batch {
	sum := sha256.Sum256(b.sums)
	done := b.batch
	done.IdempotencyKey = "estimate-" + hex.EncodeToString(sum[:])
	clear(b.ids)
	b.batch, b.weight, b.sums = Batch{}, 0, b.sums[:0]
	return done
}

// Row is a data point as it is shown. Kind and Path are "" for an item. Content and metadata are there
// only if the plan shows all data points.
type Row struct {
	Point
	Kind         Kind
	Path         string
	Preview      string
	Bytes        int
	CreditTenths int64
}

// Source reads the files or the items of a plan again, by the order in which they were added.
type Source struct {
	File func(i int) (File, error)
	Item func(i int) (Point, error)
}

// windowBytes is the size of the rows that are made at once.
const windowBytes = 32 << 20

// windowEnd returns the end of the rows from one on that are made at once, at least one, and their size.
func (e *Estimate) windowEnd(from int) (to int, size int64) {
	for to = from; to < e.Shown; to++ {
		f := e.plan.facts.get(int(e.order[to]))
		n := f.size()
		if e.plan.Rows >= 0 {
			n = int64(f.others) + min(int64(f.bytes), 4*limit.EstimatePreview)
		}
		if to > from && size+n > e.plan.window {
			break
		}
		size += n
	}
	return to, size
}

// WindowBytes returns the size of the biggest window.
func (e *Estimate) WindowBytes() (most int64) {
	for from := 0; from < e.Shown; {
		to, size := e.windowEnd(from)
		most, from = max(most, size), to
	}
	return most
}

// wantedRow is a row of a window: the place of its data point, and its own within the window.
type wantedRow struct {
	place int32
	at    int
}

// errEnough ends a cut of which all rows are there, errDiffers is of a file that was another one before.
var (
	errEnough  = errors.New("all rows are there")
	errDiffers = errors.New("a second cut of a file differs from the first")
)

// Rows returns the rows that are shown, once and a window at a time: the files of the next window are cut when those
// before it were taken. The first window is made before Rows returns. cut is called when the last one is made.
func (e *Estimate) Rows(ctx context.Context, source Source, cut func()) (iter.Seq2[*Row, error], error) {
	next := 0
	read := func() ([]Row, error) {
		window, err := e.Window(ctx, next, source)
		if next += len(window); err == nil && next >= e.Shown {
			cut()
		}
		return window, err
	}
	window, err := read()
	if err != nil {
		return nil, err
	}
	return func(yield func(*Row, error) bool) {
		for {
			for i := range window {
				if !yield(&window[i], nil) {
					return
				}
			}
			if next >= e.Shown {
				return
			}
			window = nil // two of them would be more than is reserved
			if window, err = read(); err != nil {
				yield(nil, err)
				return
			}
		}
	}, nil
}

// Window returns the rows from one on that are made at once. The files that they come from are cut again.
func (e *Estimate) Window(ctx context.Context, from int, source Source) ([]Row, error) {
	to, _ := e.windowEnd(from)
	rows := make([]Row, to-from)
	wanted := make([]wantedRow, len(rows))
	for i, place := range e.order[from:to] {
		wanted[i] = wantedRow{place, i}
	}
	if len(e.Files) == 0 {
		return rows, e.items(ctx, wanted, rows, source)
	}
	slices.SortFunc(wanted, func(a, b wantedRow) int { return cmp.Compare(a.place, b.place) })
	for i, total := range e.Files {
		n := 0
		for n < len(wanted) && int(wanted[n].place) < total.first+total.Points {
			n++
		}
		if n == 0 {
			continue
		}
		f, err := source.File(i)
		if err == nil {
			err = e.cutAgain(ctx, f, total, wanted[:n], rows)
		}
		if err != nil {
			return nil, err
		}
		wanted = wanted[n:]
	}
	return rows, nil
}

// cutAgain sets the rows that are wanted of a file.
func (e *Estimate) cutAgain(ctx context.Context, f File, total FileTotal, wanted []wantedRow, rows []Row) error {
	place := total.first
	_, err := Cut(ctx, f, e.plan.Zone, func(point Point) error {
		if place == total.first+total.Points {
			return errDiffers
		}
		fresh, ok := e.plan.again(point, place)
		if !ok {
			return nil
		}
		if place == int(wanted[0].place) {
			rows[wanted[0].at] = e.row(fresh, total)
			wanted = wanted[1:]
		}
		place++
		if len(wanted) == 0 {
			return errEnough
		}
		return nil
	})
	_, skipped := errors.AsType[*Skip](err)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil, skipped:
		return errDiffers
	default:
		return err
	}
}

// items sets the rows of items.
func (e *Estimate) items(ctx context.Context, wanted []wantedRow, rows []Row, source Source) error {
	for _, row := range wanted {
		if err := ctx.Err(); err != nil {
			return err
		}
		point, err := source.Item(int(row.place))
		if err != nil {
			return err
		}
		rows[row.at] = e.row(point, FileTotal{})
	}
	return nil
}

// row returns the row of a data point. A part of the text of a file would keep all of it in memory.
func (e *Estimate) row(point Point, of FileTotal) Row {
	r := Row{
		Point: Point{
			ID: strings.Clone(point.ID), Label: strings.Clone(point.Label), Identity: strings.Clone(point.Identity),
			Audience: strings.Clone(point.Audience), At: point.At,
		},
		Kind: of.Kind, Path: of.Path, Preview: strings.Clone(cutRunes(point.Content, limit.EstimatePreview)),
		Bytes: len(point.Content), CreditTenths: metering.IngestTenths(int64(len(point.Content))),
	}
	if e.plan.Rows < 0 {
		r.Content, r.Metadata = strings.Clone(point.Content), slices.Clone(point.Metadata)
	}
	return r
}
