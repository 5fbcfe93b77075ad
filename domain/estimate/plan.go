package estimate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"strconv"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// Plan is an import before it is sent: the data points of files or items in the order of their times,
// cut into batches. It keeps a few bytes of each data point, and no text but the paths of files: a data point
// that is shown is cut again.
type Plan struct {
	// Zone is the zone of times that are written without one.
	Zone *time.Location
	// Rows is how many data points are shown, the first in the order of the plan; a negative number shows all.
	Rows int

	files []FileTotal
	facts facts
	sums  sums
	// kept is what the plan keeps, in bytes; full the size of the data points that are shown in full.
	kept, full int64
	// made is the size of all data points that were made, also of files that were skipped then.
	made int64
	// window is the size of the rows that are made at once.
	window int64
	// numbers are the last that were added to repeated ids; renamed undoes those of the file at hand.
	numbers map[uint64]uint32
	renamed []lastNumber
	// repeated counts the data points of the file at hand that the plan has.
	repeated remarks
}

type lastNumber struct {
	id     uint64
	number uint32
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
	// first is the place of its first data point.
	first int
}

const (
	// keptFile is what a plan keeps of each file, besides its path and the reason why it is skipped.
	keptFile = 160
	// keptRemark is what it keeps of a remark at most.
	keptRemark = 4*maxFirst + 400
	// keptNumber is what it keeps of a number that was added to an id.
	keptNumber = 64
)

// The bounds of a request that no file can be skipped for.
var (
	// ErrContents is returned if all data points together are too big to be shown in full.
	ErrContents = errors.New("the data points are too big to be returned")
	// ErrKept is returned if the items, or the paths of the files, are more than a plan keeps.
	ErrKept = errors.New("the request has too many items or too long paths")
)

// NewPlan returns an empty plan.
func NewPlan(zone *time.Location, shown int) *Plan {
	return &Plan{Zone: zone, Rows: shown, facts: newFacts(), window: windowBytes, numbers: map[uint64]uint32{}}
}

// AddFile cuts a file and adds its data points. One that equals a data point of the plan is left out; one
// with the id of another gets an id of its own. The error is ErrContents, ErrKept, or that of the context.
func (p *Plan) AddFile(ctx context.Context, f File) error {
	if p.kept += keptFile + int64(len(f.Path)); p.kept > limit.EstimateKept {
		return ErrKept
	}
	total := FileTotal{Path: f.Path, first: p.facts.count}
	kept, full := p.kept, p.full
	p.renamed = p.renamed[:0]
	origin, err := Cut(ctx, f, p.Zone, func(point Point) error { return p.addCut(point, &total) })
	total.Origin = origin
	total.Remarks = append(total.Remarks, p.repeated.list()...)
	p.kept += int64(len(total.Remarks)) * keptRemark
	p.repeated = nil
	if skipped, ok := errors.AsType[*Skip](err); ok {
		p.truncate(total.first)
		p.kept, p.full = kept+int64(len(skipped.Reason)), full
		origin.Remarks = nil
		total = FileTotal{Path: f.Path, Origin: origin, Skipped: skipped.Reason, first: total.first}
		err = nil
	}
	p.files = append(p.files, total)
	return err
}

// addCut adds a data point of a file.
func (p *Plan) addCut(point Point, total *FileTotal) error {
	f := factOf(point, total.Path)
	if p.made += f.size(); p.made > limit.EstimateMade {
		return skip("the data points of the request would have more than %d bytes: estimate the file in another",
			int64(limit.EstimateMade))
	}
	if p.facts.count >= limit.EstimatePoints {
		return skip("the request would have more than %d data points: estimate the file in another", limit.EstimatePoints)
	}
	fresh, number, ok := p.distinct(point)
	if !ok {
		p.repeated.add(Repeated, point.ID)
		return nil
	}
	if p.kept += keptPoint; p.kept > limit.EstimateKept {
		return skip("the service would keep more than %d bytes of the request: estimate the file in another",
			limit.EstimateKept)
	}
	f.number = number
	if err := p.add(f, fresh); err != nil {
		return err
	}
	total.Points++
	total.Bytes += int64(f.bytes)
	total.CreditTenths += metering.IngestTenths(int64(f.bytes))
	return nil
}

// add adds a fact to which the data point belongs.
func (p *Plan) add(f fact, point Point) error {
	if p.Rows < 0 {
		if p.full += f.size(); p.full > limit.EstimateFull {
			return ErrContents
		}
	}
	f.id, f.sum = p.facts.hash(point.ID), p.sums.of(point)
	p.facts.add(f)
	return nil
}

// AddItem adds a data point as given. The caller bounds their number. The error is ErrContents or ErrKept.
func (p *Plan) AddItem(point Point) error {
	if p.kept += keptPoint; p.kept > limit.EstimateKept {
		return ErrKept
	}
	return p.add(factOf(point, ""), point)
}

// distinct returns a data point with an id that the plan does not have, and the number that was added to its
// id, 0 for none. ok is false for a data point that the plan has. A number is tried once for each id.
func (p *Plan) distinct(point Point) (fresh Point, number uint32, ok bool) {
	id := p.facts.hash(point.ID)
	place, taken := p.facts.first(id)
	if !taken {
		return point, 0, true
	}
	if p.facts.get(place).sum == p.sums.of(point) {
		return Point{}, 0, false
	}
	last := p.numbers[id]
	number = max(last, 1)
	for fresh = point; taken; {
		number++
		fresh.ID = numbered(point.ID, number)
		_, taken = p.facts.first(p.facts.hash(fresh.ID))
	}
	p.renamed = append(p.renamed, lastNumber{id, last})
	p.numbers[id] = number
	p.kept += keptNumber
	return fresh, number, true
}

func numbered(id string, number uint32) string {
	return fitID(id + "~" + strconv.FormatUint(uint64(number), 10))
}

// truncate removes the data points from a place on, which are those of the file at hand.
func (p *Plan) truncate(from int) {
	p.facts.truncate(from)
	for len(p.renamed) > 0 {
		last := p.renamed[len(p.renamed)-1]
		p.renamed = p.renamed[:len(p.renamed)-1]
		if p.numbers[last.id] = last.number; last.number == 0 {
			delete(p.numbers, last.id)
		}
	}
}

// again returns a data point as the plan has it at a place, when its file is cut again. ok is false for one
// that the plan left out.
func (p *Plan) again(point Point, place int) (fresh Point, ok bool) {
	f := p.facts.get(place)
	if f.number > 0 {
		point.ID = numbered(point.ID, f.number)
		return point, p.facts.hash(point.ID) == f.id && p.sums.of(point) == f.sum
	}
	return point, p.facts.hash(point.ID) == f.id
}

// fact is what a plan keeps of each data point: 48 bytes.
type fact struct {
	at  int64  // microseconds since 1970, math.MaxInt64 for none
	id  uint64 // a hash
	sum [16]byte
	// bytes is the size of the content, metadata that of the metadata, others that of all other texts with
	// which it is shown.
	bytes, metadata, others int32
	// number is what was added to its id because others have that id, 0 for nothing.
	number uint32
}

// weight is the size in a batch.
func (f *fact) weight() int64 { return int64(f.bytes) + int64(f.metadata) }

// size is that of all texts with which it is shown in full.
func (f *fact) size() int64 { return f.weight() + int64(f.others) }

// factOf returns the fact of a data point of a file at a path, without its id.
func factOf(p Point, path string) fact {
	f := fact{
		at: math.MaxInt64, bytes: int32(len(p.Content)), metadata: int32(len(p.Metadata)), //nolint:gosec // at most 17 MiB
		others: int32(len(p.ID) + len(p.Label) + len(p.Identity) + len(p.Audience) + len(path)), //nolint:gosec // a few KiB
	}
	if !p.At.IsZero() {
		f.at = p.At.UnixMicro()
	}
	return f
}

const (
	// factPage is how many facts are allocated at once: none is copied as their number grows.
	factPage = 1024
	// keptPoint is what a plan keeps of each data point: its fact, two places in the table of ids, and its
	// place in the order.
	keptPoint = 48 + 8 + 4
)

// facts are those of all data points of a plan, in the order in which they were added.
type facts struct {
	pages [][]fact
	count int
	seed  maphash.Seed
	// table finds the first fact of an id: a hash table of places, from 1, with open addressing. ids is how
	// many it holds.
	table []int32
	ids   int
}

func newFacts() facts { return facts{seed: maphash.MakeSeed()} }

func (f *facts) get(place int) *fact { return &f.pages[place/factPage][place%factPage] }

func (f *facts) hash(id string) uint64 { return maphash.String(f.seed, id) }

// first returns the place of the first fact with an id.
func (f *facts) first(id uint64) (place int, ok bool) {
	if len(f.table) == 0 {
		return 0, false
	}
	place = int(f.table[f.slot(id)]) - 1
	return place, place >= 0
}

// slot returns where in the table an id is, or would be.
func (f *facts) slot(id uint64) int {
	for at := int(id % uint64(len(f.table))); ; at = (at + 1) % len(f.table) { //nolint:gosec // less than the table
		if place := f.table[at]; place == 0 || f.get(int(place)-1).id == id {
			return at
		}
	}
}

// add appends a fact, and returns its place.
func (f *facts) add(x fact) int {
	place := f.count
	if place%factPage == 0 {
		f.pages = append(f.pages, make([]fact, factPage))
	}
	*f.get(place) = x
	f.count++
	if 2*(f.ids+1) > len(f.table) {
		f.grow()
	}
	if at := f.slot(x.id); f.table[at] == 0 {
		f.table[at] = int32(place) + 1 //nolint:gosec // at most limit.EstimatePoints
		f.ids++
	}
	return place
}

func (f *facts) grow() {
	old := f.table
	f.table = make([]int32, max(64, 2*len(old)))
	for place := range f.count - 1 {
		if id := f.get(place).id; f.table[f.slot(id)] == 0 {
			f.table[f.slot(id)] = int32(place) + 1 //nolint:gosec // at most limit.EstimatePoints
		}
	}
}

// truncate removes the facts from a place on, the last one first: what is looked for past the slot of a fact
// was added after it.
func (f *facts) truncate(from int) {
	for place := f.count - 1; place >= from; place-- {
		if at := f.slot(f.get(place).id); int(f.table[at]) == place+1 {
			f.table[at] = 0
			f.ids--
		}
	}
	f.count = from
	f.pages = f.pages[:(from+factPage-1)/factPage]
}

// sums computes the digests of data points.
type sums struct{ ids, labels, metadata prefixed }

// of returns the digest of everything that is sent of a data point, and of nothing else.
func (s *sums) of(p Point) (sum [16]byte) {
	h := sha256.New()
	var size [8]byte
	add := func(part string, long *prefixed) {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		_, _ = h.Write(size[:]) // a hash takes everything
		if long != nil && len(part) > plainSum {
			_, _ = h.Write(long.sum(part, ""))
			return
		}
		writeText(h, part)
	}
	add(p.ID, &s.ids)
	add(p.Content, nil)
	add(p.Label, &s.labels)
	add(p.Identity, nil)
	add(p.Audience, nil)
	add(string(p.Metadata), &s.metadata)
	if !p.At.IsZero() {
		binary.BigEndian.PutUint64(size[:], uint64(p.At.UnixMicro())) //nolint:gosec // only compared
		_, _ = h.Write(size[:])
	}
	copy(sum[:], h.Sum(nil))
	return sum
}
