package requestlog

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/allowance"
)

// Record is a finished call, as the edge hands it to the Writer.
type Record struct {
	RequestID  uuid.UUID
	Project    uuid.UUID
	ReceivedAt time.Time
	// Endpoint is the method and the template of the route.
	Endpoint  string
	Path      string // percent-encoded, without query
	Status    int
	ErrorCode string
	Duration  time.Duration
	Key       Key
	// Person is who made the call at the console, zero for the call of a program.
	Person   uuid.UUID
	Identity string // "" for none
	// IngestionID is uuid.Nil for none, CreditTenths nil without metering.
	IngestionID  uuid.UUID
	CreditTenths *int64
	// Plan decides how long the bodies are kept.
	Plan                          string
	RequestBytes, ResponseBytes   int64
	RequestHeader, ResponseHeader http.Header
	// Payload is nil for a call whose bodies are not kept.
	Payload   *Payload
	IDs, Hits []uuid.UUID
	// Webhook is nil unless the call was an event of a webhook.
	Webhook *Webhook
	// Hold is the room of the call, which ends when the row is written.
	Hold *allowance.Hold
}

// The headers that are stored.
var (
	requestHeaders = []string{
		"Accept", "Accept-Language", "Content-Type", "Content-Length", "User-Agent", "X-Service-Project", "Traceparent",
	}
	responseHeaders = []string{"Content-Type", "Retry-After"}
)

// maxHeader is the most bytes of the value of a stored header.
const maxHeader = 1024

// headersOf returns the allow-listed headers as JSON, with the values of keys redacted.
func headersOf(header http.Header, allowed []string) string {
	values := map[string]string{}
	for _, name := range allowed {
		if v := header.Values(name); len(v) > 0 {
			values[strings.ToLower(name)] = redactText(strings.Join(v, ", "), maxHeader)
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return "{}" // unreachable: a map of strings
	}
	return string(text)
}

// kind is the combination of values that a list is filtered by.
type kind struct {
	project                       uuid.UUID
	endpoint                      string
	status                        int
	errorCode, keyName, keyPrefix string
}

// row is a call as it is stored.
type row struct {
	requestID, project              uuid.UUID
	receivedAt                      time.Time
	kind                            kind
	path                            string
	duration                        time.Duration
	identity                        *string
	person                          *uuid.UUID
	ingestionID                     *uuid.UUID
	creditTenths                    *int64
	plan                            string
	requestBytes, responseBytes     int64
	requestHeaders, responseHeaders string
	payload                         *Payload
	ids, hits                       []uuid.UUID
	webhook                         *string // JSON
	hold                            *allowance.Hold
	// added is when the row came into the queue, by the clock of the machine.
	added time.Time
}

// maxIdentity is the most bytes of a stored identity, and maxName of a stored key name.
const (
	maxIdentity = 800
	maxName     = 256
)

// rowOf redacts a record. It copies what it keeps of the bodies.
func rowOf(r Record) row {
	w := row{
		requestID: r.RequestID, project: r.Project, receivedAt: r.ReceivedAt,
		kind: kind{
			r.Project, r.Endpoint, r.Status, r.ErrorCode,
			redactText(r.Key.Name, maxName), r.Key.Prefix, // the prefix is no secret: it is shown to people
		},
		path: redactPath(r.Endpoint, r.Path), duration: r.Duration, creditTenths: r.CreditTenths, plan: r.Plan,
		requestBytes: r.RequestBytes, responseBytes: r.ResponseBytes,
		requestHeaders:  headersOf(r.RequestHeader, requestHeaders),
		responseHeaders: headersOf(r.ResponseHeader, responseHeaders),
		hits:            r.Hits, hold: r.Hold, added: time.Now(),
	}
	if r.Identity != "" {
		identity := redactText(r.Identity, maxIdentity)
		w.identity = &identity
	}
	if r.Person != uuid.Nil {
		w.person = &r.Person
	}
	if r.IngestionID != uuid.Nil {
		w.ingestionID = &r.IngestionID
	}
	if r.Payload != nil {
		w.payload = &Payload{
			Request: redact(r.Payload.Request), Response: redact(r.Payload.Response),
			RequestTruncated: r.Payload.RequestTruncated, ResponseTruncated: r.Payload.ResponseTruncated,
		}
	}
	if r.Webhook != nil {
		w.webhook = r.Webhook.encode()
	}
	if all := slices.Concat(r.IDs, r.Hits); len(all) > 0 {
		slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		w.ids = slices.Compact(all)
	}
	return w
}
