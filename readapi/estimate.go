package readapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/account"
)

// rooms reads what projects may still ingest.
type rooms interface {
	// Room returns the room of the principal's project. It includes every call that was answered
	// before. The fault is service-unavailable if that cannot be read now.
	Room(ctx context.Context, p auth.Principal, at time.Time) (account.Room, error)
}

// An estimate takes memory and a processor for as long as it is made. Each takes a slot of the size of the
// memory that it may use. Small ones have slots of their own, so that they never wait for long ones.
const (
	// smallEstimate is the longest body of a small estimate.
	smallEstimate = 1 << 20
	// A small estimate takes smallCopies times its body, and leastEstimate at least.
	smallCopies   = 64
	leastEstimate = 4 << 20
)

type estimateAPI struct {
	rooms       rooms
	small, long *allowance.Allowance
}

func newEstimateAPI(r rooms, small, long admission.Resource) estimateAPI {
	return estimateAPI{rooms: r, small: small.New(), long: long.New()}
}

// slot takes the slot of an estimate with a body of some bytes. The fault is service-unavailable.
func (a estimateAPI) slot(ctx context.Context, of allowance.Owner, body int) (*allowance.Hold, error) {
	slot, size := a.small.Open(of), max(smallCopies*int64(body), leastEstimate)
	if body > smallEstimate {
		slot, size = a.long.Open(of), admission.LongEstimate+int64(body)
	}
	return slot, slot.Reserve(ctx, size)
}

// post is POST /api/v1/ingest/estimate. It writes nothing.
func (a estimateAPI) post(c echo.Context) error {
	body, err := httpx.Body(c, limit.EstimateBody)
	if err != nil {
		return err
	}
	ctx, principal := c.Request().Context(), httpx.Principal(c)
	of := allowance.Owner{Organization: principal.OrganizationID, Project: principal.Project.ID}
	slot, err := a.slot(ctx, of, len(body))
	if err != nil {
		return err
	}
	defer slot.Release()
	q, err := fields.Decode(body, "", estimateNames, estimateOf)
	if err != nil {
		return err
	}
	room, err := a.rooms.Room(ctx, principal, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	plan, err := q.plan(ctx)
	if err != nil {
		return err
	}
	made, err := plan.Estimate(ctx, estimate.Room{CreditTenths: room.CreditTenths, Points: room.Points})
	if err != nil {
		return err
	}
	if err := allowance.Reserve(ctx, made.WindowBytes()); err != nil {
		return err
	}
	// A slow client makes no one wait: the slot is free when the last rows are cut.
	rows, err := made.Rows(ctx, q.source(), slot.Release)
	if err != nil {
		return err
	}
	price := pricing(room.Metered)
	return httpx.StreamLists(c, estimateAnswer(made, room, q.zone),
		httpx.ListOf("files", fileAnswers(made, price)), httpx.ListOf("batches", batchAnswers(made, price)),
		httpx.ListOf("points", pointAnswers(rows, price, q.full())))
}

// estimateAnswer is an estimate without its lists. Credits are null without metering.
func estimateAnswer(e *estimate.Estimate, room account.Room, zone *time.Location) client.Estimate {
	return client.Estimate{
		Files: []client.EstimatedFile{}, DataPoints: e.Points, Bytes: e.Bytes, Credits: pricing(room.Metered)(e.CreditTenths),
		Batches: []client.EstimatedBatch{}, Points: []client.EstimatedPoint{}, PointsOmitted: e.Points - e.Shown,
		Balance: client.EstimateBalance{
			Left: credits(room.LeftTenths), ResetsAt: room.ResetsAt, ProjectCapLeft: credits(room.ProjectCapLeftTenths),
			IngestionCapReached: room.Points != nil && *room.Points == 0,
		},
		Fits: e.Fits(), FitsFirst: e.FitsFirst, Metered: room.Metered, TimeZone: zone.String(),
	}
}

func fileAnswers(e *estimate.Estimate, price func(int64) *json.Number) iter.Seq2[client.EstimatedFile, error] {
	return func(yield func(client.EstimatedFile, error) bool) {
		for _, f := range e.Files {
			if !yield(client.EstimatedFile{
				Path: f.Path, Kind: optional(string(f.Kind)), DetectedBy: optional(string(f.By)), Points: f.Points,
				Bytes: f.Bytes, Credits: price(f.CreditTenths), Skipped: optional(f.Skipped), Remarks: remarkAnswers(f.Remarks),
			}, nil) {
				return
			}
		}
	}
}

func remarkAnswers(remarks []estimate.Remark) []client.EstimateRemark {
	list := make([]client.EstimateRemark, 0, len(remarks))
	for _, r := range remarks {
		list = append(list, client.EstimateRemark{
			Code: string(r.Code), Count: r.Count, First: optional(r.First), Text: r.Text,
		})
	}
	return list
}

func batchAnswers(e *estimate.Estimate, price func(int64) *json.Number) iter.Seq2[client.EstimatedBatch, error] {
	return func(yield func(client.EstimatedBatch, error) bool) {
		index := 0
		for b := range e.Batches() {
			if !yield(client.EstimatedBatch{
				Index: index, From: optionalTime(b.From), To: optionalTime(b.To), Points: b.Points, Bytes: b.Bytes,
				Credits: price(b.CreditTenths), IdempotencyKey: b.IdempotencyKey,
			}, nil) {
				return
			}
			index++
		}
	}
}

func pointAnswers(
	rows iter.Seq2[*estimate.Row, error], price func(int64) *json.Number, full bool,
) iter.Seq2[client.EstimatedPoint, error] {
	return func(yield func(client.EstimatedPoint, error) bool) {
		for r, err := range rows {
			if err != nil {
				yield(client.EstimatedPoint{}, err)
				return
			}
			if !yield(pointAnswer(r, price, full), nil) {
				return
			}
		}
	}
}

func pointAnswer(r *estimate.Row, price func(int64) *json.Number, full bool) client.EstimatedPoint {
	p := client.EstimatedPoint{
		ID: r.ID, Kind: optional(string(r.Kind)), Path: optional(r.Path), Label: optional(r.Label),
		Timestamp: optionalTime(r.At), Identity: optional(r.Identity), Audience: optional(r.Audience),
		Bytes: r.Bytes, Credits: price(r.CreditTenths), Preview: r.Preview,
	}
	if full {
		p.Content, p.Metadata = &r.Content, r.Metadata
	}
	return p
}

// pricing writes tenths of a credit, null without metering.
func pricing(metered bool) func(tenths int64) *json.Number {
	return func(tenths int64) *json.Number {
		if !metered {
			return nil
		}
		return credits(&tenths)
	}
}

func optionalTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

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
