package readapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/why"
)

func statusOf(s datapoints.Status) client.IngestionStatus {
	return client.IngestionStatus{
		Status: s.Status, Settled: s.Settled, Blocked: s.Blocked,
		Readiness: client.Readiness{
			Raw: int(s.Readiness.Raw), Comprehension: int(s.Readiness.Comprehension),
			Consolidation: int(s.Readiness.Consolidation), Failed: int(s.Readiness.Failed),
		},
		Failure: (*client.Failure)(s.Failure),
	}
}

type statusAPI struct {
	queries statuses
}

// get is GET /api/v1/ingest/:ingestionId.
func (a statusAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	found, err := a.queries.Status(c.Request().Context(), httpx.Principal(c).Project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, statusOf(found))
}

// explainer explains sends and calls.
type explainer interface {
	// Explain explains a send by its id, or a call by that of its request. The fault is not-found if the project has
	// neither.
	Explain(ctx context.Context, project auth.Project, id uuid.UUID) (why.Explanation, error)
}

// explainedCall is the JSON of a call that made no send.
type explainedCall struct {
	IngestionID *uuid.UUID `json:"ingestionId"` // always null
	RequestID   uuid.UUID  `json:"requestId"`
	Status      int        `json:"status"`
	ErrorCode   *string    `json:"errorCode"`
	Next        string     `json:"next"`
}

func explainedCallOf(e why.Explanation) explainedCall {
	return explainedCall{RequestID: e.RequestID, Status: e.Status, ErrorCode: optional(e.ErrorCode), Next: e.Next}
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
	Failure      *client.ExplainedFailure `json:"failure,omitempty"`
	Items        []client.ExplainedItem   `json:"items"`
	ItemsOmitted int                      `json:"itemsOmitted"`
	// Credits is null without metering.
	Credits *json.Number `json:"credits"`
	Next    string       `json:"next"`
}

func explainedSendOf(x why.Explanation, metered bool) explainedSend {
	s := x.Send
	e := explainedSend{
		IngestionID: s.ID, RequestID: x.RequestID, Status: x.Status, AcceptedAt: s.AcceptedAt,
		SettledAt: s.SettledAt, Phase: s.Phase, ItemsOmitted: s.Omitted, Next: x.Next,
		Items: make([]client.ExplainedItem, len(s.Items)),
	}
	if s.Failure != nil {
		e.Failure = &client.ExplainedFailure{Code: s.Failure.Code, Message: s.Failure.Message, Retryable: x.Retryable}
	}
	if metered {
		e.Credits = credits(&s.CreditTenths)
	}
	for n, i := range s.Items {
		item := client.ExplainedItem{Revision: i.Revision, Status: i.Outcome, Searchable: i.Searchable, Memories: i.Memories}
		if i.SourceID != "" {
			item.DataPointID = &i.SourceID
		}
		if i.Revision > 0 {
			item.SourceID = new(datapoint.NodeID(i.DataPoint, i.Revision).String())
		}
		e.Items[n] = item
	}
	return e
}

type explainAPI struct {
	queries explainer
}

// get is GET /api/v1/ingest/:ingestionId/explain. It also takes the id of a request.
func (a explainAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	principal := httpx.Principal(c)
	found, err := a.queries.Explain(c.Request().Context(), principal.Project, id)
	if err != nil {
		return err
	}
	if found.Send == nil {
		return c.JSON(http.StatusOK, explainedCallOf(found))
	}
	return c.JSON(http.StatusOK, explainedSendOf(found, principal.Limits.Plan.Metered()))
}
