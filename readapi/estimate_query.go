package readapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
)

// What an estimate shows of each data point.
const (
	pointsSummary = "summary"
	pointsNone    = "none"
	pointsFull    = "full"
)

// estimateQuery is the body of an estimate.
type estimateQuery struct {
	zone   *time.Location
	points string
	// files and items are the JSON of each; one of them is nil.
	files, items [][]byte
}

func (q estimateQuery) full() bool { return q.points == pointsFull }

// rows is how many data points are shown; see estimate.Plan.
func (q estimateQuery) rows() int {
	switch q.points {
	case pointsFull:
		return -1
	case pointsNone:
		return 0
	default:
		return limit.EstimateRows
	}
}

// estimateNames are the names of an estimate, fileNames those of one of its files.
var (
	estimateNames = fields.NewNames("files", "items", "timeZone", "points")
	fileNames     = fields.NewNames("path", "content", "kind")
)

// estimateOf reads the body of an estimate, except its files and items. The fault is invalid-request.
func estimateOf(f fields.Object) (estimateQuery, error) {
	q := estimateQuery{zone: zoneOf(f), points: pointsSummary}
	if points := f.Text("points"); points != nil {
		q.points = *points
		if q.points != pointsSummary && q.points != pointsNone && q.points != pointsFull {
			f.Problem("points", "is %.100q: want summary, none or full", q.points)
		}
	}
	switch {
	case f.Has("files") && f.Has("items"):
		f.Problem("items", "send files or items, not both")
	case f.Has("files"):
		q.files = listOf(f, "files", limit.EstimateFiles)
	case f.Has("items"):
		q.items = listOf(f, "items", limit.EstimatePoints)
	default:
		f.Problem("files", "is required: send files or items")
	}
	return q, nil
}

// zoneOf returns the zone of a request, UTC if it names none.
func zoneOf(f fields.Object) *time.Location {
	name := f.Text("timeZone")
	if name == nil {
		return time.UTC
	}
	zone, err := time.LoadLocation(*name)
	// "" is UTC for the library, and "Local" the zone of this machine: neither is a name of IANA.
	if err != nil || *name == "" || strings.EqualFold(*name, "Local") {
		f.Problem("timeZone", "is %.100q: want a name of the IANA time zone database, such as Europe/Rome", *name)
		return time.UTC
	}
	return zone
}

// listOf returns the JSON of each element of a list of 1 to most elements.
func listOf(f fields.Object, name string, most int) [][]byte {
	var list [][]byte
	count := 0
	for _, element := range rawjson.Elements(f.Raw(name)) {
		if count++; count <= most {
			list = append(list, element)
		}
	}
	switch kind := rawjson.KindOf(f.Raw(name)); {
	case kind != rawjson.Array:
		f.Problem(name, "want an array, got %s", kind)
	case count == 0 || count > most:
		f.Problem(name, "has %d elements: want 1 to %d", count, most)
	}
	return list
}

// plan cuts the files, or takes the items. The faults are invalid-request and content-too-large; another error
// is that of the context.
func (q estimateQuery) plan(ctx context.Context) (*estimate.Plan, error) {
	plan := estimate.NewPlan(q.zone, q.rows())
	for i := range q.files {
		file, err := q.file(i)
		if err != nil {
			return nil, err
		}
		if err := plan.AddFile(ctx, file); err != nil {
			return nil, tooMuch(err)
		}
	}
	for i := range q.items {
		point, err := q.item(i)
		if err != nil {
			return nil, err
		}
		if err := plan.AddItem(point); err != nil {
			return nil, tooMuch(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// tooMuch returns the fault of a request that a plan cannot take.
func tooMuch(err error) error {
	switch {
	case errors.Is(err, estimate.ErrContents):
		return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"points is full and the data points have more than %d bytes: send fewer files, or ask for a summary",
			limit.EstimateFull).With("limitBytes", limit.EstimateFull)
	case errors.Is(err, estimate.ErrKept):
		return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"the items, or the paths of the files, are more than the %d bytes that are kept of a request: send fewer",
			limit.EstimateKept).With("limitBytes", limit.EstimateKept)
	default:
		return err
	}
}

// source reads the files and the items again.
func (q estimateQuery) source() estimate.Source { return estimate.Source{File: q.file, Item: q.item} }

func (q estimateQuery) file(i int) (estimate.File, error) {
	return fields.Decode(q.files[i], fmt.Sprintf("files[%d]", i), fileNames, fileOf)
}

func (q estimateQuery) item(i int) (estimate.Point, error) {
	return fields.Decode(q.items[i], fmt.Sprintf("items[%d]", i), fields.DataPointNames, itemOf)
}

func fileOf(f fields.Object) (file estimate.File, err error) {
	if path := f.Name("path", 1, limit.EstimatePath); path != nil {
		file.Path = *path
	} else if !f.Has("path") {
		f.Problem("path", "is required")
	}
	if content := f.Text("content"); content != nil {
		file.Content = *content
	} else if !f.Has("content") {
		f.Problem("content", "is required")
	}
	if kind := f.Text("kind"); kind != nil {
		file.Kind = estimate.Kind(*kind)
		if !estimate.IsKind(*kind) {
			f.Problem("kind", "is %.100q: want %s", *kind, strings.Join(estimate.KindNames(), ", "))
		}
	}
	return file, nil
}

// itemOf reads an item as a batch takes it.
func itemOf(f fields.Object) (estimate.Point, error) {
	in, err := fields.DataPointOf(f)
	if err := cmp.Or(err, f.Err()); err != nil {
		return estimate.Point{}, err
	}
	if size := len(in.Content); size > limit.ContentBytes {
		return estimate.Point{}, fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"the content of %s has %d bytes in UTF-8: want at most %d", f.Path(""), size, limit.ContentBytes).
			With("limitBytes", limit.ContentBytes).With("bytes", size)
	}
	p := estimate.Point{ID: datapoint.Digest([]byte(in.Content)), Content: in.Content, Metadata: in.Metadata}
	for to, from := range map[*string]*string{
		&p.ID: in.ID, &p.Label: in.Label, &p.Identity: in.Identity, &p.Audience: in.Audience,
	} {
		if from != nil {
			*to = *from
		}
	}
	if in.Timestamp != nil {
		p.At = *in.Timestamp
	}
	return p, nil
}
