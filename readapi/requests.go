package readapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
)

// requestLog reads the logged calls of a project.
type requestLog interface {
	// Get reads one call. The fault is not-found if the project has no such call.
	Get(ctx context.Context, project, requestID uuid.UUID) (requestlog.Call, error)
	List(ctx context.Context, project uuid.UUID, q requestlog.Query) (requestlog.Page, error)
	Histogram(ctx context.Context, project uuid.UUID, q requestlog.Query) (requestlog.Histogram, error)
}

// loggedSends reads what became of the sends and data points of logged calls.
type loggedSends interface {
	Phases(ctx context.Context, project auth.Project, sends []uuid.UUID) (map[uuid.UUID]datapoints.SendPhase, error)
	Deleted(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	AnyDeleted(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (bool, error)
}

// The outcomes of a call.
const (
	outcomeAccepted    = "Accepted"
	outcomeFailedLater = "FailedLater"
	outcomeRejected    = "Rejected"
	outcomeDropped     = "Dropped"
)

// verdictDropped is the verdict of an event that a webhook dropped.
const verdictDropped = "dropped"

// requestEntry is the JSON of a logged call in a list.
type requestEntry struct {
	RequestID  uuid.UUID  `json:"requestId"`
	ReceivedAt time.Time  `json:"receivedAt"`
	Method     string     `json:"method"`
	Path       string     `json:"path"`
	Status     int        `json:"status"`
	ErrorCode  *string    `json:"errorCode"`
	Outcome    string     `json:"outcome"`
	DurationMs float64    `json:"durationMs"`
	Key        requestKey `json:"key"`
	Identity   *string    `json:"identity"`
	// IngestionID is the send that the call made or queued again, Phase its phase now.
	IngestionID *uuid.UUID `json:"ingestionId"`
	Phase       *string    `json:"phase"`
	// Credits is null without metering.
	Credits *json.Number    `json:"credits"`
	Webhook *requestWebhook `json:"webhook"`
	Verdict *string         `json:"verdict"`
}

type requestKey struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix"`
}

// requestWebhook is the JSON of the webhook of an event; the last three are null in a list.
type requestWebhook struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	EventID   *string `json:"eventId,omitempty"`
	Verdict   *string `json:"verdict,omitempty"`
	DroppedBy *string `json:"droppedBy,omitempty"`
}

// requestList is the JSON of GET /api/v1/requests. EndCursor is null if it is empty.
type requestList struct {
	Project              string         `json:"project"`
	From                 time.Time      `json:"from"`
	To                   time.Time      `json:"to"`
	TotalCount           int64          `json:"totalCount"`
	HasMore              bool           `json:"hasMore"`
	EndCursor            *string        `json:"endCursor"`
	PayloadRetentionDays int            `json:"payloadRetentionDays"`
	Requests             []requestEntry `json:"requests"`
}

// requestDetail is the JSON of GET /api/v1/requests/:requestId. Payload is null, and PayloadExpired
// true, if the bodies are not stored, or no longer.
type requestDetail struct {
	requestEntry
	RequestBytes     int64           `json:"requestBytes"`
	ResponseBytes    int64           `json:"responseBytes"`
	RequestHeaders   json.RawMessage `json:"requestHeaders"`
	ResponseHeaders  json.RawMessage `json:"responseHeaders"`
	Payload          *requestPayload `json:"payload"`
	PayloadExpired   bool            `json:"payloadExpired"`
	PayloadExpiresAt *time.Time      `json:"payloadExpiresAt"`
}

type requestPayload struct {
	Request           string `json:"request"`
	Response          string `json:"response"`
	RequestTruncated  bool   `json:"requestTruncated"`
	ResponseTruncated bool   `json:"responseTruncated"`
}

// requestHistogram is the JSON of GET /api/v1/requests/histogram.
type requestHistogram struct {
	Project       string          `json:"project"`
	From          time.Time       `json:"from"`
	To            time.Time       `json:"to"`
	BucketMinutes int             `json:"bucketMinutes"`
	Totals        requestTotals   `json:"totals"`
	Buckets       []requestBucket `json:"buckets"`
}

type requestTotals struct {
	Accepted    int64 `json:"accepted"`
	FailedLater int64 `json:"failedLater"`
	Rejected    int64 `json:"rejected"`
}

type requestBucket struct {
	Start time.Time `json:"start"`
	requestTotals
}

// requestAPI serves the request log. Its calls are not logged.
type requestAPI struct {
	log   requestLog
	sends loggedSends
	terms metering.PlanTerms
}

// list is GET /api/v1/requests.
func (a requestAPI) list(c echo.Context) error {
	p := httpx.Principal(c)
	q, err := requestQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, true)
	if err != nil {
		return err
	}
	page, err := a.log.List(c.Request().Context(), p.Project.ID, q)
	if err != nil {
		return err
	}
	views, err := a.views(c.Request().Context(), p.Project, page.Entries...)
	if err != nil {
		return err
	}
	answer := requestList{
		Project: p.Project.Slug, From: q.From, To: q.To, TotalCount: page.TotalCount, HasMore: page.HasMore,
		PayloadRetentionDays: a.terms.Of(p.Limits.Plan).RetentionDays, Requests: views,
	}
	if page.EndCursor != nil {
		cursor := page.EndCursor.String()
		answer.EndCursor = &cursor
	}
	return c.JSON(http.StatusOK, answer)
}

// views adds to calls what became of their sends, and removes source ids from the moment that their data points are
// deleted, also before they are blanked.
func (a requestAPI) views(
	ctx context.Context, project auth.Project, entries ...requestlog.Entry,
) ([]requestEntry, error) {
	var sends, dataPoints []uuid.UUID
	for _, e := range entries {
		if e.DataPoint != nil {
			dataPoints = append(dataPoints, *e.DataPoint)
		}
		if e.IngestionID != nil {
			sends = append(sends, *e.IngestionID)
		}
	}
	phases, err := a.sends.Phases(ctx, project, sends)
	if err != nil {
		return nil, err
	}
	deleted, err := a.sends.Deleted(ctx, project, dataPoints)
	if err != nil {
		return nil, err
	}
	views := make([]requestEntry, len(entries))
	for i, e := range entries {
		if e.DataPoint != nil && deleted[*e.DataPoint] {
			e.Path = requestlog.BlankPath(e.Endpoint, e.Path)
		}
		views[i] = requestEntryOf(e, phases)
	}
	return views, nil
}

func requestEntryOf(e requestlog.Entry, phases map[uuid.UUID]datapoints.SendPhase) requestEntry {
	v := requestEntry{
		RequestID: e.RequestID, ReceivedAt: e.ReceivedAt, Method: e.Method, Path: e.Path, Status: e.Status,
		DurationMs: float64(e.Duration.Microseconds()) / 1000, Key: requestKey(e.Key), Identity: e.Identity,
		IngestionID: e.IngestionID, Credits: credits(e.CreditTenths), Outcome: outcomeAccepted,
	}
	if e.ErrorCode != "" {
		v.ErrorCode = &e.ErrorCode
	}
	failed := false
	if e.IngestionID != nil {
		if p, ok := phases[*e.IngestionID]; ok {
			v.Phase, failed = &p.Phase, p.Failed
		}
	}
	if e.Webhook != nil {
		v.Webhook = &requestWebhook{ID: e.Webhook.ID, Name: e.Webhook.Name}
		v.Verdict = verdictOf(e.Webhook)
	}
	switch {
	case e.Status >= http.StatusBadRequest:
		v.Outcome = outcomeRejected
	case e.Webhook != nil && e.Webhook.Verdict == verdictDropped:
		v.Outcome = outcomeDropped
	case failed:
		v.Outcome = outcomeFailedLater
	}
	return v
}

// verdictOf returns nil for an event that was refused.
func verdictOf(w *requestlog.Webhook) *string {
	if w.Verdict == "" {
		return nil
	}
	return &w.Verdict
}

// get is GET /api/v1/requests/:requestId. The bodies are not shown from the moment that a data point
// of the call is deleted, also before they are blanked.
func (a requestAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "requestId")
	if err != nil {
		return err
	}
	ctx, p := c.Request().Context(), httpx.Principal(c)
	call, err := a.log.Get(ctx, p.Project.ID, id)
	if err != nil {
		return err
	}
	views, err := a.views(ctx, p.Project, call.Entry)
	if err != nil {
		return err
	}
	deleted, err := a.sends.AnyDeleted(ctx, p.Project, call.IDs)
	if err != nil {
		return err
	}
	detail := requestDetail{
		requestEntry: views[0], RequestBytes: call.RequestBytes, ResponseBytes: call.ResponseBytes,
		RequestHeaders: call.RequestHeaders, ResponseHeaders: call.ResponseHeaders, PayloadExpired: true,
	}
	if w := call.Webhook; w != nil {
		detail.Webhook.EventID, detail.Webhook.Verdict, detail.Webhook.DroppedBy = &w.EventID, verdictOf(w), w.DroppedBy
	}
	expires := call.ReceivedAt.AddDate(0, 0, a.terms.Of(metering.Plan(call.Plan)).RetentionDays)
	if call.Payload != nil && !deleted && httpx.ReceivedAt(c).Before(expires) {
		detail.PayloadExpired, detail.PayloadExpiresAt = false, &expires
		detail.Payload = &requestPayload{
			Request:           strings.ToValidUTF8(string(call.Payload.Request), "\uFFFD"),
			Response:          strings.ToValidUTF8(string(call.Payload.Response), "\uFFFD"),
			RequestTruncated:  call.Payload.RequestTruncated,
			ResponseTruncated: call.Payload.ResponseTruncated,
		}
	}
	return c.JSON(http.StatusOK, detail)
}

// histogram is GET /api/v1/requests/histogram.
func (a requestAPI) histogram(c echo.Context) error {
	p := httpx.Principal(c)
	q, err := requestQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, false)
	if err != nil {
		return err
	}
	h, err := a.log.Histogram(c.Request().Context(), p.Project.ID, q)
	if err != nil {
		return err
	}
	answer := requestHistogram{
		Project: p.Project.Slug, From: q.From, To: q.To, BucketMinutes: h.BucketMinutes,
		Totals: requestTotals(h.Totals), Buckets: make([]requestBucket, len(h.Buckets)),
	}
	for i, b := range h.Buckets {
		answer.Buckets[i] = requestBucket{b.Start, requestTotals(b.Totals)}
	}
	return c.JSON(http.StatusOK, answer)
}
