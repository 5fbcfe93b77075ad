package projects

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
)

const (
	// lastSends is how many sends the overview shows, of those within sendsWindow.
	lastSends   = 8
	sendsWindow = 7 * 24 * time.Hour
)

// sendEndpoints are the calls that make a send.
var sendEndpoints = []string{"POST /api/v1/ingest", "POST /api/v1/ingest/batch", "MCP /mcp#remember"}

// overview is the state of a project.
type overview struct {
	listed

	// Open are the sends that are not searchable yet, Failed those that stopped; the project is blocked if nothing is left
	// but these.
	Open      int64  `json:"open"`
	Failed    int64  `json:"failed"`
	IsBlocked bool   `json:"isBlocked"`
	Lag       uint64 `json:"lag"`
	// Lagging are the projections that lag or cannot work.
	Lagging   []condition.Projection `json:"lagging"`
	Sends     []send                 `json:"sends"`
	APIURL    string                 `json:"-"`
	MayManage bool                   `json:"-"`
	MayWrite  bool                   `json:"-"`
}

// send is a call that made a send.
type send struct {
	RequestID   uuid.UUID  `json:"requestId"`
	IngestionID *uuid.UUID `json:"ingestionId"`
	ReceivedAt  time.Time  `json:"receivedAt"`
	Key         string     `json:"key"`
	Outcome     string     `json:"outcome"`
	Phase       *string    `json:"phase"`
	Code        string     `json:"code,omitempty"`
}

func (d Deps) overview(r *web.Request) error { return d.showOverview(r, nil) }

func (d Deps) showOverview(r *web.Request, problem error) error {
	p, err := d.project(r)
	if err != nil {
		return err
	}
	ready, err := d.Sends.Readiness(r.Context(), r.Project.Project)
	if err != nil {
		return err
	}
	logged, err := d.Calls.List(r.Context(), r.Project.Project, requestlog.Query{
		From: r.Now().Add(-sendsWindow), To: r.Now().Add(time.Second), Endpoints: sendEndpoints, First: lastSends,
	})
	if err != nil {
		return err
	}
	page := overview{
		listed: listedOf(p), Open: ready.Raw + ready.Comprehension, Failed: ready.Failed, IsBlocked: ready.Blocked(),
		Lagging: []condition.Projection{}, Sends: []send{}, APIURL: d.APIURL, MayManage: r.May(web.Manage),
		MayWrite: r.May(web.Write),
	}
	for _, is := range d.Projections() {
		if is.Lag > 0 || is.Problem != "" {
			page.Lagging, page.Lag = append(page.Lagging, is), max(page.Lag, is.Lag)
		}
	}
	for _, c := range logged.Calls {
		page.Sends = append(page.Sends, send{
			c.RequestID, c.IngestionID, c.ReceivedAt, c.Entry.Key.Name, c.Outcome, c.Phase, c.ErrorCode,
		})
	}
	if problem != nil {
		return r.Invalid(problem, "overview.html", page)
	}
	return r.Render("overview.html", page)
}

// project returns the project of the path with what it holds and used this month.
func (d Deps) project(r *web.Request) (account.Project, error) {
	p, ok, err := d.Accounts.Project(r.Context(), r.Membership.Organization, r.Project.Project.ID)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", r.Project.Project.Slug)
	}
	return p, err
}

func (d Deps) describe(r *web.Request) error {
	err := d.Commands.DescribeProject(
		r.Context(), r.Command(), r.Project.Project.Slug, r.Field("name"), r.Field("description"),
	)
	if err != nil {
		return d.showOverview(r, err)
	}
	return r.Done(r.ProjectPath(), "saved")
}

func (d Deps) archive(r *web.Request) error {
	archived := r.Field("archived")
	if archived != "true" && archived != "false" {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "archived is true or false")
	}
	_, err := d.Commands.SetArchived(
		r.Context(), r.Command(), r.Membership.Organization.String(), r.Project.Project.Slug, archived == "true",
	)
	if err != nil {
		return err
	}
	return r.Done(r.ProjectPath(), "saved")
}
