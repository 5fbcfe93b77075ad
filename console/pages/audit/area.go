// Package audit is the pages of the audit log: how far it is signed, a check of it, and proofs of single things.
package audit

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/audit/state"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	States state.Reader
	// Verify checks the log until it is done or the time of the context is over, and returns what concerns an
	// organization.
	Verify func(ctx context.Context, organization uuid.UUID) (Verified, error)
	// Prove makes the proofs of a thing of a project. The fault is not-found, or service-unavailable if no checkpoint
	// covers it yet.
	Prove func(ctx context.Context, what Thing) ([]zipped.File, error)
	// Checks are the checks at work.
	Checks *allowance.Allowance
}

// Verified is what a check found.
type Verified struct {
	// Events are those that were checked, Uncovered those of the tree without a checkpoint.
	Events    int64 `json:"events"`
	Uncovered int64 `json:"uncovered"`
	// Finding is the first thing that is wrong, "" for none. Unfinished is true if the time was over before the end: then
	// it is not known what is wrong.
	Finding    string    `json:"finding,omitempty"`
	Unfinished bool      `json:"unfinished"`
	At         time.Time `json:"at"`
}

// Thing is something with proofs: Kind is ingestion, source, request or deletion.
type Thing struct {
	Organization      uuid.UUID
	Project, Kind, ID string
}

const (
	path = "/settings/audit"
	// checkTime bounds a check at the page, and requestTime the request that waits for it.
	checkTime   = 40 * time.Second
	requestTime = time.Minute
)

// Area returns the pages.
func Area(d Deps) web.Area {
	log := web.NewPage("log.html", d.log)
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET " + path, Needs: web.Admin, Auditors: web.Audited, Serve: log.Show},
		{
			Pattern: "POST " + path + "/verify", Needs: web.Admin, Auditors: web.Audited, Time: requestTime,
			Serve: d.verify(log),
		},
		{Pattern: "GET /p/{project}/proofs", Needs: web.Manage, Auditors: web.Audited, Serve: d.proofs},
	}}
}

// logPage is the tree of the organization, and that of the deployment for operators.
type logPage struct {
	Trees    []tree    `json:"trees"`
	Verified *Verified `json:"-"`
}

// tree is a tree with the policy that verifies it.
type tree struct {
	state.State

	Policy string `json:"policy,omitempty"`
}

func (d Deps) log(r *web.Request) (page logPage, err error) {
	list := []uuid.UUID{r.Membership.Organization}
	if r.May(web.Operator) {
		list = append(list, uuid.Nil)
	}
	for _, organization := range list {
		one, err := d.States.One(r.Context(), organization)
		if err != nil {
			return page, err
		}
		page.Trees = append(page.Trees, tree{one, one.Policy})
	}
	page.Verified, err = web.Once[*Verified](r)
	return page, err
}

// IsDeployment reports whether the tree is that of the deployment.
func (t tree) IsDeployment() bool { return t.Organization == uuid.Nil }

// verify checks the tree of the organization for a while, one check at a time.
func (d Deps) verify(log web.Page[logPage]) func(*web.Request) error {
	return func(r *web.Request) error {
		organization := r.Membership.Organization
		check := d.Checks.Open(allowance.Owner{Organization: organization, Project: organization})
		defer check.Release()
		if err := check.Reserve(r.Context(), 1); err != nil {
			return log.Again(r, fault.New(fault.Conflict, fault.CodeConflict,
				"another check runs: who began it gets the result; try again in a minute"))
		}
		ctx, cancel := context.WithTimeout(r.Context(), checkTime)
		defer cancel()
		found, err := d.Verify(ctx, organization)
		if err != nil {
			return err
		}
		found.At = r.Now()
		return web.ShowOnce(r, path, found)
	}
}

// kinds are what has proofs.
var kinds = []string{"ingestion", "source", "request", "deletion"}

// proofPage is the proofs of a thing.
type proofPage struct {
	Kind  string `json:"kind,omitempty"`
	ID    string `json:"id,omitempty"`
	Files []file `json:"files"`
	// Missing is why there is no proof.
	Missing string   `json:"missing,omitempty"`
	Kinds   []string `json:"-"`
}

type file struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// proofs shows the proofs of a thing of the project, or writes them as a file. That there is none is a page too, since
// links lead here.
func (d Deps) proofs(r *web.Request) error {
	query := r.URL.Query()
	page := proofPage{Kind: cmp.Or(query.Get("kind"), kinds[0]), ID: query.Get("id"), Files: []file{}, Kinds: kinds}
	if page.ID == "" {
		return r.Render("proofs.html", page)
	}
	files, err := d.Prove(r.Context(), Thing{
		Organization: r.Membership.Organization, Project: r.Project.Project.Slug, Kind: page.Kind, ID: page.ID,
	})
	if missing, ok := errors.AsType[*fault.Error](err); ok && missing.Kind != fault.Internal {
		page.Missing = missing.Msg
		return r.Render("proofs.html", page)
	}
	if err != nil {
		return err
	}
	if r.Format() == "zip" {
		if err := r.Reserve(2 * zipped.Size(files)); err != nil {
			return err
		}
		body, err := zipped.Pack(files)
		if err != nil {
			return err
		}
		return r.Attach("proofs.zip", "application/zip", body)
	}
	for _, f := range files {
		page.Files = append(page.Files, file{f.Name, len(f.Data)})
	}
	return r.Render("proofs.html", page)
}
