package annals

import (
	"context"
	"net/http"
)

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
