package webhooks

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/why"
)

// row is an event in the log of a webhook.
type row struct {
	RequestID  uuid.UUID `json:"requestId"`
	ReceivedAt time.Time `json:"receivedAt"`
	EventID    string    `json:"eventId"`
	// Verdict is ingested, dropped or refused, and Why the filter or the code that decided so.
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"`
	// SourceID is that of the data point, "" if there is none, or no longer.
	SourceID     string     `json:"sourceId,omitempty"`
	IngestionID  *uuid.UUID `json:"ingestionId"`
	FailedLater  bool       `json:"failedLater"`
	CreditTenths *int64     `json:"creditTenths"`
	// SentAs is test or replay for an event that a person sent from the console.
	SentAs string `json:"sentAs,omitempty"`
}

func rowOf(c why.Call, sources map[uuid.UUID]string) row {
	out := row{
		RequestID: c.RequestID, ReceivedAt: c.ReceivedAt, Why: c.ErrorCode, IngestionID: c.IngestionID,
		FailedLater: c.Outcome == why.OutcomeFailedLater, CreditTenths: c.CreditTenths,
	}
	if w := c.Webhook; w != nil {
		out.EventID, out.Verdict = w.EventID, cmp.Or(w.Verdict, "refused")
		switch {
		case w.Test:
			out.SentAs = "test"
		case w.Replay:
			out.SentAs = "replay"
		}
		if w.DroppedBy != nil {
			out.Why = *w.DroppedBy
		}
	}
	if c.DataPoint != nil {
		out.SourceID = sources[*c.DataPoint]
	}
	return out
}

// eventLog is a page of the log of a webhook.
type eventLog struct {
	web.Part[row]

	ID      string `json:"id"`
	Name    string `json:"name"`
	From    string `json:"from"`
	To      string `json:"to"`
	Verdict string `json:"verdict"`
}

func (d Deps) events(r *web.Request) error {
	w, _, err := d.find(r)
	if err != nil {
		return err
	}
	query, out, wrong := queryOf(r, w)
	return web.List[row]{
		Name: "events-" + w.ID, Columns: []string{
			"receivedAt", "requestId", "eventId", "verdict", "why", "dataPoint", "ingestionId", "credits", "sentAs",
		},
		Cells: func(e row) []any {
			return []any{
				e.ReceivedAt, e.RequestID, e.EventID, e.Verdict, e.Why, e.SourceID, e.IngestionID, tenants.Cap(e.CreditTenths),
				e.SentAs,
			}
		},
		Read: func(after, before string, most int) (part web.Part[row], err error) {
			if wrong != nil {
				return part, wrong
			}
			total := int64(0)
			part, err = web.Forwards(after, before, func(cursor string) (list []row, next string, err error) {
				list, next, total, err = d.read(r, query, cursor, most)
				return list, next, err
			})
			part.Pager.Total = web.Total(total)
			return part, err
		},
	}.Page(r, "events.html", &out, &out.Part, nil)
}

// read reads some events after a cursor, and counts those of the query.
func (d Deps) read(
	r *web.Request, q requestlog.Query, cursor string, most int,
) (list []row, next string, total int64, err error) {
	if q.First = most; cursor != "" {
		after, err := requestlog.ParseCursor(cursor)
		if err != nil {
			return nil, "", 0, fault.New(fault.Invalid, fault.CodeInvalidRequest, "after is %v", err)
		}
		q.After = &after
	}
	found, err := d.Calls.List(r.Context(), r.Project.Project, q)
	if err != nil {
		return nil, "", 0, err
	}
	sources, err := d.Calls.SourceIDs(r.Context(), r.Project.Project, found.Calls)
	list = make([]row, len(found.Calls))
	for i, c := range found.Calls {
		list[i] = rowOf(c, sources)
	}
	if found.HasMore {
		next = found.EndCursor.String()
	}
	return list, next, found.TotalCount, err
}

// queryOf reads the filter of the log. Days are those of the reader; without any it is the last month.
func queryOf(r *web.Request, w access.Webhook) (requestlog.Query, eventLog, error) {
	in, today := r.URL.Query(), r.Now().In(r.Zone())
	out := eventLog{
		ID: w.ID, Name: w.Settings.Name, Verdict: in.Get("verdict"), From: in.Get("from"), To: in.Get("to"),
	}
	q := requestlog.Query{Webhooks: []string{w.ID}}
	switch out.Verdict {
	case "ingested":
		q.Statuses = []int{requestlog.Ingested}
	case "dropped":
		q.Statuses = []int{requestlog.Dropped}
	case "refused":
		q.Classes = []int{4, 5}
	}
	if out.To == "" {
		out.To = today.Format(time.DateOnly)
	}
	to, err := time.ParseInLocation(time.DateOnly, out.To, r.Zone())
	if err == nil && out.From == "" {
		out.From = to.AddDate(0, 0, -29).Format(time.DateOnly)
	}
	from, fromErr := time.ParseInLocation(time.DateOnly, out.From, r.Zone())
	if errors.Join(err, fromErr) != nil {
		return q, out, fault.New(fault.Invalid, fault.CodeInvalidRange, "from and to are days, as in 2026-11-30")
	}
	q.From, q.To = from, to.AddDate(0, 0, 1)
	if q.From.After(to) || q.To.Sub(q.From) > requestlog.MaxRange {
		return q, out, fault.New(fault.Invalid, fault.CodeInvalidRange, "choose 1 to 30 days, the first one first")
	}
	return q, out, nil
}

// detail is one event.
type detail struct {
	row

	ID   string `json:"id"`
	Name string `json:"name"`
	// Waiting reports that the event was sent a moment ago, and is not in the log yet.
	Waiting bool              `json:"waiting,omitempty"`
	Bytes   int64             `json:"bytes"`
	Headers map[string]string `json:"headers"`
	Request string            `json:"request"`
	Answer  string            `json:"answer"`
	// Lost is why the body cannot be sent again, "" if it can.
	Lost string `json:"lost,omitempty"`
	// ReplayedAs is the event by which this one was last replayed, nil for none.
	ReplayedAs *uuid.UUID `json:"replayedAs,omitempty"`

	entry requestlog.Entry
}

func (d Deps) event(r *web.Request) error {
	out, _, err := d.detail(r)
	if err != nil {
		return err
	}
	if out.Waiting {
		r.Writer().Header().Set("Refresh", "1")
	}
	return r.Render("event.html", out)
}

var errNoEvent = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such event")

// justNow is how long the row of an event may take until it is in the log.
const justNow = 10 * time.Second

// detail reads the event of the path, with its body if it is there as it came.
func (d Deps) detail(r *web.Request) (out detail, body []byte, err error) {
	w, _, err := d.find(r)
	if err != nil {
		return out, nil, err
	}
	id, err := uuid.Parse(r.PathValue("request"))
	if err != nil {
		return out, nil, errNoEvent
	}
	out = detail{row: row{RequestID: id}, ID: w.ID, Name: w.Settings.Name}
	found, err := d.Calls.Event(r.Context(), r.Project.Project, w.ID, id, r.Now())
	if f := httpx.Fault(err); err != nil && f.Kind == fault.NotFound {
		seconds, nanos := id.Time().UnixTime()
		if age := r.Now().Sub(time.Unix(seconds, nanos)); id.Version() == 7 && age >= -justNow && age < justNow {
			out.Waiting = true
			return out, nil, nil
		}
	}
	if err != nil {
		return out, nil, err
	}
	sources, err := d.Calls.SourceIDs(r.Context(), r.Project.Project, []why.Call{found.Call})
	if err != nil {
		return out, nil, err
	}
	out.row, out.Bytes, out.entry = rowOf(found.Call, sources), found.Logged.RequestBytes, found.Entry
	out.ReplayedAs = found.Webhook.ReplayedAs
	if err := json.Unmarshal(found.Logged.RequestHeaders, &out.Headers); err != nil {
		return out, nil, err
	}
	if p := found.Logged.Payload; p != nil {
		out.Request, out.Answer = cut(p.Request), cut(p.Response)
	}
	if body, err = d.Calls.BodyOf(found, r.Now()); err != nil {
		out.Lost = httpx.Fault(err).Msg
	}
	return out, body, nil
}

// cut is the beginning of a body as text.
func cut(body []byte) string {
	return strings.ToValidUTF8(string(body[:min(len(body), shownBody)]), "\uFFFD")
}

// body is the whole body that the log has of an event.
func (d Deps) body(r *web.Request) error {
	out, body, err := d.detail(r)
	if err == nil && out.Waiting {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the event is not in the log yet")
	}
	if err == nil && out.Lost != "" {
		err = fault.New(fault.Conflict, fault.CodeConflict, "%s", out.Lost)
	}
	if err != nil {
		return err
	}
	if err := r.Store(); err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+out.EventID+`"`)
	h.Set("Cache-Control", "no-store")
	_, _ = r.Writer().Write(body) // a browser that left reads no more
	return nil
}

// replay sends the body of an event again, as a new event.
func (d Deps) replay(r *web.Request) error {
	out, body, err := d.detail(r)
	if err != nil {
		return err
	}
	if out.Lost != "" || out.Waiting {
		return r.Invalid(fault.New(fault.Conflict, fault.CodeConflict, "%s", out.Lost), "event.html", out)
	}
	_, caller, err := d.find(r)
	if err != nil {
		return err
	}
	sent, err := d.send(r, caller, httpx.InnerCall{Body: body, ContentType: out.Headers["content-type"], Replay: true})
	if err != nil {
		return r.Invalid(err, "event.html", out)
	}
	if err := d.Calls.MarkReplayed(r.Context(), out.entry, sent.RequestID); err != nil {
		return err
	}
	return r.Done(pathOf(r, out.ID, "events", sent.RequestID.String()), "sent")
}

// send sends an event in the process, on the way of every event: it is limited, charged, ingested and logged.
func (d Deps) send(r *web.Request, caller auth.Principal, call httpx.InnerCall) (httpx.InnerAnswer, error) {
	id := caller.Webhook.ID
	caller.Webhook.SentBy = r.Person.ID
	call.As, call.Method, call.Path = caller, http.MethodPost, auth.Prefix+"/webhooks/"+id+"/console"
	call.To = io.Discard // the page shows nothing of the answer
	return d.API.Do(r.Context(), call)
}

// MostReplayed is how many dropped events one form replays.
const MostReplayed = 25

// Replayed is what a form did that replays dropped events.
type Replayed struct {
	// Events is how many were sent again, Ingested how many of them became data points, DroppedAgain how many did not.
	Events, Ingested, DroppedAgain int
	// Lost is how many could not be sent, since the log does not have their body as it came.
	Lost int
	// Stopped is why others were not sent, "" for nothing.
	Stopped string
}

// replayDropped sends the oldest dropped events of the project again, and leads back to the page of erasures. A
// refusal, such as by the limit of a minute, stops it: what is left is sent by another form.
func (d Deps) replayDropped(r *web.Request) error {
	hooks, err := d.Access.Webhooks(r.Context(), r.Project.Project)
	if err != nil {
		return err
	}
	ids := make([]string, len(hooks))
	for i, w := range hooks {
		ids[i] = w.ID
	}
	events, err := d.Calls.DroppedEvents(r.Context(), r.Project.Project, ids, r.Now(), why.MaxDropped)
	if err != nil {
		return err
	}
	var done Replayed
	callers := map[string]auth.Principal{}
	for _, e := range events {
		if done.Events == MostReplayed {
			break
		}
		if err := d.replayOne(r, e, callers, &done); err != nil {
			f := httpx.Fault(err)
			if httpx.Status(f.Kind) >= http.StatusInternalServerError && done.Events == 0 {
				return err
			}
			done.Stopped = f.Msg
			break
		}
	}
	back := r.ProjectPath("erasures") + "?identity=" + url.QueryEscape(r.PostForm.Get("identity"))
	return web.ShowOnce(r, back, done)
}

// replayOne sends a dropped event again as one of its webhook, which callers have by its id.
func (d Deps) replayOne(
	r *web.Request, e requestlog.Event, callers map[string]auth.Principal, done *Replayed,
) error {
	found, err := d.Calls.Event(r.Context(), r.Project.Project, e.Webhook.ID, e.RequestID, r.Now())
	if err != nil {
		return err
	}
	body, err := d.Calls.BodyOf(found, r.Now())
	if err != nil {
		done.Lost++
		return nil //nolint:nilerr // the log does not have it as it came
	}
	caller, known := callers[e.Webhook.ID]
	if !known {
		if _, caller, known, err = d.Access.WebhookOf(r.Context(), r.Project.Project, e.Webhook.ID); err != nil || !known {
			return err // deleted meanwhile
		}
		callers[e.Webhook.ID] = caller
	}
	var headers map[string]string
	if err := json.Unmarshal(found.Logged.RequestHeaders, &headers); err != nil {
		return err
	}
	sent, err := d.send(r, caller, httpx.InnerCall{Body: body, ContentType: headers["content-type"], Replay: true})
	if err != nil {
		return err
	}
	if done.Events++; sent.Status == requestlog.Ingested {
		done.Ingested++
	} else {
		done.DroppedAgain++
	}
	return d.Calls.MarkReplayed(r.Context(), e.Entry, sent.RequestID)
}
