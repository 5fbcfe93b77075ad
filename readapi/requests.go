package readapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/why"
)

// requestLog reads the logged calls of a project, with what became of them.
type requestLog interface {
	// Get reads one call at an instant. The fault is not-found if the project has no such call.
	Get(ctx context.Context, project auth.Project, requestID uuid.UUID, at time.Time) (why.CallDetail, error)
	List(ctx context.Context, project auth.Project, q requestlog.Query) (why.CallPage, error)
	Histogram(ctx context.Context, project auth.Project, q requestlog.Query) (requestlog.Histogram, error)
}

// requestEntry is the JSON of a logged call in a list.
type requestEntry struct {
	RequestID  uuid.UUID         `json:"requestId"`
	ReceivedAt time.Time         `json:"receivedAt"`
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Status     int               `json:"status"`
	ErrorCode  *string           `json:"errorCode"`
	Outcome    string            `json:"outcome"`
	DurationMs float64           `json:"durationMs"`
	Key        client.RequestKey `json:"key"`
	Identity   *string           `json:"identity"`
	// IngestionID is the send that the call made or queued again, Phase its phase now.
	IngestionID *uuid.UUID `json:"ingestionId"`
	Phase       *string    `json:"phase"`
	// Credits is null without metering.
	Credits *json.Number    `json:"credits"`
	Webhook *requestWebhook `json:"webhook"`
	Verdict *string         `json:"verdict"`
}

// requestWebhook is the JSON of the webhook of an event; a list has the first two alone.
type requestWebhook struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	EventID   *string `json:"eventId,omitempty"`
	Verdict   *string `json:"verdict,omitempty"`
	DroppedBy *string `json:"droppedBy,omitempty"`
	Test      bool    `json:"test,omitempty"`
	Replay    bool    `json:"replay,omitempty"`
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
	RequestBytes     int64                  `json:"requestBytes"`
	ResponseBytes    int64                  `json:"responseBytes"`
	RequestHeaders   json.RawMessage        `json:"requestHeaders"`
	ResponseHeaders  json.RawMessage        `json:"responseHeaders"`
	Payload          *client.RequestPayload `json:"payload"`
	PayloadExpired   bool                   `json:"payloadExpired"`
	PayloadExpiresAt *time.Time             `json:"payloadExpiresAt"`
}

// requestAPI serves the request log. Its calls are not logged.
type requestAPI struct {
	queries requestLog
	terms   metering.PlanTerms
}

// list is GET /api/v1/requests.
func (a requestAPI) list(c echo.Context) error {
	p := httpx.Principal(c)
	q, err := why.CallQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, true)
	if err != nil {
		return err
	}
	page, err := a.queries.List(c.Request().Context(), p.Project, q)
	if err != nil {
		return err
	}
	views := make([]requestEntry, len(page.Calls))
	for i, call := range page.Calls {
		views[i] = requestEntryOf(call)
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

func requestEntryOf(e why.Call) requestEntry {
	v := requestEntry{
		RequestID: e.RequestID, ReceivedAt: e.ReceivedAt, Method: e.Method, Path: e.Path, Status: e.Status,
		ErrorCode: optional(e.ErrorCode), Outcome: e.Outcome, DurationMs: float64(e.Duration.Microseconds()) / 1000,
		Key: client.RequestKey(e.Key), Identity: e.Identity, IngestionID: e.IngestionID, Phase: e.Phase,
		Credits: credits(e.CreditTenths),
	}
	if e.Webhook != nil {
		v.Webhook = &requestWebhook{ID: e.Webhook.ID, Name: e.Webhook.Name}
		v.Verdict = optional(e.Webhook.Verdict) // null for an event that was refused
	}
	return v
}

// get is GET /api/v1/requests/:requestId.
func (a requestAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "requestId")
	if err != nil {
		return err
	}
	found, err := a.queries.Get(c.Request().Context(), httpx.Principal(c).Project, id, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	call := found.Logged
	detail := requestDetail{
		requestEntry: requestEntryOf(found.Call), RequestBytes: call.RequestBytes, ResponseBytes: call.ResponseBytes,
		RequestHeaders: call.RequestHeaders, ResponseHeaders: call.ResponseHeaders,
		PayloadExpired: call.Payload == nil, PayloadExpiresAt: found.ExpiresAt,
	}
	if w := call.Webhook; w != nil {
		detail.Webhook.EventID, detail.Webhook.Verdict, detail.Webhook.DroppedBy = &w.EventID, detail.Verdict, w.DroppedBy
		detail.Webhook.Test, detail.Webhook.Replay = w.Test, w.Replay
	}
	if call.Payload != nil {
		detail.Payload = &client.RequestPayload{
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
	q, err := why.CallQueryOf(httpx.Query(c), httpx.ReceivedAt(c), p.Project, false)
	if err != nil {
		return err
	}
	h, err := a.queries.Histogram(c.Request().Context(), p.Project, q)
	if err != nil {
		return err
	}
	answer := client.RequestHistogram{
		Project: p.Project.Slug, From: q.From, To: q.To, BucketMinutes: h.BucketMinutes,
		Totals: totalsOf(h.Totals), Buckets: make([]client.RequestBucket, len(h.Buckets)),
	}
	for i, b := range h.Buckets {
		answer.Buckets[i] = client.RequestBucket{Start: b.Start, RequestTotals: totalsOf(b.Totals)}
	}
	return c.JSON(http.StatusOK, answer)
}

func totalsOf(t requestlog.Totals) client.RequestTotals {
	return client.RequestTotals{Accepted: int(t.Accepted), FailedLater: int(t.FailedLater), Rejected: int(t.Rejected)}
}
