package readapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/requestlog"
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

// loggedCalls reads the request log.
type loggedCalls interface {
	// Get reads a call. The fault is not-found if the log has no such call of the project.
	Get(ctx context.Context, project, requestID uuid.UUID) (requestlog.Call, error)
}

// explainedCall is the JSON of a call that made no send.
type explainedCall struct {
	IngestionID *uuid.UUID `json:"ingestionId"` // always null
	RequestID   uuid.UUID  `json:"requestId"`
	Status      int        `json:"status"`
	ErrorCode   *string    `json:"errorCode"`
	Next        string     `json:"next"`
}

func explainedCallOf(c requestlog.Call) explainedCall {
	e := explainedCall{RequestID: c.RequestID, Status: c.Status, Next: nextOfCall(c.Status, c.ErrorCode)}
	if c.ErrorCode != "" {
		e.ErrorCode = &c.ErrorCode
	}
	return e
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

func explainedSendOf(s datapoints.Explained, status int, metered bool) explainedSend {
	e := explainedSend{
		IngestionID: s.ID, RequestID: s.RequestID, Status: status, AcceptedAt: s.AcceptedAt,
		SettledAt: s.SettledAt, Phase: s.Phase, Items: make([]explainedItem, len(s.Items)), ItemsOmitted: s.Omitted,
		Next: nextOfSend(s),
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
	calls    loggedCalls
}

const (
	// logDelay is the time within which a call is in the request log, logPoll the pause between two
	// reads of it.
	logDelay = 2 * time.Second
	logPoll  = 100 * time.Millisecond
)

// get is GET /api/v1/ingest/:ingestionId/explain. It also takes the id of a request.
func (a explainAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	ctx, principal := c.Request().Context(), httpx.Principal(c)
	send, ok, err := a.send(ctx, principal.Project, id)
	var call requestlog.Call
	if err == nil && !ok {
		send, call, ok, err = a.search(ctx, principal.Project, id)
	}
	if err != nil {
		return err
	}
	if !ok {
		return c.JSON(http.StatusOK, explainedCallOf(call))
	}
	status, err := a.answered(ctx, principal.Project, send)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, explainedSendOf(send, status, principal.Limits.Plan.Metered()))
}

// answered returns the status with which a send was answered. A send that changed nothing was answered
// with 200 or, for example through a webhook, with 202: the request log knows which, as long as it keeps
// the call.
func (a explainAPI) answered(ctx context.Context, project auth.Project, s datapoints.Explained) (int, error) {
	if s.Phase != datapoints.PhaseNothingChanged {
		return http.StatusAccepted, nil
	}
	call, err := a.awaitCall(ctx, project, s.RequestID)
	switch {
	case isNotFound(err):
		return http.StatusOK, nil
	case err != nil:
		return 0, err
	case call.Status >= http.StatusBadRequest:
		return http.StatusOK, nil // the send was stored after the call had failed
	default:
		return call.Status, nil
	}
}

// send reads a send at the position of the projection.
func (a explainAPI) send(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, ok bool, err error) {
	// The position is read first, so that an item that is called searchable is.
	indexed, err := a.progress.Position(ctx, projection.RecallIndex)
	if err != nil {
		return datapoints.Explained{}, false, err
	}
	return a.sends.Explain(ctx, project, id, limit.ExplainedItems, indexed)
}

// search finds what the projection has not applied yet: a logged call with its send, or another
// send. ok is false if the call made no send. The fault is not-found if the project has neither.
func (a explainAPI) search(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, call requestlog.Call, ok bool, err error) {
	call, err = a.calls.Get(ctx, project.ID, id)
	if isNotFound(err) {
		if err = a.sends.CatchUp(ctx); err != nil {
			return s, call, false, err
		}
		if s, ok, err = a.send(ctx, project, id); ok || err != nil {
			return s, call, ok, err
		}
		call, err = a.awaitCall(ctx, project, id)
	}
	if err != nil || call.IngestionID == nil || call.Status >= http.StatusBadRequest {
		return s, call, false, err
	}
	if s, ok, err = a.send(ctx, project, *call.IngestionID); err == nil && !ok {
		if err = a.sends.CatchUp(ctx); err == nil {
			s, ok, err = a.send(ctx, project, *call.IngestionID)
		}
	}
	return s, call, ok, err
}

// awaitCall reads a call repeatedly until it must be in the log.
func (a explainAPI) awaitCall(ctx context.Context, project auth.Project, id uuid.UUID) (requestlog.Call, error) {
	end := time.Now().Add(logDelay)
	if made := madeAt(id).Add(logDelay); made.Before(end) {
		end = made
	}
	for {
		call, err := a.calls.Get(ctx, project.ID, id)
		if !isNotFound(err) || !time.Now().Before(end) {
			if isNotFound(err) {
				err = fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion and no logged request %s", id)
			}
			return call, err
		}
		_ = backoff.Pause(ctx, logPoll, nil)
	}
}

// madeAt returns the time that the id of a request holds, the zero time for another id.
func madeAt(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

func isNotFound(err error) bool {
	f, is := errors.AsType[*fault.Error](err)
	return is && f.Kind == fault.NotFound
}
