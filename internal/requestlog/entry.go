// Package requestlog stores one row for each logged call of a project: who called what, when, with
// which outcome, and the bodies as long as retention keeps them. Calls are written off the request
// path in batches (Writer), read back by Log, and lose their bodies when a data point that they
// carried or returned is deleted (Blank).
package requestlog

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/cursor"
)

// Retention is how long the row of a call is kept.
const Retention = 90 * 24 * time.Hour

// MaxRange is the longest window of a list or histogram.
const MaxRange = 31 * 24 * time.Hour

// Entry is one logged call.
type Entry struct {
	RequestID  uuid.UUID
	Project    uuid.UUID
	ReceivedAt time.Time
	// Endpoint is the method and the template of the route: "POST /api/v1/ingest".
	Endpoint string
	Method   string
	// Path has no query. Source ids of erased data points are replaced by the template's parameter.
	Path string
	// DataPoint is that whose source id is in Path, or that an event of a webhook is about. It is nil for none.
	DataPoint *uuid.UUID
	Status    int
	// ErrorCode is "" for a success.
	ErrorCode string
	Duration  time.Duration
	Key       Key
	// Person is who made the call at the console, nil for the call of a program.
	Person *uuid.UUID
	// Identity is the identity that the call was about or answered as, nil for none.
	Identity *string
	// IngestionID is the send that the call made or queued again, nil for none.
	IngestionID *uuid.UUID
	// CreditTenths is what the call was charged, nil without metering.
	CreditTenths *int64
	// Webhook is nil unless the call was an event of a webhook.
	Webhook *Webhook
}

// Key is the credential of a call without its secret.
type Key struct {
	Name   string
	Prefix string
}

// Webhook is what the receiver decided on an event. Verdict is "" for a refused one.
type Webhook struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	EventID   string  `json:"eventId"`
	Verdict   string  `json:"verdict"`
	DroppedBy *string `json:"droppedBy"`
	// Test reports that a person sent the event from the console, to try the webhook.
	Test bool `json:"test,omitempty"`
	// Replay reports that a person sent the body of an event before again.
	Replay bool `json:"replay,omitempty"`
	// ReplayedAs is the call by which the event was last replayed, nil for none.
	ReplayedAs *uuid.UUID `json:"replayedAs,omitempty"`
}

// Call is an entry with what only the read of one call shows.
type Call struct {
	Entry
	RequestBytes, ResponseBytes int64
	// RequestHeaders and ResponseHeaders are JSON objects of allow-listed headers, lower-case name to
	// value.
	RequestHeaders, ResponseHeaders json.RawMessage
	// Plan decides how long the bodies are kept.
	Plan string
	// IDs are the data points, memories and source nodes that the call carried or returned.
	IDs []uuid.UUID
	// Payload is nil if the bodies are not stored, or no longer.
	Payload *Payload
}

// Payload is the bodies of a call, each cut at MaxBody. Keys in them are redacted.
type Payload struct {
	Request, Response                   []byte
	RequestTruncated, ResponseTruncated bool
}

// Page is some calls of a list, newest first.
type Page struct {
	Entries    []Entry
	TotalCount int64
	HasMore    bool
	// EndCursor is nil for an empty page.
	EndCursor *Cursor
}

// Histogram counts calls by the time that they were received.
type Histogram struct {
	BucketMinutes int
	Totals        Totals
	// Buckets cover the window without gaps, oldest first.
	Buckets []Bucket
}

// Totals counts calls by outcome. A call whose send failed later is not among the accepted ones.
type Totals struct {
	Accepted, FailedLater, Rejected int64
}

// Bucket is the calls from Start on, for the minutes of a bucket.
type Bucket struct {
	Start time.Time
	Totals
}

// Hit is a result of a recall.
type Hit struct {
	RequestID  uuid.UUID
	ReceivedAt time.Time
	// Identity is the identity that recalled.
	Identity string
	// NodeID is the id of the result: a memory, or the node of a source.
	NodeID uuid.UUID
	Rank   int
}

// Log reads the request log. Every query is scoped by project.
type Log struct {
	DB *pgxpool.Pool
	// FailedSends is a query of the ids of the failed sends of project $1, which the histogram reads;
	// without it no call counts as failed later.
	FailedSends string
}

// Query selects calls. Values of one filter are alternatives, and a call must match every filter
// that has values.
type Query struct {
	// From is inclusive, To is not.
	From, To time.Time
	Statuses []int
	// Classes are the first digits of statuses.
	Classes   []int
	Endpoints []string
	KeyNames  []string
	// Webhooks are the ids of webhooks whose events are selected.
	Webhooks []string
	// Search matches a request id, a part of a key name, or the data point of a source id.
	Search string
	// SearchPoint is the data point that Search is the source id of.
	SearchPoint uuid.UUID
	// After is the last call of the page before, nil for the first page.
	After *Cursor
	// First is the most calls of a page.
	First int
}

// Cursor is the place of a call in a list.
type Cursor = cursor.Cursor

// ParseCursor reads what its String wrote.
func ParseCursor(text string) (Cursor, error) { return cursor.Parse(text) }

// step is a length of time that calls are counted by, in minutes. calls of step 0 are read from the
// rows themselves.
type step int

// steps are those of ops.request_counts. Each divides the next.
var steps = []step{1, 15, 180}

func (s step) duration() time.Duration { return time.Duration(s) * time.Minute }

// floor returns the beginning of the step that holds an instant.
func (s step) floor(at time.Time) time.Time {
	length := s.duration().Microseconds()
	micros := at.UnixMicro()
	rest := micros % length
	if rest < 0 {
		rest += length
	}
	return time.UnixMicro(micros - rest).UTC()
}

// segment is a part of a window that begins and ends at multiples of its step.
type segment struct {
	step     step
	from, to time.Time
}

// segmentsOf cuts a window into segments, with the longest steps up to most in the middle. No two
// overlap and none is empty.
func segmentsOf(from, to time.Time, most step) []segment {
	var before, after []segment
	add := func(list []segment, s step, a, b time.Time) []segment {
		if a.Before(b) {
			return append(list, segment{s, a, b})
		}
		return list
	}
	last := step(0)
	for _, s := range steps {
		if s > most {
			break
		}
		first := s.floor(from)
		if first.Before(from) {
			first = first.Add(s.duration())
		}
		end := s.floor(to)
		if !first.Before(end) {
			break
		}
		before = add(before, last, from, first)
		after = append(add(nil, last, end, to), after...)
		from, to, last = first, end, s
	}
	return append(add(before, last, from, to), after...)
}

// bucketMinutes are the lengths of the buckets of a histogram; maxBuckets is how many it has.
var bucketMinutes = []int{1, 5, 15, 30, 60, 180, 360, 720, 1440}

const maxBuckets = 100

// bucketOf returns the shortest bucket that covers a window in at most maxBuckets.
func bucketOf(from, to time.Time) step {
	for _, minutes := range bucketMinutes {
		s := step(minutes)
		if to.Sub(s.floor(from)) <= maxBuckets*s.duration() {
			return s
		}
	}
	return step(bucketMinutes[len(bucketMinutes)-1])
}
