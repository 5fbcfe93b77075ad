// Package tenancy is the commands that show organizations, and those on projects and their keys. They call the server
// that runs on a data folder.
package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/tenants"
)

// Flags are those of every command.
type Flags struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Org     string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one, or all in a list."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// run performs an operation and prints its result: as JSON, or by words.
func run[Out any](
	ctx context.Context, f Flags, to io.Writer, do operatorapi.Operation[operatorapi.TenancyRequest, Out],
	in operatorapi.TenancyRequest, words func(io.Writer, Out),
) error {
	in.Organization = f.Org
	out, err := do.Call(ctx, operatorapi.Dial(f.DataDir), in)
	if err != nil {
		return err
	}
	if f.JSON {
		enc := json.NewEncoder(to)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(out)
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	words(table, out)
	return table.Flush()
}

// row writes a line of a table.
func row(to io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = fmt.Sprint(cell)
	}
	_, _ = fmt.Fprintln(to, strings.Join(texts, "\t")) // Flush returns the error
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// limitOf shows a cap, of which nil is none.
func limitOf[T any](cap *T) string {
	if cap == nil {
		return "none"
	}
	return fmt.Sprint(*cap)
}

// OrgListCmd is "annals org list".
type OrgListCmd struct{ Flags }

// Run lists the organizations.
func (c *OrgListCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.ListOrganizations, operatorapi.TenancyRequest{},
		func(w io.Writer, list []tenants.ListedOrganization) {
			row(w, "NAME", "PLAN", "PROJECTS", "CREATED", "ID")
			for _, o := range list {
				row(w, o.Name, o.Plan, o.Projects, day(*o.CreatedAt), o.ID)
			}
		})
}

// OrgShowCmd is "annals org show".
type OrgShowCmd struct{ Flags }

// Run shows an organization.
func (c *OrgShowCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.ShowOrganization, operatorapi.TenancyRequest{},
		func(w io.Writer, o tenants.ListedOrganization) {
			row(w, "name:", o.Name)
			row(w, "id:", o.ID)
			row(w, "plan:", o.Plan)
			row(w, "owner:", o.OwnerEmail)
			row(w, "spend cap:", limitOf(o.SpendCap))
			row(w, "projects:", o.Projects)
			row(w, "created:", o.CreatedAt.UTC().Format(time.RFC3339))
			if !o.IsPrepared {
				row(w, "state:", "being prepared: its calls are refused")
			}
		})
}

// ProjectListCmd is "annals project list".
type ProjectListCmd struct{ Flags }

// Run lists the projects.
func (c *ProjectListCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.ListProjects, operatorapi.TenancyRequest{},
		func(w io.Writer, list []tenants.ListedProject) {
			row(w, "SLUG", "NAME", "ORGANIZATION", "STATE", "CREATED")
			for _, p := range list {
				row(w, p.Slug, p.Name, p.Organization, stateOf(p), day(p.CreatedAt))
			}
		})
}

func stateOf(p tenants.ListedProject) string {
	if p.IsArchived {
		return "archived"
	}
	return "in service"
}

// ProjectCreateCmd is "annals project create".
type ProjectCreateCmd struct {
	Flags
	Name string `arg:"" help:"Name, of which the slug is made."`
}

// Run creates the project.
func (c *ProjectCreateCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.CreateProject, operatorapi.TenancyRequest{Name: c.Name},
		func(w io.Writer, p tenants.ListedProject) {
			row(w, fmt.Sprintf("project %s of organization %q is created; annals key create %[1]s --name NAME makes a key",
				p.Slug, p.Organization))
		})
}

// ProjectShowCmd is "annals project show".
type ProjectShowCmd struct {
	Flags
	Slug string `arg:"" help:"Slug of the project."`
}

// Run shows the project.
func (c *ProjectShowCmd) Run(ctx context.Context, to io.Writer) error {
	return run(ctx, c.Flags, to, operatorapi.ShowProject, operatorapi.TenancyRequest{Project: c.Slug},
		func(w io.Writer, p tenants.ListedProject) {
			row(w, "slug:", p.Slug)
			row(w, "name:", p.Name)
			row(w, "id:", p.ID)
			row(w, "organization:", p.Organization)
			row(w, "state:", stateOf(p))
			row(w, "ingestion cap:", limitOf(p.IngestionCap))
			row(w, "credit cap:", limitOf(p.CreditCap))
			row(w, "created:", p.CreatedAt.UTC().Format(time.RFC3339))
		})
}
