package readapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections/datapoints"
)

// sends explains the sends of a project.
type sends interface {
	// Explain reads a send by its id or that of its request, and at most limit of its items. ok is
	// false if the projection has no such send. indexed is the position of the recall index.
	Explain(
		ctx context.Context, project auth.Project, id uuid.UUID, limit int, indexed eventstore.Position,
	) (s datapoints.Explained, ok bool, err error)
	// CatchUp waits until Explain knows every send that was answered before.
	CatchUp(ctx context.Context) error
}

// progress reads the positions of projections.
type progress interface {
	// Position returns the position up to which a projection has applied everything.
	Position(ctx context.Context, name string) (eventstore.Position, error)
}

// explainedSend is the JSON of a send and what became of it.
type explainedSend struct {
	IngestionID uuid.UUID `json:"ingestionId"`
	RequestID   uuid.UUID `json:"requestId"`
	// Status and ErrorCode are those of the answer to the call.
	Status     int        `json:"status"`
	ErrorCode  *string    `json:"errorCode"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	SettledAt  *time.Time `json:"settledAt"`
	Phase      string     `json:"phase"`
	// Failure is omitted unless Phase is failed.
	Failure      *explainedFailure `json:"failure,omitempty"`
	Items        []explainedItem   `json:"items"`
	ItemsOmitted int               `json:"itemsOmitted"`
	// Credits is null without metering.
	Credits *json.Number `json:"credits"`
	Next    string       `json:"next"`
}

type explainedFailure struct {
	failure
	Retryable bool `json:"retryable"`
}

// explainedItem is the JSON of an item.
type explainedItem struct {
	// DataPointID is the source id as sent, null if the data point was deleted.
	DataPointID *string `json:"dataPointId"`
	Revision    int     `json:"revision"`
	Status      string  `json:"status"`
	Searchable  bool    `json:"searchable"`
	Memories    int     `json:"memories"`
	// SourceID is the node of the revision in trace, null if the item met a deleted data point.
	SourceID *uuid.UUID `json:"sourceId"`
}

func explainedSendOf(s datapoints.Explained, metered bool) explainedSend {
	e := explainedSend{
		IngestionID: s.ID, RequestID: s.RequestID, Status: http.StatusAccepted, AcceptedAt: s.AcceptedAt,
		SettledAt: s.SettledAt, Phase: s.Phase, Items: make([]explainedItem, len(s.Items)), ItemsOmitted: s.Omitted,
		Next: nextOfSend(s),
	}
	if s.Phase == datapoints.PhaseNothingChanged {
		e.Status = http.StatusOK
	}
	if s.Failure != nil {
		e.Failure = &explainedFailure{failure(*s.Failure), s.Failure.Code != ingestion.ContentRejected}
	}
	if metered {
		e.Credits = credits(&s.CreditTenths)
	}
	for n, i := range s.Items {
		item := explainedItem{Revision: i.Revision, Status: i.Outcome, Searchable: i.Searchable, Memories: i.Memories}
		if i.SourceID != "" {
			item.DataPointID = &i.SourceID
		}
		if i.Revision > 0 {
			node := datapoint.NodeID(i.DataPoint, i.Revision)
			item.SourceID = &node
		}
		e.Items[n] = item
	}
	return e
}

type explainAPI struct {
	sends    sends
	progress progress
}

// get is GET /api/v1/ingest/:ingestionId/explain. It also takes the id of a request.
func (a explainAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	ctx, principal := c.Request().Context(), httpx.Principal(c)
	send, ok, err := a.find(ctx, principal.Project, id)
	if err == nil && !ok {
		if err = a.sends.CatchUp(ctx); err == nil {
			send, ok, err = a.find(ctx, principal.Project, id)
		}
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion and no request %s", id)
	}
	return c.JSON(http.StatusOK, explainedSendOf(send, principal.Limits.Plan.Metered()))
}

func (a explainAPI) find(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, ok bool, err error) {
	// The position is read first, so that an item that is called searchable is.
	indexed, err := a.progress.Position(ctx, projection.RecallIndex)
	if err != nil {
		return datapoints.Explained{}, false, err
	}
	return a.sends.Explain(ctx, project, id, limit.ExplainedItems, indexed)
}
