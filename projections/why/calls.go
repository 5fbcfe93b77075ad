package why

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
)

// requestLog reads the logged calls of a project.
type requestLog interface {
	// Get reads one call. The fault is not-found if the project has no such call.
	Get(ctx context.Context, project, requestID uuid.UUID) (requestlog.Call, error)
	List(ctx context.Context, project uuid.UUID, q requestlog.Query) (requestlog.Page, error)
	Histogram(ctx context.Context, project uuid.UUID, q requestlog.Query) (requestlog.Histogram, error)
	Activity(
		ctx context.Context, project uuid.UUID, webhooks []string, from, to time.Time,
	) (map[string]requestlog.Activity, error)
	Events(ctx context.Context, project uuid.UUID, webhook string, limit int) ([]requestlog.Event, error)
}

// loggedSends reads what became of the sends and data points of logged calls.
type loggedSends interface {
	Phases(ctx context.Context, project auth.Project, sends []uuid.UUID) (map[uuid.UUID]datapoints.SendPhase, error)
	Deleted(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	AnyDeleted(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (bool, error)
	SourceIDs(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]string, error)
}

// Calls reads logged calls.
type Calls struct {
	Log   requestLog
	Sends loggedSends
	// PlanTerms are how long bodies of calls are kept.
	PlanTerms metering.PlanTerms
}

// The outcomes of a call.
const (
	OutcomeAccepted    = "Accepted"
	OutcomeFailedLater = "FailedLater"
	OutcomeRejected    = "Rejected"
	OutcomeDropped     = "Dropped"
)

// verdictDropped is the verdict of an event that a webhook dropped.
const verdictDropped = "dropped"

// Call is a logged call.
type Call struct {
	requestlog.Entry
	Outcome string
	// Phase is that of its send now, nil without one.
	Phase *string
}

// CallPage is some calls of a list, newest first.
type CallPage struct {
	Calls      []Call
	TotalCount int64
	HasMore    bool
	// EndCursor is nil for an empty page.
	EndCursor *requestlog.Cursor
}

// CallDetail is one call with its sizes, headers and bodies.
type CallDetail struct {
	Call
	Logged requestlog.Call
	// ExpiresAt is when the bodies are removed, nil if they are not stored, or no longer.
	ExpiresAt *time.Time
}

// List lists calls of a project.
func (q Calls) List(ctx context.Context, project auth.Project, query requestlog.Query) (CallPage, error) {
	page, err := q.Log.List(ctx, project.ID, query)
	if err != nil {
		return CallPage{}, err
	}
	calls, err := q.became(ctx, project, page.Entries...)
	return CallPage{Calls: calls, TotalCount: page.TotalCount, HasMore: page.HasMore, EndCursor: page.EndCursor}, err
}

// Histogram counts calls of a project.
func (q Calls) Histogram(
	ctx context.Context, project auth.Project, query requestlog.Query,
) (requestlog.Histogram, error) {
	return q.Log.Histogram(ctx, project.ID, query)
}

// Get reads one call at an instant. The fault is not-found if the project has no such call.
func (q Calls) Get(ctx context.Context, project auth.Project, requestID uuid.UUID, at time.Time) (CallDetail, error) {
	logged, err := q.Log.Get(ctx, project.ID, requestID)
	if err != nil {
		return CallDetail{}, err
	}
	calls, err := q.became(ctx, project, logged.Entry)
	if err != nil {
		return CallDetail{}, err
	}
	deleted, err := q.Sends.AnyDeleted(ctx, project, logged.IDs)
	if err != nil {
		return CallDetail{}, err
	}
	d := CallDetail{Call: calls[0], Logged: logged}
	d.Logged.Entry = d.Entry
	expires := q.expiry(logged.ReceivedAt, logged.Plan)
	if deleted || !at.Before(expires) {
		d.Logged.Payload = nil
	}
	if d.Logged.Payload != nil {
		d.ExpiresAt = &expires
	}
	return d, nil
}

// became adds to calls what became of their sends, and removes the source ids of deleted data points.
func (q Calls) became(ctx context.Context, project auth.Project, entries ...requestlog.Entry) ([]Call, error) {
	var sends, dataPoints []uuid.UUID
	for _, e := range entries {
		if e.DataPoint != nil {
			dataPoints = append(dataPoints, *e.DataPoint)
		}
		if e.IngestionID != nil {
			sends = append(sends, *e.IngestionID)
		}
	}
	phases, err := q.Sends.Phases(ctx, project, sends)
	if err != nil {
		return nil, err
	}
	deleted, err := q.Sends.Deleted(ctx, project, dataPoints)
	if err != nil {
		return nil, err
	}
	calls := make([]Call, len(entries))
	for i, e := range entries {
		if e.DataPoint != nil && deleted[*e.DataPoint] {
			e.Path = requestlog.BlankPath(e.Endpoint, e.Path)
		}
		calls[i] = Call{Entry: e}
		failed := false
		if e.IngestionID != nil {
			if p, ok := phases[*e.IngestionID]; ok {
				calls[i].Phase, failed = &p.Phase, p.Failed
			}
		}
		calls[i].Outcome = outcomeOf(e, failed)
	}
	return calls, nil
}

// outcomeOf returns the outcome of a call; failed is true if its send failed.
func outcomeOf(e requestlog.Entry, failed bool) string {
	switch {
	case e.Status >= http.StatusBadRequest:
		return OutcomeRejected
	case e.Webhook != nil && e.Webhook.Verdict == verdictDropped:
		return OutcomeDropped
	case failed:
		return OutcomeFailedLater
	}
	return OutcomeAccepted
}
