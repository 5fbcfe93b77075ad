package why

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
)

// sends explains the sends of a project.
type sends interface {
	// Explain reads a send by its id or that of its request, and at most limit of its items. ok is
	// false if the projection has no such send. indexed is the position of the recall index.
	Explain(
		ctx context.Context, project auth.Project, id uuid.UUID, limit int, indexed eventstore.Position,
	) (s datapoints.Explained, ok bool, err error)
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

// Explainer explains sends and calls.
type Explainer struct {
	Sends    sends
	Progress progress
	Calls    loggedCalls
	Head     projections.Head
}

// Explanation is what became of a call.
type Explanation struct {
	// Send is nil for a call that made no send.
	Send      *datapoints.Explained
	RequestID uuid.UUID
	// Status and ErrorCode are those of the answer to the call.
	Status    int
	ErrorCode string
	// Retryable is false for a send that failed and would fail again.
	Retryable bool
	// Next is the sentence that names the next step.
	Next string
}

const (
	// logDelay is the time within which a call is in the request log, logPoll the pause between two
	// reads of it.
	logDelay = 2 * time.Second
	logPoll  = 100 * time.Millisecond
)

// Explain explains a send by its id, or a call by that of its request. It knows every call that was answered
// before. The fault is not-found if the project has neither.
func (q Explainer) Explain(ctx context.Context, project auth.Project, id uuid.UUID) (Explanation, error) {
	send, ok, err := q.send(ctx, project, id)
	var call requestlog.Call
	if err == nil && !ok {
		send, call, ok, err = q.search(ctx, project, id)
	}
	if err != nil {
		return Explanation{}, err
	}
	if !ok {
		return Explanation{
			RequestID: call.RequestID, Status: call.Status, ErrorCode: call.ErrorCode,
			Next: nextOfCall(call.Status, call.ErrorCode),
		}, nil
	}
	status, err := q.answered(ctx, project, send)
	return Explanation{
		Send: &send, RequestID: send.RequestID, Status: status, Next: nextOfSend(send),
		Retryable: send.Failure == nil || send.Failure.Code != ingestion.ContentRejected,
	}, err
}

// answered returns the status with which a send was answered. A send that changed nothing was answered
// with 200 or, for example through a webhook, with 202: the request log knows which, as long as it keeps
// the call.
func (q Explainer) answered(ctx context.Context, project auth.Project, s datapoints.Explained) (int, error) {
	if s.Phase != datapoints.PhaseNothingChanged {
		return http.StatusAccepted, nil
	}
	call, err := q.awaitCall(ctx, project, s.RequestID)
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
func (q Explainer) send(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, ok bool, err error) {
	// The position is read first, so that an item that is called searchable is.
	indexed, err := q.Progress.Position(ctx, projection.RecallIndex)
	if err != nil {
		return datapoints.Explained{}, false, err
	}
	return q.Sends.Explain(ctx, project, id, limit.ExplainedItems, indexed)
}

// search finds what the projection has not applied yet: a logged call with its send, or another
// send. ok is false if the call made no send. The fault is not-found if the project has neither.
func (q Explainer) search(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (s datapoints.Explained, call requestlog.Call, ok bool, err error) {
	call, err = q.Calls.Get(ctx, project.ID, id)
	if isNotFound(err) {
		if err = q.Head.Await(ctx, projection.DataPoints); err != nil {
			return s, call, false, err
		}
		if s, ok, err = q.send(ctx, project, id); ok || err != nil {
			return s, call, ok, err
		}
		call, err = q.awaitCall(ctx, project, id)
	}
	if err != nil || call.IngestionID == nil || call.Status >= http.StatusBadRequest {
		return s, call, false, err
	}
	_, err = again(ctx, q.Head, func() (bool, error) {
		s, ok, err = q.send(ctx, project, *call.IngestionID)
		return ok, err
	}, projection.DataPoints)
	return s, call, ok, err
}

// awaitCall reads a call repeatedly until it must be in the log.
func (q Explainer) awaitCall(ctx context.Context, project auth.Project, id uuid.UUID) (requestlog.Call, error) {
	end := time.Now().Add(logDelay)
	if made := madeAt(id).Add(logDelay); made.Before(end) {
		end = made
	}
	for {
		call, err := q.Calls.Get(ctx, project.ID, id)
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
