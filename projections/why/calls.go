package why

import (
	"context"
	"log/slog"
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
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
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

// MaxDropped is up to which number Taken counts dropped events.
const MaxDropped = 1_000

const (
	// maxBodies is up to which number Taken counts calls, and maxProjects bounds the projects that it looks at.
	maxBodies   = 10_000
	maxProjects = 1_000
)

// Taken is what an erasure of a person takes besides what that person wrote, and what it leaves.
type Taken struct {
	// Bodies is how many calls of the project lose their bodies. Above maxBodies it is one more.
	Bodies int `json:"bodies"`
	// Dropped is how many events of webhooks were dropped and can be replayed only before. Above MaxDropped it is one
	// more.
	Dropped int `json:"droppedEvents"`
	// Others is how many texts that others wrote hold the words of the name. HasMore is true if there may be more, and
	// NotSearched if the search failed.
	Others      int  `json:"textsOfOthers"`
	HasMore     bool `json:"hasMoreTexts"`
	NotSearched bool `json:"notSearched,omitempty"`
	// Projects are the slugs of other projects of the organization that have a record of the identity. NotAll is true if
	// the organization has more projects than were looked at.
	Projects []string `json:"otherProjects"`
	NotAll   bool     `json:"notAllProjects,omitempty"`
}

// BodiesAreMore and DroppedAreMore report counts that stopped.
func (t Taken) BodiesAreMore() bool { return t.Bodies > maxBodies }

// DroppedAreMore reports that the count stopped.
func (t Taken) DroppedAreMore() bool { return t.Dropped > MaxDropped }

// MostBodies and MostDropped are where the counts stop.
func (Taken) MostBodies() int { return maxBodies }

// MostDropped is where the count stops.
func (Taken) MostDropped() int { return MaxDropped }

// Takes finds what an erasure takes.
type Takes struct {
	Log interface {
		CountBodies(ctx context.Context, project uuid.UUID, most int) (int, error)
		DroppedEvents(
			ctx context.Context, project uuid.UUID, webhooks []string, since time.Time, limit int,
		) ([]requestlog.Event, error)
	}
	Trace     *Trace
	Points    datapoints.Queries
	Directory *directory.Queries
	Access    access.Queries
	Logger    *slog.Logger
}

// Taken returns what the erasure of an identity of a project takes at an instant. Each count is one bounded statement.
func (q Takes) Taken(
	ctx context.Context, organization uuid.UUID, project auth.Project, identity string, at time.Time,
) (t Taken, err error) {
	if t.Bodies, err = q.Log.CountBodies(ctx, project.ID, maxBodies+1); err != nil {
		return t, err
	}
	hooks, err := q.Access.Webhooks(ctx, project)
	if err != nil {
		return t, err
	}
	ids := make([]string, len(hooks))
	for i, w := range hooks {
		ids[i] = w.ID
	}
	dropped, err := q.Log.DroppedEvents(ctx, project.ID, ids, at.Add(-requestlog.Retention), MaxDropped+1)
	if err != nil {
		return t, err
	}
	t.Dropped = len(dropped)
	found, more, searched := q.Trace.Naming(ctx, project, identity)
	if t.HasMore, t.NotSearched = more, searched != nil; searched != nil {
		q.Logger.WarnContext(ctx, "texts that name a person are not searched", "err", searched)
	}
	if t.Others, err = q.Points.CountOfOthers(ctx, project.ID, found, identity); err != nil {
		return t, err
	}
	return t, q.elsewhere(ctx, &t, organization, project, identity)
}

// elsewhere adds the other projects that know the identity.
func (q Takes) elsewhere(
	ctx context.Context, t *Taken, organization uuid.UUID, project auth.Project, identity string,
) error {
	projects, err := q.Access.Projects(ctx, organization)
	if err != nil {
		return err
	}
	if t.NotAll = len(projects) > maxProjects; t.NotAll {
		projects = projects[:maxProjects]
	}
	records := make([]directory.Record, len(projects))
	for i, p := range projects {
		records[i] = directory.Record{ProjectID: p.ID, ID: stream.IdentityID(p.Namespace, identity)}
	}
	known, err := q.Directory.KnownRecords(ctx, records)
	t.Projects = []string{}
	for i, p := range projects {
		if _, is := known[records[i]]; is && p.ID != project.ID {
			t.Projects = append(t.Projects, p.Slug)
		}
	}
	return err
}

// Naming returns data points of a project whose texts hold all words of a name, as a search of the roots does. more is
// true if there may be others.
func (s *Trace) Naming(ctx context.Context, project auth.Project, name string) (ids []uuid.UUID, more bool, err error) {
	query, err := s.queryOf(ctx, project)
	if err != nil {
		return nil, false, err
	}
	query.Memories = 0
	found, err := s.searchEither(ctx, query, name)
	for id := range withAll(found.sources, found.terms) {
		ids = append(ids, id)
	}
	return ids, len(found.sources) == searchHits, err
}

// DroppedEvents returns dropped events of some webhooks of a project that can be replayed at an instant, the oldest
// first.
func (q Calls) DroppedEvents(
	ctx context.Context, project auth.Project, webhooks []string, at time.Time, limit int,
) ([]requestlog.Event, error) {
	return q.Log.DroppedEvents(ctx, project.ID, webhooks, at.Add(-requestlog.Retention), limit)
}

// MarkReplayed notes at an event by which call it was replayed.
func (q Calls) MarkReplayed(ctx context.Context, event requestlog.Entry, as uuid.UUID) error {
	return q.Log.MarkReplayed(ctx, event, as)
}
