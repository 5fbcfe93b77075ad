package why

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
)

// MaxSamples is how many of its last events a webhook offers as samples.
const MaxSamples = 25

// Sample is an event of a webhook whose body may be looked at, or sent again.
type Sample struct {
	requestlog.Entry
	Bytes int64
	// Lost is why the log does not have the body as it came, "" if it has.
	Lost string
}

// Why a body is not there as it came.
const (
	lostExpired = "the body is not stored, or no longer"
	lostCut     = "the body was cut in the log, which keeps its first 256 KiB"
	lostUnread  = "the event was refused before its body was read"
	lostKey     = "the body held an API key, which the log does not keep"
)

// lost returns why the body of an event is not there as it came, "" if it may be.
func (q Calls) lost(e requestlog.Event, deleted bool, at time.Time) string {
	switch {
	case e.Status >= http.StatusBadRequest && e.Stored && e.Empty:
		return lostUnread
	case !e.Stored || deleted || !at.Before(q.expiry(e.ReceivedAt, e.Plan)):
		return lostExpired
	case e.Cut:
		return lostCut
	}
	return ""
}

// expiry is when the bodies of a call are removed.
func (q Calls) expiry(receivedAt time.Time, plan string) time.Time {
	return receivedAt.AddDate(0, 0, q.PlanTerms.Of(metering.Plan(plan)).RetentionDays)
}

// Activity returns what webhooks of a project received in the 24 hours before an instant, and when the last event came.
func (q Calls) Activity(
	ctx context.Context, project auth.Project, webhooks []string, at time.Time,
) (map[string]requestlog.Activity, error) {
	return q.Log.Activity(ctx, project.ID, webhooks, at.Add(-24*time.Hour), at)
}

// Samples returns the last events of a webhook at an instant, newest first, at most MaxSamples.
func (q Calls) Samples(ctx context.Context, project auth.Project, webhook string, at time.Time) ([]Sample, error) {
	events, err := q.Log.Events(ctx, project.ID, webhook, MaxSamples)
	if err != nil {
		return nil, err
	}
	var dataPoints []uuid.UUID
	for _, e := range events {
		if e.DataPoint != nil {
			dataPoints = append(dataPoints, *e.DataPoint)
		}
	}
	deleted, err := q.Sends.Deleted(ctx, project, dataPoints)
	if err != nil {
		return nil, err
	}
	samples := make([]Sample, len(events))
	for i, e := range events {
		gone := e.DataPoint != nil && deleted[*e.DataPoint]
		samples[i] = Sample{Entry: e.Entry, Bytes: e.Bytes, Lost: q.lost(e, gone, at)}
	}
	return samples, nil
}

// Body returns the body of an event of a webhook as it came, at an instant. The faults are not-found if the webhook has
// no such event, and conflict with the reason if the body is not there as it came.
func (q Calls) Body(
	ctx context.Context, project auth.Project, webhook string, requestID uuid.UUID, at time.Time,
) ([]byte, error) {
	found, err := q.Event(ctx, project, webhook, requestID, at)
	if err != nil {
		return nil, err
	}
	return q.BodyOf(found, at)
}

// Event returns an event of a webhook at an instant. The fault is not-found if the webhook has no such event.
func (q Calls) Event(
	ctx context.Context, project auth.Project, webhook string, requestID uuid.UUID, at time.Time,
) (CallDetail, error) {
	found, err := q.Get(ctx, project, requestID, at)
	if err == nil && (found.Webhook == nil || found.Webhook.ID != webhook) {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the webhook has no event %s", requestID)
	}
	return found, err
}

// BodyOf returns the body of an event as it came, at the instant at which it was read. The fault is conflict with the
// reason if it is not there as it came.
func (q Calls) BodyOf(found CallDetail, at time.Time) ([]byte, error) {
	e := requestlog.Event{Entry: found.Entry, Plan: found.Logged.Plan, Bytes: found.Logged.RequestBytes}
	body := []byte{}
	if p := found.Logged.Payload; p != nil {
		body, e.Stored, e.Cut, e.Empty = p.Request, true, p.RequestTruncated, len(p.Request) == 0
	}
	why := q.lost(e, false, at)
	if why == "" && int64(len(body)) != e.Bytes {
		why = lostKey
	}
	if why != "" {
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "event %s: %s", found.Webhook.EventID, why)
	}
	return body, nil
}

// SourceIDs returns the source ids of the data points that calls are about. A deleted one is not in the map.
func (q Calls) SourceIDs(ctx context.Context, project auth.Project, list []Call) (map[uuid.UUID]string, error) {
	var dataPoints []uuid.UUID
	for _, c := range list {
		if c.DataPoint != nil {
			dataPoints = append(dataPoints, *c.DataPoint)
		}
	}
	return q.Sends.SourceIDs(ctx, project, dataPoints)
}
