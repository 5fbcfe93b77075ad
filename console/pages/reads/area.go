// Package reads is the pages of who was shown which texts of a project: the setting, the records and one of them.
package reads

import (
	"cmp"
	"embed"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/reads/shown"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Reads    reads.Queries
	Access   access.Queries
	Accounts account.Queries
	History  history.Reader
	Commands *commands.Service
	// Shown reads the texts that records name.
	Shown shown.Reader
	// AppendTime is about what an append of records takes, 0 if none was made yet.
	AppendTime func() time.Duration
}

// Area returns the pages.
func Area(d Deps) web.Area {
	setting := web.NewPage("setting.html", d.setting)
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /p/{project}/reads", Needs: web.Manage, Auditors: web.Audited, Serve: d.list},
		{Pattern: "GET /p/{project}/reads/{request}", Needs: web.Manage, Auditors: web.Audited, Serve: d.one},
		{
			Pattern: "GET /p/{project}/reads/{request}/texts", Needs: web.Manage, Auditors: web.AuditedTexts, Serve: d.texts,
		},
		{Pattern: "GET /p/{project}/reads/setting", Needs: web.Manage, Auditors: web.Audited, Serve: setting.Show},
		{Pattern: "POST /p/{project}/reads/setting", Needs: web.Owner, Serve: setting.After("saved", d.set)},
	}}
}

// settingPage is the setting with what it costs.
type settingPage struct {
	Mode project.ReadsMode `json:"mode"`
	Days int               `json:"days"`
	// Bytes is what a record has, on average of the newest Sampled ones or, without any, about, and Year what the recalls
	// of a year take if they go on as in this month.
	Bytes   int64 `json:"bytesARead"`
	Sampled int   `json:"sampled"`
	Recalls int64 `json:"recallsOfTheMonth"`
	Year    int64 `json:"bytesAYear"`
	// AppendMillis is about what an answer waits for its record if reads are proved, 0 if it is not known.
	AppendMillis float64 `json:"appendMs,omitempty"`

	Events []history.Event `json:"events"`
	// Least and Most are the days that may be set.
	Least   int  `json:"-"`
	Most    int  `json:"-"`
	IsOwner bool `json:"-"`
}

// usualBytes is about the record of a recall that shows ten texts.
const usualBytes = 2600

// lastEvents is how many changes the page shows.
const lastEvents = 10

func (d Deps) setting(r *web.Request) (page settingPage, err error) {
	p, ok, err := d.Access.ProjectBySlug(r.Context(), r.Membership.Organization, r.Project.Project.Slug)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", r.Project.Project.Slug)
	}
	if err != nil {
		return page, err
	}
	page = settingPage{
		Mode: cmp.Or(p.Reads, project.ReadsOff), Days: p.ReadDays, Bytes: usualBytes, Least: limit.LeastReadDays,
		Most: limit.MostReadDays, IsOwner: r.May(web.Owner),
		AppendMillis: float64(d.AppendTime().Microseconds()) / 1000,
	}
	cost, err := d.Reads.Cost(r.Context(), p.ID)
	if err != nil {
		return page, err
	}
	if page.Sampled = cost.Reads; cost.Reads > 0 {
		page.Bytes = cost.Bytes / int64(cost.Reads)
	}
	used, ok, err := d.Accounts.Project(r.Context(), r.Membership.Organization, p.ID)
	if err != nil || !ok {
		return page, err
	}
	page.Recalls = used.Used.Recalls
	page.Year = page.Recalls * page.Bytes * 365 / int64(r.Now().UTC().Day())
	page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfReads+":"+p.ID.String(), lastEvents)
	return page, err
}

func (d Deps) set(r *web.Request) (path string, err error) {
	days, err := strconv.Atoi(r.Field("days"))
	if err != nil {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is not a number of days",
			web.Cut(r.Field("days"), 20))
	}
	reads := project.Reads{Mode: project.ReadsMode(r.Field("mode")), Days: days}
	return r.ProjectPath("reads", "setting"), d.Commands.SetReads(r.Context(), r.Command(), reads)
}

// list is the records of a project.
type list struct {
	web.Part[reads.Read]

	// Mode is whether reads are recorded now.
	Mode project.ReadsMode `json:"mode"`
}

func (d Deps) list(r *web.Request) error {
	page := list{Mode: cmp.Or(r.Project.Project.Reads, project.ReadsOff)}
	return web.List[reads.Read]{
		Name: "reads-" + r.Project.Project.Slug, Columns: []string{
			"at", "requestId", "part", "way", "principal", "name", "identity", "identityId", "texts", "call", "bytes",
		},
		Cells: func(of reads.Read) []any {
			return []any{
				of.At, of.ID, of.Part, of.Way, of.Principal, of.Name, of.Identity, idOrNone(of.IdentityID), of.Texts,
				idOrNone(of.Call), of.Bytes,
			}
		},
		Read: func(after, before string, most int) (web.Part[reads.Read], error) {
			filter, err := filterOf(r)
			if err != nil {
				return web.Part[reads.Read]{}, err
			}
			return web.Forwards(after, before, func(cursor string) ([]reads.Read, string, error) {
				found, next, err := d.Reads.List(r.Context(), r.Project.Project, filter, cursor, most)
				if errors.Is(err, reads.ErrCursor) {
					err = web.WrongPlace()
				}
				return found, next, err
			})
		},
	}.Page(r, "list.html", &page, &page.Part, nil)
}

// idOrNone is an id as a cell, "" for none.
func idOrNone(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// filterOf reads the filter of a list. Times are in the zone of the reader. The fault is invalid-request.
func filterOf(r *web.Request) (f reads.Filter, err error) {
	query := r.URL.Query()
	for name, into := range map[string]*string{"by": &f.By, "as": &f.Identity, "data": &f.DataPoint} {
		if *into = query.Get(name); !utf8.ValidString(*into) || strings.Contains(*into, "\x00") {
			return f, fields.Invalid(name, "is no text")
		}
	}
	for name, end := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		at, err := instant.ReadIn(text, r.Zone())
		if err != nil {
			return f, fields.Invalid(name, "is no time: %v. Write a date or a time in your zone, %s, such as 2026-11-26 or "+
				"2026-11-26T14:00", err, r.Zone())
		}
		if *end = at.At; name == "to" {
			*end = at.End()
		}
	}
	return f, nil
}

// onePage is a record with the data points whose texts were shown.
type onePage struct {
	Request uuid.UUID    `json:"requestId"`
	Part    int          `json:"part"`
	Texts   []reads.Text `json:"texts"`
}

// one shows what a request was shown.
func (d Deps) one(r *web.Request) error {
	request, part, _, err := recordOf(r)
	if err != nil {
		return err
	}
	page := onePage{Request: request, Part: part}
	var found bool
	page.Texts, found, err = d.Reads.Texts(r.Context(), r.Project.Project, page.Request, page.Part)
	if err == nil && !found {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the project has no record of this request, or no longer")
	}
	if err != nil {
		return err
	}
	return r.Render("one.html", page)
}

// recordOf reads which part of which record a page shows, and from which text on.
func recordOf(r *web.Request) (request uuid.UUID, part, from int, err error) {
	if request, err = uuid.Parse(r.PathValue("request")); err != nil {
		return request, 0, 0, fault.New(fault.NotFound, fault.CodeNotFound, "the id of a request is a UUID")
	}
	for name, into := range map[string]*int{"part": &part, "from": &from} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *into, err = strconv.Atoi(text); err != nil || *into < 0 || *into > 1<<30 {
			return request, 0, 0, web.WrongPlace()
		}
	}
	return request, part, from, nil
}

const (
	// shownTexts is how many texts of a record a page shows, and shownBytes the most of each.
	shownTexts = 15
	shownBytes = 1000
)

// texts shows the texts that a request was shown, as the log has them. That is a visit.
func (d Deps) texts(r *web.Request) error {
	request, part, from, err := recordOf(r)
	if err != nil {
		return err
	}
	found, err := d.Shown.ReadOf(r.Context(), r.Project.Project,
		shown.Query{Request: request, Part: part, From: from, Count: shownTexts, Bytes: shownBytes})
	if err == nil {
		err = r.ReadOpened(request)
	}
	if err != nil {
		return err
	}
	return r.Render("texts.html", found)
}
