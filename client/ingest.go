package annals

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// DataPoint is a text to send, with what is known about it. Only Content is required.
type DataPoint struct {
	// Content is the text, up to 16 MiB.
	Content string `json:"content"`
	// ID is the stable source id; "" is the SHA-256 of the content. A data point under the id of a live one replaces it.
	ID string `json:"id,omitempty"`
	// Label is a short title. "" keeps the stored one.
	Label string `json:"label,omitempty"`
	// Timestamp is when the content occurred, in ISO 8601. "" is the stored time, or now.
	Timestamp string `json:"timestamp,omitempty"`
	// Metadata is any JSON. Recall returns it as sent. nil keeps what is stored.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Audience is the slug of the audience that may read the data point. "" is the whole project, also for a data point
	// that had an audience.
	Audience string `json:"audience,omitempty"`
	// Identity is the customer id of the author. It restricts nothing.
	Identity string `json:"identity,omitempty"`
	// Private means that Identity alone may read the data point. It excludes an Audience.
	Private bool `json:"private,omitempty"`
	// IdempotencyKey makes it safe to repeat the call: the same key with the same data point returns the first receipt.
	// [Client.Ingest] makes one if it is "", see [WithoutIdempotencyKeys]. A data point of a batch has none, since the
	// batch has one.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// Batch is 1 to 1,000 data points that are accepted together or not at all.
type Batch struct {
	// Items are the data points. A source id may appear once. Each names its own audience.
	Items []DataPoint
	// RawItems are used instead of Items if they are set: each is the JSON of a data point, and sent as it is.
	RawItems []json.RawMessage
	// IdempotencyKey is as in DataPoint.
	IdempotencyKey string
}

// MarshalJSON returns the body of the call.
func (b Batch) MarshalJSON() ([]byte, error) {
	body := struct {
		Items          any    `json:"items"`
		IdempotencyKey string `json:"idempotencyKey,omitempty"`
	}{b.Items, b.IdempotencyKey}
	if b.RawItems != nil {
		body.Items = b.RawItems
	}
	return encode(body)
}

// Statuses of a receipt and of a send.
const (
	StatusQueued     = "queued"
	StatusProcessing = "processing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
)

// Receipt is the answer to an accepted data point.
type Receipt struct {
	// ProjectID is the number of the project of the key.
	ProjectID   int64  `json:"projectId"`
	IngestionID string `json:"ingestionId"`
	SourceID    string `json:"sourceId"`
	// Status is queued, or completed if nothing is to be processed.
	Status string `json:"status"`
	// Unchanged is true if nothing is to be processed, else nil.
	Unchanged *bool `json:"unchanged"`
}

// BatchReceipt is the answer to an accepted batch.
type BatchReceipt struct {
	ProjectID   int64  `json:"projectId"`
	IngestionID string `json:"ingestionId"`
	// Status is queued if that of any item is.
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
	// Items are in the order sent.
	Items []ItemReceipt `json:"items"`
}

// ItemReceipt is the receipt of one item of a batch.
type ItemReceipt struct {
	Ordinal   int    `json:"ordinal"`
	SourceID  string `json:"sourceId"`
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
}

// Ingest sends one data point. When it returns, the text is stored; recall finds it once its send is completed, which
// [Client.WaitIngestion] waits for.
func (c *Client) Ingest(ctx context.Context, p DataPoint) (*Receipt, error) {
	var repeat repeat
	p.IdempotencyKey, repeat = c.idempotencyKey(p.IdempotencyKey)
	return send[Receipt](ctx, c, call{method: http.MethodPost, path: path("ingest"), in: p, repeat: repeat})
}

// IngestBatch sends up to 1,000 data points at once, all or none. A refusal names the position of an item in its
// message and in Data ("item").
func (c *Client) IngestBatch(ctx context.Context, b Batch) (*BatchReceipt, error) {
	for i, item := range b.Items {
		if b.RawItems == nil && item.IdempotencyKey != "" {
			return nil, fmt.Errorf("items[%d] has an idempotency key: only the batch may have one", i)
		}
	}
	var repeat repeat
	b.IdempotencyKey, repeat = c.idempotencyKey(b.IdempotencyKey)
	return send[BatchReceipt](ctx, c, call{method: http.MethodPost, path: path("ingest", "batch"), in: b, repeat: repeat})
}

// idempotencyKey returns the key of an ingest: that of the caller, or a new one.
func (c *Client) idempotencyKey(given string) (string, repeat) {
	switch {
	case given != "":
		return given, safe
	case c.withoutKeys:
		return "", charged
	default:
		return rand.Text(), safe
	}
}

// IngestionStatus is the progress of a send.
type IngestionStatus struct {
	// Status is processing, completed or failed, of this send alone.
	Status string `json:"status"`
	// Settled is true if no send of the project is in progress and none failed.
	Settled bool `json:"settled"`
	// Blocked is true if only failed sends of the project remain.
	Blocked bool `json:"blocked"`
	// Readiness counts the sends of the project.
	Readiness Readiness `json:"readiness"`
	// Failure is nil unless the status is failed.
	Failure *Failure `json:"failure"`
}

// Readiness counts the sends of a project that are not completed.
type Readiness struct {
	// Raw counts those that no worker has taken yet.
	Raw int `json:"raw"`
	// Comprehension counts those in progress.
	Comprehension int `json:"comprehension"`
	// Consolidation is reserved, always 0.
	Consolidation int `json:"consolidation"`
	// Failed counts those that stopped.
	Failed int `json:"failed"`
}

// Failure is the reason why a send stopped.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of a Failure. A retry fails again after content-rejected only.
const (
	FailureModelUnavailable        = "model-unavailable"
	FailureModelResponseUnreadable = "model-response-unreadable"
	FailureIndexUnavailable        = "index-unavailable"
	FailureContentRejected         = "content-rejected"
	FailureInternal                = "internal"
)

// GetIngestion returns the progress of a send. It costs nothing, and no limit of calls per minute counts it.
func (c *Client) GetIngestion(ctx context.Context, ingestionID string) (*IngestionStatus, error) {
	return get[IngestionStatus](ctx, c, path("ingest", ingestionID), nil)
}

// pollEvery is the pause between two polls of a send.
const pollEvery = 200 * time.Millisecond

// WaitIngestion polls a send until it is completed or failed, and returns its last status: after StatusCompleted,
// recall finds the send. Only ctx ends the wait before.
func (c *Client) WaitIngestion(ctx context.Context, ingestionID string) (*IngestionStatus, error) {
	return c.poll(ctx, ingestionID, func(s *IngestionStatus) bool {
		return s.Status == StatusCompleted || s.Status == StatusFailed
	})
}

// WaitSettled polls a send until none of its project is in progress. If sends failed, the status is Blocked, not
// Settled. It calls progress, unless that is nil, with each status. Only ctx ends the wait before.
func (c *Client) WaitSettled(
	ctx context.Context, ingestionID string, progress func(*IngestionStatus),
) (*IngestionStatus, error) {
	return c.poll(ctx, ingestionID, func(s *IngestionStatus) bool {
		if progress != nil {
			progress(s)
		}
		return s.Settled || s.Blocked
	})
}

func (c *Client) poll(
	ctx context.Context, ingestionID string, done func(*IngestionStatus) bool,
) (*IngestionStatus, error) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		status, err := c.GetIngestion(ctx, ingestionID)
		if err != nil {
			return nil, err
		}
		if done(status) {
			return status, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return status, fmt.Errorf("send %s is still %s: %w", ingestionID, status.Status, ctx.Err())
		}
	}
}

// Retried is a send that is queued again.
type Retried struct {
	IngestionID string `json:"ingestionId"`
	Status      string `json:"status"`
}

// RetryIngestion queues a failed send again.
func (c *Client) RetryIngestion(ctx context.Context, ingestionID string) (*Retried, error) {
	return send[Retried](ctx, c, call{method: http.MethodPost, path: path("ingest", ingestionID, "retry")})
}

// DeleteIngestion deletes the data points of a send.
func (c *Client) DeleteIngestion(ctx context.Context, ingestionID string) error {
	return c.discard(ctx, call{method: http.MethodDelete, path: path("ingest", ingestionID), repeat: deletion})
}

// DeletionReceipt is the answer to a deletion by source ids.
type DeletionReceipt struct {
	// OperationID names the deletion in the log of the service. It is "" for a deletion whose answer was lost.
	OperationID string `json:"operationId"`
	// IDs are the source ids that were deleted.
	IDs []string `json:"ids"`
}

// DeleteDataPoint deletes one data point, with all of its revisions and memories. It leaves recall at once. An id with
// a slash can only be deleted by [Client.DeleteDataPoints].
func (c *Client) DeleteDataPoint(ctx context.Context, sourceID string) (*DeletionReceipt, error) {
	receipt := &DeletionReceipt{IDs: []string{sourceID}}
	_, err := c.do(ctx, call{
		method: http.MethodDelete, path: path("data-points", sourceID), repeat: deletion, read: decodeInto(receipt),
	})
	if err != nil {
		return nil, err
	}
	return receipt, nil
}

// DeleteDataPoints deletes up to 1,000 data points by their source ids, all or none.
func (c *Client) DeleteDataPoints(ctx context.Context, sourceIDs []string) (*DeletionReceipt, error) {
	body := struct {
		IDs []string `json:"ids"`
	}{sourceIDs}
	return send[DeletionReceipt](ctx, c, call{method: http.MethodPost, path: path("data-points", "delete"), in: body})
}

// Explanation is what became of a send, or of a call that made none: then only RequestID, Status, ErrorCode and Next
// are set.
type Explanation struct {
	IngestionID *string `json:"ingestionId"`
	RequestID   string  `json:"requestId"`
	// Status is that of HTTP of the call.
	Status     int        `json:"status"`
	ErrorCode  *string    `json:"errorCode"`
	AcceptedAt *time.Time `json:"acceptedAt,omitempty"`
	SettledAt  *time.Time `json:"settledAt,omitempty"`
	// Phase is one of the constants that begin with Phase.
	Phase   string            `json:"phase,omitempty"`
	Failure *ExplainedFailure `json:"failure,omitempty"`
	// Items are the first 100.
	Items        []ExplainedItem `json:"items,omitempty"`
	ItemsOmitted int             `json:"itemsOmitted"`
	// Credits is what the send cost, nil if nothing is metered.
	Credits *json.Number `json:"credits,omitempty"`
	// Next is one sentence that names the next step.
	Next string `json:"next"`
}

// Phases of a send.
const (
	PhaseQueued         = "queued"
	PhaseProcessing     = "processing"
	PhaseCaptured       = "captured"
	PhaseIndexed        = "indexed"
	PhaseFailed         = "failed"
	PhaseNothingChanged = "nothing-changed"
)

// ExplainedFailure is a Failure, and whether a retry may help.
type ExplainedFailure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// ExplainedItem is what an item of a send became.
type ExplainedItem struct {
	// DataPointID is the source id as sent, nil once the data point is deleted.
	DataPointID *string `json:"dataPointId"`
	Revision    int     `json:"revision"`
	// Status is created, updated, unchanged, moved or deleted.
	Status     string `json:"status"`
	Searchable bool   `json:"searchable"`
	// Memories counts those that were derived from the revision.
	Memories int `json:"memories"`
	// SourceID is the id of the revision as a node, which the trace calls take, nil once it is deleted.
	SourceID *string `json:"sourceId"`
}

// ExplainIngestion returns what became of a send, by its id, or of a call, by its request id.
func (c *Client) ExplainIngestion(ctx context.Context, id string) (*Explanation, error) {
	return get[Explanation](ctx, c, path("ingest", id, "explain"), nil)
}

// Event is an event for a webhook of the service, whose settings map it to a data point.
type Event struct {
	// WebhookID and Token are the last two parts of the webhook's URL. The token is the only credential.
	WebhookID, Token string
	// Body is at most 1 MiB.
	Body []byte
	// ContentType is that of the body; "" is application/json.
	ContentType string
}

// Verdicts on an event.
const (
	VerdictIngested = "ingested"
	VerdictDropped  = "dropped"
)

// ReceivedEvent is the answer to an event.
type ReceivedEvent struct {
	EventID   string `json:"eventId"`
	RequestID string `json:"requestId"`
	// Verdict is VerdictIngested or VerdictDropped.
	Verdict string `json:"verdict"`
	// DroppedBy is the first filter that does not match.
	DroppedBy   *string `json:"droppedBy"`
	IngestionID *string `json:"ingestionId"`
	// DataPointID is the mapped id, or EventID if none is mapped.
	DataPointID *string `json:"dataPointId"`
	Unchanged   *bool   `json:"unchanged"`
}

// ReceiveEvent lets a webhook receive an event. It sends no key.
func (c *Client) ReceiveEvent(ctx context.Context, e Event) (*ReceivedEvent, error) {
	what := call{
		method: http.MethodPost, path: path("webhooks", e.WebhookID, e.Token), body: e.Body, contentType: e.ContentType,
		anonymous: true,
	}
	if what.contentType == "" {
		what.contentType = "application/json"
	}
	return send[ReceivedEvent](ctx, c, what)
}
