package readapi

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// rooms reads what projects may still ingest.
type rooms interface {
	// Room returns the room of the principal's project. It includes every call that was answered
	// before. The fault is service-unavailable if that cannot be read now.
	Room(ctx context.Context, p auth.Principal, at time.Time) (Room, error)
}

// Room is what a project may still ingest. Nil does not bind.
type Room struct {
	Metered bool
	// LeftTenths is the balance, nil without metering; ProjectCapLeftTenths what is left of the credit
	// cap of the project.
	LeftTenths           *int64
	ProjectCapLeftTenths *int64
	// CreditTenths is the least of what is left of balance and caps, Points what is left of the
	// ingestion cap.
	CreditTenths *int64
	Points       *int64
	// ResetsAt is the end of the month if something resets then.
	ResetsAt *time.Time
}

// freeEstimate is the size of a body up to which estimates do not wait for each other.
const freeEstimate = 1 << 20

type estimateAPI struct {
	rooms rooms
	// long bounds the estimates with a long body that are worked on at once.
	long *allowance.Allowance
}

func newEstimateAPI(r rooms, slots admission.Resource) estimateAPI {
	return estimateAPI{r, slots.New()}
}

// post is POST /api/v1/ingest/estimate. It writes nothing.
func (a estimateAPI) post(c echo.Context) error {
	body, err := httpx.Body(c, limit.EstimateBody)
	if err != nil {
		return err
	}
	q, err := estimateOf(body)
	if err != nil {
		return err
	}
	ctx, principal := c.Request().Context(), httpx.Principal(c)
	if len(body) > freeEstimate {
		turn := a.long.Open(allowance.Owner{Organization: principal.OrganizationID, Project: principal.Project.ID})
		if err := turn.Reserve(ctx, 1); err != nil {
			return err
		}
		defer turn.Release()
	}
	room, err := a.rooms.Room(ctx, principal, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	plan, err := q.plan(ctx)
	if errors.Is(err, estimate.ErrContents) {
		return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"points is full and the contents have more than %d bytes: send fewer files, or ask for a summary",
			limit.EstimateContents).With("limitBytes", limit.EstimateContents)
	}
	if err != nil {
		return err
	}
	made := plan.Estimate(estimate.Room{CreditTenths: room.CreditTenths, Points: room.Points})
	return httpx.Stream(c, estimateAnswer(made, room, q.zone), "points", pointAnswers(made.Rows, room.Metered, q.full()))
}

// estimated is the JSON of an estimate. Credits are null without metering.
type estimated struct {
	Files         []estimatedFile  `json:"files"`
	DataPoints    int              `json:"dataPoints"`
	Bytes         int64            `json:"bytes"`
	Credits       *json.Number     `json:"credits"`
	Batches       []estimatedBatch `json:"batches"`
	Points        []estimatedPoint `json:"points"`
	PointsOmitted int              `json:"pointsOmitted"`
	Balance       estimatedBalance `json:"balance"`
	Fits          bool             `json:"fits"`
	FitsFirst     int              `json:"fitsFirst"`
	Metered       bool             `json:"metered"`
	TimeZone      string           `json:"timeZone"`
}

type estimatedFile struct {
	Path       string       `json:"path"`
	Kind       *string      `json:"kind"`
	DetectedBy *string      `json:"detectedBy"`
	Points     int          `json:"points"`
	Bytes      int64        `json:"bytes"`
	Credits    *json.Number `json:"credits"`
	Skipped    *string      `json:"skipped"`
}

type estimatedBatch struct {
	Index          int          `json:"index"`
	From           *time.Time   `json:"from"`
	To             *time.Time   `json:"to"`
	Points         int          `json:"points"`
	Bytes          int64        `json:"bytes"`
	Credits        *json.Number `json:"credits"`
	IdempotencyKey string       `json:"idempotencyKey"`
}

// estimatedPoint has content and metadata only in full.
type estimatedPoint struct {
	ID        string          `json:"id"`
	Kind      *string         `json:"kind"`
	Path      *string         `json:"path"`
	Label     *string         `json:"label"`
	Timestamp *time.Time      `json:"timestamp"`
	Identity  *string         `json:"identity"`
	Audience  *string         `json:"audience"`
	Bytes     int             `json:"bytes"`
	Credits   *json.Number    `json:"credits"`
	Preview   string          `json:"preview"`
	Content   *string         `json:"content,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

type estimatedBalance struct {
	Left                *json.Number `json:"left"`
	ResetsAt            *time.Time   `json:"resetsAt"`
	ProjectCapLeft      *json.Number `json:"projectCapLeft"`
	IngestionCapReached bool         `json:"ingestionCapReached"`
}

// estimateAnswer is an estimate without its points.
func estimateAnswer(e estimate.Estimate, room Room, zone *time.Location) estimated {
	price := pricing(room.Metered)
	a := estimated{
		Files: make([]estimatedFile, len(e.Files)), DataPoints: e.Points, Bytes: e.Bytes, Credits: price(e.CreditTenths),
		Batches: make([]estimatedBatch, len(e.Batches)), Points: []estimatedPoint{}, PointsOmitted: e.Points - len(e.Rows),
		Balance: estimatedBalance{
			Left: credits(room.LeftTenths), ResetsAt: room.ResetsAt, ProjectCapLeft: credits(room.ProjectCapLeftTenths),
			IngestionCapReached: room.Points != nil && *room.Points == 0,
		},
		Fits: e.Fits(), FitsFirst: e.FitsFirst, Metered: room.Metered, TimeZone: zone.String(),
	}
	for i, f := range e.Files {
		a.Files[i] = estimatedFile{
			Path: f.Path, Kind: optional(string(f.Kind)), DetectedBy: optional(string(f.By)), Points: f.Points,
			Bytes: f.Bytes, Credits: price(f.CreditTenths), Skipped: optional(f.Skipped),
		}
	}
	for i, b := range e.Batches {
		a.Batches[i] = estimatedBatch{
			Index: i, From: optionalTime(b.From), To: optionalTime(b.To), Points: b.Points, Bytes: b.Bytes,
			Credits: price(b.CreditTenths), IdempotencyKey: b.IdempotencyKey,
		}
	}
	return a
}

func pointAnswers(rows []estimate.Row, metered, full bool) []estimatedPoint {
	price := pricing(metered)
	points := make([]estimatedPoint, len(rows))
	for i, r := range rows {
		points[i] = estimatedPoint{
			ID: r.ID, Kind: optional(string(r.Kind)), Path: optional(r.Path), Label: optional(r.Label),
			Timestamp: optionalTime(r.At), Identity: optional(r.Identity), Audience: optional(r.Audience),
			Bytes: r.Bytes, Credits: price(r.CreditTenths), Preview: r.Preview,
		}
		if full {
			points[i].Content, points[i].Metadata = &rows[i].Content, r.Metadata
		}
	}
	return points
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
