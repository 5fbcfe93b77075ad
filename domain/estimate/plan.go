package estimate

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// Plan is an import before it is sent: the data points of files or items in the order of their times,
// cut into batches. It keeps a few bytes of each data point, and the rows that are to be shown.
type Plan struct {
	// Zone is the zone of times that are written without one.
	Zone *time.Location
	// Rows is how many data points Estimate shows, the first in the order of the plan; a negative
	// number shows all.
	Rows int

	files []FileTotal
	facts []fact
	rows  *rows
	// kept is the size of the rows if all are kept in full.
	kept int64
	// ids holds the hash of each id, and the place of its first data point.
	ids map[uint64]int32
}

// FileTotal is what a file becomes.
type FileTotal struct {
	Path string
	Origin
	Points       int
	Bytes        int64
	CreditTenths int64
	// Skipped is the reason why the file becomes nothing, "" if it does not.
	Skipped string
}

// fact is what the plan keeps of each data point.
type fact struct {
	at     int64 // microseconds since 1970, math.MaxInt64 for none
	bytes  int32
	weight int32 // in a batch: content and metadata
	id     uint64
	sum    [16]byte
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

// ErrContents is returned if the contents of all data points together are too big to be shown.
var ErrContents = errors.New("the contents are too big to be returned")

// row returns the row of a data point.
func (p *Plan) row(point Point, path string) (Row, error) {
	r := Row{
		Point: point, Path: path, Preview: strings.Clone(cutRunes(point.Content, limit.EstimatePreview)),
		Bytes: len(point.Content), CreditTenths: metering.IngestTenths(int64(len(point.Content))),
	}
	if p.Rows >= 0 {
		r.Content, r.Metadata = "", nil // a part of the content would keep the whole file in memory
		return r, nil
	}
	if p.kept += int64(len(point.Content) + len(point.Metadata)); p.kept > limit.EstimateContents {
		return Row{}, ErrContents
	}
	return r, nil
}

// NewPlan returns an empty plan.
func NewPlan(zone *time.Location, shown int) *Plan {
	return &Plan{Zone: zone, Rows: shown, rows: newRows(shown), ids: map[uint64]int32{}}
}

// errFull ends the cut of a file with which the plan would have too many data points.
var errFull = errors.New("too many data points")

// AddFile cuts a file and adds its data points. One that equals a data point of the plan is left out; one
// with the id of another gets an id of its own. check is called now and then; its error ends the cut and
// is returned, as is ErrContents.
func (p *Plan) AddFile(f File, check func() error) error {
	total := FileTotal{Path: f.Path}
	first, kept, shown := len(p.facts), p.kept, newRows(p.Rows)
	origin, err := Cut(f, p.Zone, func(point Point) error {
		if len(p.facts) >= limit.EstimatePoints {
			return errFull
		}
		if len(p.facts)%256 == 0 {
			if err := check(); err != nil {
				return err
			}
		}
		fresh, ok := p.distinct(point)
		if !ok {
			return nil
		}
		row, err := p.row(fresh, f.Path)
		if err != nil {
			return err
		}
		total.Points++
		total.Bytes += int64(row.Bytes)
		total.CreditTenths += row.CreditTenths
		shown.add(p.add(fresh), row)
		return nil
	})
	total.Origin = origin
	if errors.Is(err, errFull) {
		err = skip("the request would have more than %d data points: estimate the file in another", limit.EstimatePoints)
	}
	if skipped, ok := errors.AsType[*Skip](err); ok {
		p.truncate(first)
		p.kept = kept
		total = FileTotal{Path: f.Path, Origin: origin, Skipped: skipped.Reason}
		shown, err = newRows(0), nil
	}
	if err != nil {
		return err
	}
	shown.each(func(place order, r Row) {
		r.Kind = origin.Kind
		p.rows.add(place, r)
	})
	p.files = append(p.files, total)
	return check()
}

// SkipFile adds a file that cannot be cut.
func (p *Plan) SkipFile(path, reason string) {
	p.files = append(p.files, FileTotal{Path: path, Skipped: reason})
}

// AddItem adds a data point as given. The caller bounds their number. The error is ErrContents.
func (p *Plan) AddItem(point Point) error {
	row, err := p.row(point, "")
	if err == nil {
		p.rows.add(p.add(point), row)
	}
	return err
}

// distinct returns a data point with an id that the plan does not have. ok is false for a data point that
// the plan has.
func (p *Plan) distinct(point Point) (fresh Point, ok bool) {
	sum, id := sumOf(point), point.ID
	for n := 2; ; n++ {
		place, taken := p.ids[hashOf(point.ID)]
		if !taken {
			return point, true
		}
		if n == 2 && p.facts[place].sum == sum {
			return Point{}, false
		}
		point.ID = fitID(id + "~" + strconv.Itoa(n))
	}
}

// add appends a data point, and returns its place in the order of the plan.
func (p *Plan) add(point Point) order {
	f := fact{
		at: math.MaxInt64, bytes: int32(len(point.Content)), //nolint:gosec // content has at most 16 MiB
		weight: int32(len(point.Content) + len(point.Metadata)), //nolint:gosec // at most 17 MiB
		id:     hashOf(point.ID), sum: sumOf(point),
	}
	if !point.At.IsZero() {
		f.at = point.At.UnixMicro()
	}
	place := len(p.facts)
	if _, ok := p.ids[f.id]; !ok {
		p.ids[f.id] = int32(place) //nolint:gosec // at most limit.EstimatePoints
	}
	p.facts = append(p.facts, f)
	return order{f.at, place}
}

// truncate removes the data points from a place on.
func (p *Plan) truncate(first int) {
	for i, f := range p.facts[first:] {
		if int(p.ids[f.id]) == first+i {
			delete(p.ids, f.id)
		}
	}
	p.facts = p.facts[:first]
}

func hashOf(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:])
}

// sumOf returns the digest of everything that is sent of a data point.
func sumOf(p Point) (sum [16]byte) {
	h := sha256.New()
	var size [8]byte
	for _, part := range []string{p.ID, p.Content, p.Label, p.Identity, p.Audience, string(p.Metadata)} {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		_, _ = h.Write(size[:]) // a hash takes everything
		_, _ = h.Write([]byte(part))
	}
	if !p.At.IsZero() {
		binary.BigEndian.PutUint64(size[:], uint64(p.At.UnixMicro())) //nolint:gosec // only compared
		_, _ = h.Write(size[:])
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

// order is the place of a data point: by time, then as it was added. Those without a time come last: a
// send gives them the time at which it is accepted.
type order struct {
	at    int64
	place int
}

func compareOrder(a, b order) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place, b.place))
}

// sorted returns the places of the facts in the order of the plan.
func (p *Plan) sorted() []int32 {
	places := make([]int32, len(p.facts))
	for i := range places {
		places[i] = int32(i) //nolint:gosec // at most limit.EstimatePoints
	}
	slices.SortFunc(places, func(a, b int32) int {
		return compareOrder(order{p.facts[a].at, int(a)}, order{p.facts[b].at, int(b)})
	})
	return places
}
