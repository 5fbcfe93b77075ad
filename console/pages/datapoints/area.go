// Package datapoints is the pages of data points: the list, one with what happened to it, its correction and deletion,
// the search by any id, sends and those that failed, ingest, import and export.
package datapoints

import (
	"cmp"
	"embed"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Commands *commands.Service
	Points   points.Queries
	Trace    *why.Trace
	Find     why.Finder
	Explain  why.Explainer
	Stopped  points.StoppedSends
	Rooms    account.Queries
	Export   export.Service
	History  history.Reader
	Log      *requestlog.Log
	People   export.PersonService
}

// pages are the pages with what they share.
type pages struct {
	Deps

	// uploads is the memory of the uploads at work.
	uploads *allowance.Allowance
}

// Area returns the pages.
func Area(d Deps) web.Area {
	p := &pages{d, admission.Estimates.New()}
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /p/{project}/data", Needs: web.Read, Auditors: web.Audited, Serve: p.list},
		{Pattern: "GET /p/{project}/data/{id}", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.one},
		{Pattern: "GET /p/{project}/data/{id}/text", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.text},
		{Pattern: "GET /p/{project}/data/{id}/correct", Needs: web.Write, Live: true, Serve: p.correctForm},
		{Pattern: "POST /p/{project}/data/{id}/correct", Needs: web.Write, Live: true, Body: formBody, Serve: p.correct},
		{Pattern: "GET /p/{project}/data/{id}/delete", Needs: web.Write, Serve: p.deleteForm},
		{Pattern: "POST /p/{project}/data/{id}/delete", Needs: web.Write, Live: true, Serve: p.delete},
		{Pattern: "GET /p/{project}/search", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.search},
		{Pattern: "GET /p/{project}/sends/{send}", Needs: web.Read, Auditors: web.Audited, Serve: p.send},
		{Pattern: "GET /p/{project}/failed", Needs: web.Read, Auditors: web.Audited, Serve: p.failed},
		{Pattern: "POST /p/{project}/failed/{send}", Needs: web.Write, Live: true, Serve: p.retry},
		{Pattern: "GET /p/{project}/ingest", Needs: web.Write, Live: true, Serve: p.ingestForm},
		{Pattern: "POST /p/{project}/ingest", Needs: web.Write, Live: true, Body: formBody, Serve: p.ingest},
		{Pattern: "GET /p/{project}/import", Needs: web.Write, Live: true, Serve: p.importForm},
		{Pattern: "POST /p/{project}/import", Needs: web.Write, Live: true, Body: importBody, Serve: p.importFiles},
		{Pattern: "GET /p/{project}/export", Needs: web.Manage, Auditors: web.AuditedTexts, Serve: p.exportForm},
		{Pattern: "GET /p/{project}/export/{file}", Needs: web.Manage, Auditors: web.AuditedTexts, Time: exportTime, Serve: p.exportFile},
	}}
}

const (
	// maxText is the longest text that a form holds, and how much of a text a page shows.
	maxText  = 256 << 10
	shown    = 64 << 10
	formBody = 4 * maxText
)

// pointPath is the page of a data point.
func pointPath(r *web.Request, id string) string { return r.ProjectPath("data", id) }

func (p *pages) list(r *web.Request) error {
	var page web.Part[points.Listed]
	return web.List[points.Listed]{
		Name: "data-points", Columns: []string{
			"id", "label", "excerpt", "author", "audience", "occurredAt", "acceptedAt", "revision", "memories",
		},
		Cells: func(p points.Listed) []any {
			return []any{
				p.SourceID, p.Label, p.Excerpt, p.Author, audienceName(p.Audience, p.PrivateTo), p.OccurredAt, p.AcceptedAt,
				p.Revision, p.Memories,
			}
		},
		Read: func(after, before string, most int) (part web.Part[points.Listed], err error) {
			q := points.ListQuery{Limit: most}
			if q.Filter, err = filterOf(r.URL.Query(), r.Zone()); err != nil {
				return part, err
			}
			if q.Label != "" && !r.SeesTexts() {
				return part, web.NoTexts()
			}
			var wrong error
			q.After, err = points.ParsePlace(after)
			if q.Before, wrong = points.ParsePlace(before); err != nil || wrong != nil {
				return part, web.WrongPlace()
			}
			list, err := p.Points.List(r.Context(), r.Project.Project.ID, q)
			if part.Items = list.Points; !r.SeesTexts() {
				for i := range part.Items {
					part.Items[i].Label, part.Items[i].Excerpt = nil, ""
				}
			}
			part.Pager = web.PagerOf(list.Newer, list.Older, list.First.String(), list.Last.String())
			if part.Pager.Total = web.Total(list.Total); list.AtLeast && list.Total <= web.MaxTotal {
				part.Pager.Total = "at least " + part.Pager.Total
			}
			return part, err
		},
	}.Serve(r, "list.html", &page, &page)
}

// filterOf reads the filter of a list. Its times are in the zone in which the list shows them. The fault is
// invalid-request.
func filterOf(query url.Values, zone *time.Location) (f points.Filter, err error) {
	for name, into := range map[string]*string{
		"author": &f.Author, "audience": &f.Audience, "label": &f.Label, "id": &f.ID,
	} {
		if *into = query.Get(name); !isText(*into) {
			return f, fields.Invalid(name, "is no text")
		}
	}
	for name, end := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		at, err := instant.ReadIn(text, zone)
		if err != nil {
			return f, fields.Invalid(name, "is no time: %v. Write a date or a time in your zone, %s, or with an offset, "+
				"such as 2026-11-26, 2026-11-26T14:00 or 2026-11-26T14:00Z", err, zone)
		}
		if *end = at.At; name == "to" {
			*end = at.End()
		}
	}
	return f, nil
}

// audienceName names an audience: one without a slug is private to an identity, or was removed.
func audienceName(slug, privateTo string) string {
	if privateTo != "" {
		return privateAudience
	}
	return cmp.Or(slug, removedAudience)
}

// The names of audiences without a slug, which no slug can be.
const (
	privateAudience = "(private)"
	removedAudience = "(removed: nobody)"
)

func (p *pages) one(r *web.Request) error {
	query, q := r.URL.Query(), why.PointQuery{Bytes: shown}
	if !q.Continue(query.Get("events"), query.Get("memories")) {
		return web.WrongPlace()
	}
	found, err := p.point(r, q)
	if err != nil {
		return err
	}
	page := onePage{Point: found}
	if err := p.name(r, &page); err != nil {
		return err
	}
	return r.Render("one.html", page)
}

// onePage is a data point with who did what to it.
type onePage struct {
	why.Point

	// Who are the principals of its events, Logged the requests that the request log has.
	Who    map[string]history.Principal `json:"who,omitempty"`
	Logged map[uuid.UUID]bool           `json:"-"`
	// History is what people changed of it, or its deletion.
	History []history.Event `json:"history"`
	Thing   string          `json:"-"`
}

// IsLogged reports whether the request log has the request of the deletion.
func (p onePage) IsLogged(request *uuid.UUID) bool { return p.Logged[*request] }

// lastEvents is how many events of history a page shows of a data point.
const lastEvents = 10

// name adds who did what.
func (p *pages) name(r *web.Request, page *onePage) (err error) {
	project := r.Project.Project
	page.Thing = history.OfDataPoint + ":" + stream.DataPointID(project.Namespace, page.SourceID).String()
	if page.History, err = p.History.Latest(r.Context(), r.HistoryViewer(), page.Thing, lastEvents); err != nil {
		return err
	}
	var requests []uuid.UUID
	var principals []string
	for _, e := range page.Events {
		requests, principals = append(requests, e.Request), append(principals, e.Principal)
	}
	if page.Deleted != nil && page.Deleted.Request != nil {
		requests = append(requests, *page.Deleted.Request)
	}
	if page.Logged, err = p.Log.Logged(r.Context(), project.ID, requests); err != nil {
		return err
	}
	page.Who, err = p.History.Principals(r.Context(), principals)
	return err
}

// point reads the data point of the path. An id that no data point can have is not found.
func (p *pages) point(r *web.Request, q why.PointQuery) (why.Point, error) {
	if q.SourceID = r.Part("id"); !isText(q.SourceID) {
		return why.Point{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "no data point can have this id")
	}
	return p.Trace.Point(r.Context(), r.Project.Project, q)
}

// live is point for one that is not deleted, with some bytes of its texts; 0 for all.
func (p *pages) live(r *web.Request, bytes int) (why.Point, error) {
	found, err := p.point(r, why.PointQuery{Bytes: bytes})
	if err == nil && found.Deleted != nil {
		err = fault.New(fault.Conflict, fault.CodeDataPointDeleted, "this data point was deleted")
	}
	return found, err
}

// isText reports whether a text can be stored.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// text writes the whole text of the newest revision, or with ?of=metadata its metadata.
func (p *pages) text(r *web.Request) error {
	found, err := p.live(r, 0)
	if err != nil {
		return err
	}
	text := found.Text
	if r.URL.Query().Get("of") == "metadata" {
		text = found.JSON
	}
	r.Writer().Header().Set("X-Content-Type-Options", "nosniff")
	return r.Text("text/plain; charset=utf-8", text)
}

func (p *pages) deleteForm(r *web.Request) error {
	found, err := p.live(r, shown)
	if err != nil {
		return err
	}
	return r.Render("delete.html", found)
}

func (p *pages) delete(r *web.Request) error {
	_, err := p.Commands.DeleteDataPoints(r.Context(), r.Command(), []string{r.Part("id")})
	return r.Did(err, r.ProjectPath("data"), "deleted")
}

// result is something that an id names, with its page.
type result struct {
	why.Found

	Path string `json:"path"`
}

// folders have the pages of what ids name; all others are nodes of the trace.
var folders = map[why.Kind]string{
	why.FoundDataPoint: "data", why.FoundSend: "sends", why.FoundRequest: "requests", why.FoundIdentity: "identities",
	why.FoundAudience: "audiences", why.FoundWebhook: "webhooks",
}

// search shows what an id names. With one meaning, the browser goes there at once.
func (p *pages) search(r *web.Request) error {
	results, query := []result{}, r.URL.Query().Get("q")
	if !isText(query) {
		return r.Invalid(fields.Invalid("q", "is no text"), "search.html", results)
	}
	found, err := p.Find.Find(r.Context(), r.Project.Project, query)
	if err != nil {
		return err
	}
	for _, f := range found {
		one := result{f, r.ProjectPath(cmp.Or(folders[f.Kind], "trace"), f.ID)}
		if f.Kind == why.FoundDeletion {
			one.Path = r.ProjectPath("requests") + "?search=" + f.ID
		}
		if !slices.ContainsFunc(results, func(other result) bool { return other.Path == one.Path }) {
			results = append(results, one)
		}
	}
	if len(results) == 1 && r.Format() == "" {
		r.Redirect(results[0].Path)
		return nil
	}
	return r.Render("search.html", results)
}

// sendPage is a send with what became of it.
type sendPage struct {
	why.Explanation

	// Open is true while more happens by itself: then Done of the items that are shown are searchable.
	Open bool
	Done int
	// By is who sent it, nil if that is not known any more. IsLogged reports that the request log has the call.
	By       *history.Principal
	IsLogged bool
}

// sendOf is the send in the path. An id that is no UUID names none.
func sendOf(r *web.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("send"))
	if err != nil {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the id of a send is a UUID")
	}
	return id, err
}

func (p *pages) send(r *web.Request) error {
	id, err := sendOf(r)
	if err != nil {
		return err
	}
	e, err := p.Explain.Explain(r.Context(), r.Project.Project, id)
	if err != nil {
		return err
	}
	if e.Send == nil {
		r.Redirect(r.ProjectPath("requests", e.RequestID.String()))
		return nil
	}
	page := sendPage{Explanation: e, Open: e.Send.SettledAt == nil && !e.Send.Deleted}
	for _, i := range e.Send.Items {
		if i.Searchable {
			page.Done++
		}
	}
	if err := p.sentBy(r, &page); err != nil {
		return err
	}
	return r.Render("send.html", page)
}

// sentBy adds who sent a send.
func (p *pages) sentBy(r *web.Request, page *sendPage) error {
	first := uuid.Nil
	if len(page.Send.Items) > 0 {
		first = page.Send.Items[0].DataPoint
	}
	by, known, err := p.History.SentBy(r.Context(), page.Send.ID, first)
	if err != nil {
		return err
	}
	if known {
		page.By = &by
	}
	logged, err := p.Log.Logged(r.Context(), r.Project.Project.ID, []uuid.UUID{page.Send.RequestID})
	page.IsLogged = logged[page.Send.RequestID]
	return err
}

func (p *pages) failed(r *web.Request) error {
	var page web.Part[points.StoppedSend]
	return web.List[points.StoppedSend]{
		Name: "failed-sends", Columns: []string{"acceptedAt", "send", "items", "code", "message", "failedAt", "retryable"},
		Cells: func(s points.StoppedSend) []any {
			return []any{s.AcceptedAt, s.IngestionID, s.Items, s.Code, s.Message, s.FailedAt, s.Retryable}
		},
		Read: func(after, before string, most int) (web.Part[points.StoppedSend], error) {
			return web.Forwards(after, before, func(cursor string) (_ []points.StoppedSend, next string, err error) {
				from := uuid.Nil
				if cursor != "" {
					if from, err = uuid.Parse(cursor); err != nil {
						return nil, "", web.WrongPlace()
					}
				}
				list, err := p.Stopped.List(r.Context(), r.Project.Project.ID, most, from)
				return list.Failed, list.After, err
			})
		},
	}.Serve(r, "failed.html", &page, &page)
}

func (p *pages) retry(r *web.Request) error {
	id, err := sendOf(r)
	if err == nil {
		err = p.Commands.Retry(r.Context(), r.Command(), id)
	}
	return r.Did(err, r.ProjectPath("sends", id.String()), "retried")
}
