package estimate

import (
	"context"
	"errors"
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
