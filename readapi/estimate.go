package readapi

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
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
