package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

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

// rowOf redacts a record. It copies what it keeps of the request, whose memory is of the call.
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
			Request: redact(bytes.Clone(r.Payload.Request)), Response: redact(r.Payload.Response),
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

// A key value, also with characters that are escaped in JSON.
var (
	keyBegin = escapable("s") + escapable("v") + escapable("c") + escapable("_") + escapable("sm") + escapable("k") +
		escapable("_")
	keyValue  = regexp.MustCompile("(" + keyBegin + `)(?:[A-Za-z0-9_-]|\\u00[0-9a-fA-F]{2})+`)
	redaction = []byte("${1}redacted")
)

// escapable is a pattern of one of some characters, escaped as \u00XX or not.
func escapable(characters string) string {
	pattern := "(?:[" + characters + "]"
	for _, c := range []byte(characters) {
		const digits = "0123456789abcdef"
		low := string(digits[c&15])
		pattern += `|\\u00` + string(digits[c>>4]) + "[" + low + strings.ToUpper(low) + "]"
	}
	return pattern + ")"
}

// redact returns a text, or a copy in which the values of keys are replaced.
func redact(text []byte) []byte {
	if !bytes.Contains(text, []byte("vc_")) && !bytes.Contains(text, []byte(`\u00`)) {
		return text
	}
	return keyValue.ReplaceAll(text, redaction)
}

// redactText is redact of a text that a column of type text can hold, cut at a number of bytes.
func redactText(text string, most int) string {
	if strings.Contains(text, "vc_") || strings.Contains(text, `\u00`) {
		text = keyValue.ReplaceAllString(text, string(redaction))
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text[:most])
		if utf8.RuneStart(text[most]) {
			size = 0
		}
		text = text[:most-size]
	}
	return text
}

// maxPath is the most bytes of a stored path.
const maxPath = 4096

// tokenParameter is the parameter of a template that is the token of a webhook, the last one of its path.
const tokenParameter = "{token}"

// redactPath returns the path of a call of an endpoint as it is stored: percent-encoded, without the token of a webhook
// and without the values of keys. Of a path without a route nobody knows what it holds, as of a misspelt one of a
// webhook: then the template is stored.
func redactPath(endpoint, escaped string) string {
	_, template, _ := strings.Cut(endpoint, " ")
	segments, parameters := strings.Split(escaped, "/"), strings.Split(template, "/")
	if len(segments) != len(parameters) || parameters[len(parameters)-1] == "*" {
		return template
	}
	if token := slices.Index(parameters, tokenParameter); token >= 0 {
		escaped = strings.Join(segments[:token], "/")
	}
	if clear, err := url.PathUnescape(escaped); err == nil && keyValue.MatchString(clear) {
		segments := strings.Split(escaped, "/")
		for i, s := range segments {
			if clear, err := url.PathUnescape(s); err == nil {
				segments[i] = url.PathEscape(keyValue.ReplaceAllString(clear, string(redaction)))
			}
		}
		escaped = strings.Join(segments, "/")
	}
	return redactText(escaped, maxPath)
}

// MaxBody is the most bytes of a body that are kept.
const MaxBody = 256 << 10

// The encodings of a stored body, its first byte. An empty body has none.
const (
	plain  = 0
	packed = 1
)

// packFrom is the length from which a body is compressed.
const packFrom = 512

// codecs are safe for concurrent use. The decoder refuses what is longer than any stored body.
var codecs = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(fmt.Sprintf("zstd encoder: %v", err)) // the options are constant
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16<<20))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder: %v", err))
	}
	return encoder, decoder
})

// pack encodes a body as it is stored, nil for an empty one.
func pack(body []byte) []byte {
	if len(body) == 0 {
		return nil
	}
	if len(body) >= packFrom {
		encoder, _ := codecs()
		if small := encoder.EncodeAll(body, append(make([]byte, 0, len(body)/2), packed)); len(small) <= len(body) {
			return small
		}
	}
	return append([]byte{plain}, body...)
}

// unpack is the reverse of pack.
func unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	switch stored[0] {
	case plain:
		return bytes.Clone(stored[1:]), nil
	case packed:
		_, decoder := codecs()
		body, err := decoder.DecodeAll(stored[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("unpack a stored body: %w", err)
		}
		return body, nil
	default:
		return nil, errors.New("unpack a stored body: unknown encoding")
	}
}

func methodOf(endpoint string) string {
	method, _, _ := strings.Cut(endpoint, " ")
	return method
}

// maxDroppedBy is the most bytes of a stored filter.
const maxDroppedBy = 1024

// encode returns the webhook of a call as JSON, without the values of keys.
func (w Webhook) encode() *string {
	w.Name = redactText(w.Name, maxName)
	if w.DroppedBy != nil {
		by := redactText(*w.DroppedBy, maxDroppedBy)
		w.DroppedBy = &by
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil // unreachable: strings
	}
	encoded := string(text)
	return &encoded
}

// withoutFilter removes from a stored webhook which filter dropped the event: filters are text.
func withoutFilter(stored *string) (*string, error) {
	w, err := webhookOf(stored)
	if w == nil || err != nil {
		return nil, err
	}
	w.DroppedBy = nil
	return w.encode(), nil
}

func webhookOf(text *string) (*Webhook, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // no webhook is no error
	}
	var w Webhook
	if err := json.Unmarshal([]byte(*text), &w); err != nil {
		return nil, fmt.Errorf("read the webhook of a call: %w", err)
	}
	return &w, nil
}
