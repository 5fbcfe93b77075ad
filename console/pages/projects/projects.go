// Package projects is the pages of projects: the list, the overview, keys and caps.
package projects

import (
	"cmp"
	"embed"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	// APIURL is the public address of the API, for commands to copy.
	APIURL string
	// Snippets configure clients of MCP with a key.
	Snippets func(key string) ([]docs.Snippet, error)
	Accounts account.Queries
	Access   access.Queries
	Log      *requestlog.Log
	Sends    datapoints.Queries
	Calls    why.Calls
	History  history.Reader
	// Projections is how far each projection is.
	Projections func() []condition.Projection
	Commands    *commands.Service
}

// Area returns the pages.
func Area(d Deps) web.Area {
	overview, caps := web.NewPage("overview.html", d.overview), web.NewPage("caps.html", d.caps)
	keys, one := web.NewPage("keys.html", d.keys), web.NewPage("key.html", d.key)
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /{$}", Needs: web.Member, Auditors: web.Audited, Serve: d.list},
		{Pattern: "POST /{$}", Needs: web.Admin, Serve: d.create},
		{Pattern: "GET /p/{project}", Needs: web.Read, Auditors: web.Audited, Serve: overview.Show},
		{Pattern: "POST /p/{project}", Needs: web.Manage, Serve: overview.After("saved", d.describe)},
		{Pattern: "POST /p/{project}/archived", Needs: web.Manage, Serve: overview.After("saved", d.archive)},
		{Pattern: "GET /p/{project}/caps", Needs: web.Manage, Auditors: web.Audited, Serve: caps.Show},
		{Pattern: "POST /p/{project}/caps", Needs: web.Manage, Serve: caps.After("saved", d.setCaps)},
		{Pattern: "GET /p/{project}/keys", Needs: web.Manage, Auditors: web.Audited, Serve: keys.Show},
		{Pattern: "POST /p/{project}/keys", Needs: web.Manage, Serve: d.createKey},
		{Pattern: "GET /p/{project}/keys/{key}", Needs: web.Manage, Auditors: web.Audited, Serve: one.Show},
		{Pattern: "POST /p/{project}/keys/{key}/reveal", Needs: web.Manage, Serve: d.reveal},
		{Pattern: "POST /p/{project}/keys/{key}/revoke", Needs: web.Manage, Serve: one.After("revoked", d.revoke)},
	}}
}

// project is a project with what it used.
type project struct {
	tenants.ProjectUse

	MonthRecalls int64 `json:"monthRecalls"`
}

// list is the projects that the person may read and that have a text in slug or name.
type list struct {
	web.Part[project]

	Organization string `json:"organization"`
	// HasAny reports whether the person may read any project.
	HasAny    bool `json:"-"`
	MayCreate bool `json:"-"`
}

func (d Deps) list(r *web.Request) error { return d.showList(r, nil) }

// showList shows the list, with what is wrong with its form, nil for nothing.
func (d Deps) showList(r *web.Request, wrong error) error {
	all, err := d.Accounts.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p account.Project) bool { return !r.Sees(p.ID) })
	page := list{Organization: r.Membership.Name, HasAny: len(all) > 0, MayCreate: r.May(web.Admin)}
	wanted, found := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q"))), []project{}
	for _, p := range all {
		if strings.Contains(strings.ToLower(p.Slug+"\n"+p.Name), wanted) {
			found = append(found, project{p.View(), p.Used.Recalls})
		}
	}
	return web.List[project]{
		Name: "projects", Columns: []string{
			"slug", "name", "description", "isArchived", "memoryCount", "ingestionCap", "monthIngestions", "monthRecalls",
			"creditCap", "monthCredits", "createdAt",
		},
		Cells: func(p project) []any {
			return []any{
				p.Slug, p.Name, p.Description, p.IsArchived, p.MemoryCount, p.IngestionCap, p.MonthIngestions, p.MonthRecalls,
				p.CreditCap, p.MonthCredits, p.CreatedAt,
			}
		},
		Read: func(after, before string, most int) (web.Part[project], error) {
			return web.SliceOf(found, after, before, most), nil
		},
	}.Page(r, "list.html", &page, &page.Part, func() error { return wrong })
}

func (d Deps) create(r *web.Request) error {
	made, err := d.Commands.CreateProject(r.Context(), r.Command(), r.Field("name"))
	if err != nil {
		return d.showList(r, err)
	}
	return r.Done(web.Path("p", made.Slug), "created")
}

// overview is the state of a project.
type overview struct {
	project

	// Open are the sends that are not searchable yet, Failed those that stopped; the project is blocked if nothing is left
	// but these.
	Open      int64  `json:"open"`
	Failed    int64  `json:"failed"`
	IsBlocked bool   `json:"isBlocked"`
	Lag       uint64 `json:"lag"`
	// Lagging are the projections that lag or cannot work.
	Lagging []condition.Projection `json:"lagging"`
	Sends   []why.Call             `json:"sends"`
	// Events are the last changes, for those who manage the project.
	Events    []history.Event `json:"events,omitempty"`
	APIURL    string          `json:"-"`
	MayManage bool            `json:"-"`
}

const (
	// lastSends is how many sends the overview shows, of those within sendsWindow.
	lastSends   = 8
	sendsWindow = 7 * 24 * time.Hour
	// lastEvents is how many events a page shows of a project or a key.
	lastEvents = 10
)

// sendEndpoints are the calls that make a send.
var sendEndpoints = []string{"POST /api/v1/ingest", "POST /api/v1/ingest/batch", "MCP /mcp#remember"}

func (d Deps) overview(r *web.Request) (page overview, err error) {
	p, err := d.find(r)
	if err != nil {
		return page, err
	}
	ready, err := d.Sends.Readiness(r.Context(), r.Project.Project)
	if err != nil {
		return page, err
	}
	logged, err := d.Calls.List(r.Context(), r.Project.Project, requestlog.Query{
		From: r.Now().Add(-sendsWindow), To: r.Now().Add(time.Second), Endpoints: sendEndpoints, First: lastSends,
	})
	page = overview{
		project: project{p.View(), p.Used.Recalls}, Open: ready.Raw + ready.Comprehension, Failed: ready.Failed,
		IsBlocked: ready.Blocked(), Lagging: []condition.Projection{}, Sends: logged.Calls, APIURL: d.APIURL,
		MayManage: r.May(web.Manage),
	}
	for _, is := range d.Projections() {
		if is.Lag > 0 || is.Problem != "" {
			page.Lagging, page.Lag = append(page.Lagging, is), max(page.Lag, is.Lag)
		}
	}
	if err == nil && page.MayManage {
		page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), "", lastEvents)
	}
	return page, err
}

// find returns the project of the path with what it holds and used this month.
func (d Deps) find(r *web.Request) (account.Project, error) {
	p, ok, err := d.Accounts.Project(r.Context(), r.Membership.Organization, r.Project.Project.ID)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", r.Project.Project.Slug)
	}
	return p, err
}

func (d Deps) describe(r *web.Request) (path string, err error) {
	return r.ProjectPath(), d.Commands.DescribeProject(
		r.Context(), r.Command(), r.Project.Project.Slug, r.Field("name"), r.Field("description"),
	)
}

func (d Deps) archive(r *web.Request) (path string, err error) {
	archived := r.Field("archived")
	if archived != "true" && archived != "false" {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "archived is true or false")
	}
	if archived == "true" {
		if err := r.AskFirst("archive"); err != nil {
			return "", err
		}
	}
	_, err = d.Commands.SetArchived(
		r.Context(), r.Command(), r.Membership.Organization.String(), r.Project.Project.Slug, archived == "true",
	)
	return r.ProjectPath(), err
}

// capsPage is the caps of a project, with what counts for them this month, metered or not.
type capsPage struct {
	tenants.ProjectUse

	Events                  []history.Event `json:"events"`
	IngestionBar, CreditBar template.HTML   `json:"-"`
}

func (d Deps) caps(r *web.Request) (page capsPage, err error) {
	p, err := d.find(r)
	if err != nil {
		return page, err
	}
	page.ProjectUse = p.View()
	page.MonthCredits = tenants.Cap(&p.Used.CreditTenths)
	if p.IngestionCap != nil {
		page.IngestionBar = svg.Progress("of the ingestion cap", p.Used.Ingestions, *p.IngestionCap)
	}
	if p.CreditCapTenths != nil {
		page.CreditBar = svg.Progress("of the credit cap", p.Used.CreditTenths, *p.CreditCapTenths)
	}
	page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfCaps+":"+p.ID.String(), lastEvents)
	return page, err
}

func (d Deps) setCaps(r *web.Request) (path string, err error) {
	ingestion, err := amounts.Cap(cmp.Or(r.Field("ingestionCap"), amounts.None))
	if err != nil {
		return "", wrong("data points", r.Field("ingestionCap"), "a whole number such as 10000")
	}
	credits, err := amounts.CreditCap(cmp.Or(r.Field("creditCap"), amounts.None))
	if err != nil {
		return "", wrong("credits", r.Field("creditCap"), "a number with at most one decimal digit, such as 0.5")
	}
	_, err = d.Commands.SetCaps(r.Context(), r.Command(), r.Membership.Organization.String(), r.Project.Project.Slug,
		tenancy.Caps{SetIngestion: true, Ingestion: ingestion, SetCredit: true, CreditTenths: credits})
	return r.ProjectPath("caps"), err
}

func wrong(what, is, want string) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the cap of %s is %q: want %s, or nothing for no cap",
		what, web.Cut(strings.ToValidUTF8(is, "?"), 40), want)
}

// key is a key of the project. LastUsedAt is nil if the request log has no call of it.
type key struct {
	tenants.Key

	LastUsedAt *time.Time `json:"lastUsedAt"`
}

// Days is how long the request log has calls.
func (key) Days() int { return int(requestlog.Retention / (24 * time.Hour)) }

// keysPage is the keys of a project, the newest first.
type keysPage struct {
	Live    []key `json:"keys"`
	Revoked []key `json:"revoked"`
	// New is the key that was just created, in clear, and Replaced the one whose place it takes.
	New      *key `json:"-"`
	Replaced *key `json:"-"`
	// Snippets configure clients of MCP with the new key.
	Snippets []docs.Snippet `json:"-"`
}

// allKeys returns the keys of the project, the newest first.
func (d Deps) allKeys(r *web.Request) ([]key, error) {
	found, err := d.Access.Keys(r.Context(), r.Project.Project.ID)
	if err != nil {
		return nil, err
	}
	uses, err := d.Log.LastUses(r.Context(), r.Project.Project.ID)
	list := make([]key, len(found))
	for i, k := range found {
		list[i].Key = k
		if at, used := uses[requestlog.Key{Name: k.Name, Prefix: k.Prefix}]; used {
			list[i].LastUsedAt = &at
		}
	}
	slices.Reverse(list)
	return list, err
}

// created is a key that was just created, as the list shows it once. It replaces the one with the id Replaces.
type created struct{ ID, Key, Replaces string }

func (d Deps) keys(r *web.Request) (keysPage, error) {
	page := keysPage{Live: []key{}, Revoked: []key{}}
	made, err := web.Once[created](r)
	if err != nil {
		return page, err
	}
	list, err := d.allKeys(r)
	for _, k := range list {
		if k.RevokedAt == nil {
			page.Live = append(page.Live, k)
		} else {
			page.Revoked = append(page.Revoked, k)
		}
	}
	if err != nil || made.Key == "" {
		return page, err
	}
	for i := range page.Live {
		switch k := &page.Live[i]; k.ID {
		case made.ID:
			page.New, k.Key.Key = k, made.Key
		case made.Replaces:
			page.Replaced = k
		}
	}
	page.Snippets, err = d.Snippets(made.Key)
	return page, err
}

// createKey leads to the list, which shows the value of the new key once.
func (d Deps) createKey(r *web.Request) error {
	name := r.Field("name")
	if fields.CheckName(name, 1, limit.KeyName) != nil {
		wrong := fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "a key needs a name of 1 to %d characters", limit.KeyName)
		return web.NewPage("keys.html", d.keys).Again(r, wrong)
	}
	made, err := d.Commands.CreateKey(r.Context(), r.Command(), r.Project.Project.Slug, name)
	if err != nil {
		return web.NewPage("keys.html", d.keys).Again(r, err)
	}
	return web.ShowOnce(r, r.ProjectPath("keys"), created{made.ID, made.Key, r.Field("replaces")})
}

// keyPage is one key, with its value in clear where it is revealed.
type keyPage struct {
	key

	Events []history.Event `json:"events"`
}

func (d Deps) key(r *web.Request) (page keyPage, err error) {
	list, err := d.allKeys(r)
	if err != nil {
		return page, err
	}
	i := slices.IndexFunc(list, func(k key) bool { return k.ID == r.PathValue("key") })
	id, wrong := uuid.Parse(r.PathValue("key"))
	if i < 0 || wrong != nil {
		return page, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such key")
	}
	page.key = list[i]
	if page.Key.Key, err = web.Once[string](r); err != nil {
		return page, err
	}
	page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfKey+":"+id.String(), lastEvents)
	return page, err
}

// reveal leads to the page of a key, which shows its value once. The command appends an event that names the person.
func (d Deps) reveal(r *web.Request) error {
	value, err := d.Commands.RevealKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	if err != nil {
		return web.NewPage("key.html", d.key).Again(r, err)
	}
	return web.ShowOnce(r, r.ProjectPath("keys", r.PathValue("key")), value)
}

func (d Deps) revoke(r *web.Request) (path string, err error) {
	if r.Field("sure") != "yes" {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"nothing was revoked: tick that calls with the key are to be refused")
	}
	err = d.Commands.RevokeKey(r.Context(), r.Command(), r.Project.Project.Slug, r.PathValue("key"))
	return r.ProjectPath("keys", r.PathValue("key")), err
}
