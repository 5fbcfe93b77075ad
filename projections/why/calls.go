package why

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/readlog"
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
	DroppedEvents(
		ctx context.Context, project uuid.UUID, webhooks []string, since time.Time, limit int,
	) ([]requestlog.Event, error)
	MarkReplayed(ctx context.Context, event requestlog.Entry, as uuid.UUID) error
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
	// By is the name of its person, if a page shows it.
	By string `json:",omitempty"`
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
		err = d.show(ctx)
	}
	return d, err
}

// show adds the bodies of a call, and the data points that they hold, to the read of the request.
func (d CallDetail) show(ctx context.Context) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	read.OfCall(d.RequestID)
	shown := make([]reads.Shown, len(d.Logged.IDs))
	for i, id := range d.Logged.IDs {
		shown[i].DataPoint = id
	}
	return read.Show(ctx, reads.Body, shown...)
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

const (
	// defaultPage is the size of a page of calls, defaultWindow the window that is listed.
	defaultPage   = 25
	defaultWindow = 24 * time.Hour
)

// statusClasses are the values of filter statusClass.
var statusClasses = map[string]int{"2xx": 2, "4xx": 4, "5xx": 5}

// CallQueryOf reads the parameters of a list or histogram, as API and console have them. The fault is invalid-range,
// range-too-wide, or invalid-request with the field that is wrong. paged is true for a list.
func CallQueryOf(
	values url.Values, now time.Time, project auth.Project, paged bool,
) (q requestlog.Query, err error) {
	var problems fields.Problems
	q.Statuses, q.Classes = statusesOf(values["status"], &problems), classesOf(values["statusClass"], &problems)
	q.Endpoints, q.KeyNames = namesOf(values, "endpoint", &problems), namesOf(values, "keyName", &problems)
	if search := strings.TrimSpace(values.Get("search")); search != "" {
		problems.CheckParameter("search", search, limit.SourceID)
		q.Search, q.SearchPoint = search, stream.DataPointID(project.Namespace, search)
	}
	if paged {
		q.First = problems.Count("first", values.Get("first"), limit.RequestPage, defaultPage)
		q.After = problems.Cursor("after", values.Get("after"), "requests")
	}
	from, to := problems.Instant("from", values.Get("from")), problems.Instant("to", values.Get("to"))
	if err := problems.Err(); err != nil {
		return q, err
	}
	if to == nil { // The call's own time is not part of the default window: it is received now.
		to = &instant.Written{At: now}
	}
	if q.To = to.End().UTC(); from == nil {
		q.From = q.To.Add(-defaultWindow)
		return q, nil
	}
	if q.From = from.At.UTC(); q.From.After(to.Last()) {
		return q, fault.New(fault.Invalid, fault.CodeInvalidRange, "from %s is after to %s",
			q.From.Format(time.RFC3339Nano), to.Last().UTC().Format(time.RFC3339Nano))
	}
	if to.At.Sub(q.From) > requestlog.MaxRange {
		return q, fault.New(fault.Invalid, fault.CodeRangeTooWide,
			"the window is longer than 31 days: bring from and to closer together")
	}
	return q, nil
}

// maxValues is the most values of one filter.
const maxValues = 100

func statusesOf(texts []string, problems *fields.Problems) []int {
	checkCount("status", texts, problems)
	var statuses []int
	for _, text := range texts {
		status, err := strconv.Atoi(text)
		if err != nil || len(text) != 3 || status < 100 || status > 599 {
			problems.Add("status", "is %.40q: want an HTTP status such as 202", text)
			continue
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func classesOf(texts []string, problems *fields.Problems) []int {
	checkCount("statusClass", texts, problems)
	var classes []int
	for _, text := range texts {
		class, ok := statusClasses[text]
		if !ok {
			problems.Add("statusClass", "is %.40q: want 2xx, 4xx or 5xx", text)
			continue
		}
		classes = append(classes, class)
	}
	return classes
}

func namesOf(values url.Values, name string, problems *fields.Problems) []string {
	checkCount(name, values[name], problems)
	for _, text := range values[name] {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			problems.Add(name, "is not text in UTF-8 without U+0000")
		}
	}
	return slices.Clone(values[name])
}

func checkCount(name string, texts []string, problems *fields.Problems) {
	if len(texts) > maxValues {
		problems.Add(name, "occurs %d times: want at most %d", len(texts), maxValues)
	}
}
