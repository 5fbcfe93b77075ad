package annals

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// RequestFilter selects calls of the request log. All that is set must match.
type RequestFilter struct {
	// From and To bound when a call was received, at most 31 days. "" is 24 hours before the end, and now.
	From, To string
	// Status are HTTP statuses, StatusClass classes such as 4xx.
	Status      []int
	StatusClass []string
	// Endpoint are methods with routes, such as "POST /api/v1/ingest".
	Endpoint []string
	KeyName  []string
	// Search is a request id, a source id, or a part of a key name.
	Search string
}

func (f RequestFilter) query() params {
	query := params{}
	query.text("from", f.From)
	query.text("to", f.To)
	query.number("status", f.Status...)
	query.text("statusClass", f.StatusClass...)
	query.text("endpoint", f.Endpoint...)
	query.text("keyName", f.KeyName...)
	query.text("search", f.Search)
	return query
}

// ListRequestsRequest selects a page of the request log.
type ListRequestsRequest struct {
	RequestFilter
	// After is the EndCursor of the page before.
	After string
	// First is the most calls of the page, 1 to 100; 0 is 25.
	First int
}

// RequestList is one page of the request log.
type RequestList struct {
	// Project is the slug.
	Project string    `json:"project"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// TotalCount counts the calls of all pages.
	TotalCount           int            `json:"totalCount"`
	HasMore              bool           `json:"hasMore"`
	EndCursor            *string        `json:"endCursor"`
	PayloadRetentionDays int            `json:"payloadRetentionDays"`
	Requests             []RequestEntry `json:"requests"`
}

// RequestEntry is a call as the request log lists it.
type RequestEntry struct {
	RequestID  string    `json:"requestId"`
	ReceivedAt time.Time `json:"receivedAt"`
	Method     string    `json:"method"`
	Path       string    `json:"path"`
	Status     int       `json:"status"`
	ErrorCode  *string   `json:"errorCode"`
	// Outcome is Accepted, FailedLater, Rejected or Dropped.
	Outcome     string          `json:"outcome"`
	DurationMs  float64         `json:"durationMs"`
	Key         RequestKey      `json:"key"`
	Identity    *string         `json:"identity"`
	IngestionID *string         `json:"ingestionId"`
	Phase       *string         `json:"phase"`
	Credits     *json.Number    `json:"credits"`
	Webhook     *RequestWebhook `json:"webhook"`
	Verdict     *string         `json:"verdict"`
}

// RequestKey names the key of a call.
type RequestKey struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix"`
}

// RequestWebhook is the webhook of a received event.
type RequestWebhook struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	EventID   string `json:"eventId,omitempty"`
	Verdict   string `json:"verdict,omitempty"`
	DroppedBy string `json:"droppedBy,omitempty"`
	// Test reports that a person sent the event from the console to try the webhook.
	Test bool `json:"test,omitempty"`
	// Replay reports that a person sent the body of an event before again, from the console.
	Replay bool `json:"replay,omitempty"`
}

// RequestDetail is a call with what is stored of it.
type RequestDetail struct {
	RequestEntry
	RequestBytes    int64             `json:"requestBytes"`
	ResponseBytes   int64             `json:"responseBytes"`
	RequestHeaders  map[string]string `json:"requestHeaders"`
	ResponseHeaders map[string]string `json:"responseHeaders"`
	// Payload is nil once it is expired.
	Payload          *RequestPayload `json:"payload"`
	PayloadExpired   bool            `json:"payloadExpired"`
	PayloadExpiresAt *time.Time      `json:"payloadExpiresAt"`
}

// RequestPayload is the bodies of a call.
type RequestPayload struct {
	Request           string `json:"request"`
	Response          string `json:"response"`
	RequestTruncated  bool   `json:"requestTruncated"`
	ResponseTruncated bool   `json:"responseTruncated"`
}

// RequestHistogram counts calls over time.
type RequestHistogram struct {
	Project       string          `json:"project"`
	From          time.Time       `json:"from"`
	To            time.Time       `json:"to"`
	BucketMinutes int             `json:"bucketMinutes"`
	Totals        RequestTotals   `json:"totals"`
	Buckets       []RequestBucket `json:"buckets"`
}

// RequestTotals counts calls by their outcome.
type RequestTotals struct {
	Accepted    int `json:"accepted"`
	FailedLater int `json:"failedLater"`
	Rejected    int `json:"rejected"`
}

// RequestBucket counts the calls of BucketMinutes minutes.
type RequestBucket struct {
	Start time.Time `json:"start"`
	RequestTotals
}

// ListRequests returns one page of the request log, newest first. [Client.Requests] reads all.
func (c *Client) ListRequests(ctx context.Context, r ListRequestsRequest) (*RequestList, error) {
	query := r.query()
	query.text("after", r.After)
	query.number("first", r.First)
	return get[RequestList](ctx, c, path("requests"), url.Values(query))
}

// Requests yields the calls of the request log, newest first.
func (c *Client) Requests(ctx context.Context, r ListRequestsRequest) iter.Seq2[RequestEntry, error] {
	return pages(r.After, func(after string) ([]RequestEntry, *string, error) {
		r.After = after
		page, err := c.ListRequests(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		return page.Requests, following(page.HasMore, page.EndCursor), nil
	})
}

// CountRequests counts the calls of the request log over time.
func (c *Client) CountRequests(ctx context.Context, f RequestFilter) (*RequestHistogram, error) {
	return get[RequestHistogram](ctx, c, path("requests", "histogram"), url.Values(f.query()))
}

// GetRequest returns one call of the request log.
func (c *Client) GetRequest(ctx context.Context, requestID string) (*RequestDetail, error) {
	return get[RequestDetail](ctx, c, path("requests", requestID), nil)
}
