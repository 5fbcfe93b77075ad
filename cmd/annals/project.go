package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/tenants"
)

// ProjectCmd is the group "annals project".
type ProjectCmd struct {
	List      ProjectListCmd      `cmd:"" help:"List the projects, archived ones too."`
	Show      ProjectShowCmd      `cmd:"" help:"Show a project."`
	Create    ProjectCreateCmd    `cmd:"" help:"Create a project."`
	Archive   ProjectArchiveCmd   `cmd:"" help:"Refuse every call of a project's keys."`
	Unarchive ProjectUnarchiveCmd `cmd:"" help:"Take an archived project back into service."`
	Caps      ProjectCapsCmd      `cmd:"" help:"Set the monthly caps of a project."`
}

// ProjectListCmd is "annals project list".
type ProjectListCmd struct{ TenancyFlags }

// Run lists the projects.
func (c *ProjectListCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.ListProjects, operatorapi.TenancyRequest{},
		func(w io.Writer, list []tenants.ListedProject) {
			tableRow(w, "SLUG", "NAME", "ORGANIZATION", "STATE", "CREATED")
			for _, p := range list {
				tableRow(w, p.Slug, p.Name, p.Organization, projectService(p), day(p.CreatedAt))
			}
		})
}

func projectService(p tenants.ListedProject) string {
	if p.IsArchived {
		return "archived"
	}
	return "in service"
}

// ProjectCreateCmd is "annals project create".
type ProjectCreateCmd struct {
	TenancyFlags
	Name string `arg:"" help:"Name, of which the slug is made."`
}

// Run creates the project.
func (c *ProjectCreateCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.CreateProject, operatorapi.TenancyRequest{Name: c.Name},
		func(w io.Writer, p tenants.ListedProject) {
			tableRow(w, fmt.Sprintf("project %s of organization %q is created; annals key create %[1]s --name NAME makes a key",
				p.Slug, p.Organization))
		})
}

// ProjectShowCmd is "annals project show".
type ProjectShowCmd struct {
	TenancyFlags
	Slug string `arg:"" help:"Slug of the project."`
}

// Run shows the project.
func (c *ProjectShowCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.ShowProject, operatorapi.TenancyRequest{Project: c.Slug},
		func(w io.Writer, p tenants.ListedProject) {
			tableRow(w, "slug:", p.Slug)
			tableRow(w, "name:", p.Name)
			tableRow(w, "id:", p.ID)
			tableRow(w, "organization:", p.Organization)
			tableRow(w, "state:", projectService(p))
			tableRow(w, "ingestion cap:", limitOf(p.IngestionCap))
			tableRow(w, "credit cap:", limitOf(p.CreditCap))
			tableRow(w, "created:", p.CreatedAt.UTC().Format(time.RFC3339))
		})
}

// projectFlags name a project of an organization.
type projectFlags struct {
	ServiceFlags
	OrgFlag
	Slug string `arg:"" help:"Slug of the project."`
}

// ProjectArchiveCmd is "annals project archive".
type ProjectArchiveCmd struct{ projectFlags }

// Run archives the project.
func (c *ProjectArchiveCmd) Run(ctx context.Context, env *Env) error {
	return c.archive(ctx, env, true)
}

// ProjectUnarchiveCmd is "annals project unarchive".
type ProjectUnarchiveCmd struct{ projectFlags }

// Run restores the project.
func (c *ProjectUnarchiveCmd) Run(ctx context.Context, env *Env) error {
	return c.archive(ctx, env, false)
}

func (f projectFlags) archive(ctx context.Context, env *Env, archived bool) error {
	target, err := f.target()
	if err != nil {
		return err
	}
	in := operatorapi.ArchiveRequest{Target: target, Slug: f.Slug, Archived: archived}
	describe := func(b *strings.Builder, changed tenants.Project) {
		state := "in service"
		if changed.IsArchived {
			state = "archived"
		}
		fmt.Fprintf(b, "project %s is %s\n", changed.Slug, state)
	}
	return runChange(ctx, env, f.ServiceFlags, operatorapi.SetArchived, in, describe)
}

// ProjectCapsCmd is "annals project caps".
type ProjectCapsCmd struct {
	projectFlags
	IngestionCap string `name:"ingestion-cap" placeholder:"N|none" help:"Data points that may be ingested in a UTC calendar month, or none."`
	CreditCap    string `name:"credit-cap" placeholder:"N|none" help:"Credits that ingestion may cost in a UTC calendar month, or none."`
}

// Run sets the caps of the flags and prints both caps.
func (c *ProjectCapsCmd) Run(ctx context.Context, env *Env) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.CapsRequest{
		Target: target, Slug: c.Slug, Caps: tenancy.Caps{SetIngestion: c.IngestionCap != "", SetCredit: c.CreditCap != ""},
	}
	if in.SetIngestion {
		in.Ingestion, err = amounts.Cap(c.IngestionCap)
	}
	if in.SetCredit {
		var bad error
		in.CreditTenths, bad = amounts.CreditCap(c.CreditCap)
		err = errors.Join(err, bad)
	}
	if err != nil {
		return err
	}
	describe := func(b *strings.Builder, changed tenants.Project) {
		ingestion, credit := amounts.None, amounts.None
		if changed.IngestionCap != nil {
			ingestion = fmt.Sprint(*changed.IngestionCap)
		}
		if changed.CreditCap != nil {
			credit = changed.CreditCap.String()
		}
		fmt.Fprintf(b, "project %s: ingestion cap %s, credit cap %s\n", changed.Slug, ingestion, credit)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.SetCaps, in, describe)
}

// KeyCmd is the group "annals key".
type KeyCmd struct {
	List   KeyListCmd   `cmd:"" help:"List the keys of a project, revoked ones too, without their values."`
	Create KeyCreateCmd `cmd:"" help:"Create a key of a project and print it."`
	Reveal KeyRevealCmd `cmd:"" help:"Print a key again. The event log then names who saw it."`
	Revoke KeyRevokeCmd `cmd:"" help:"Refuse a key from its next call on."`
}

// KeyListCmd is "annals key list".
type KeyListCmd struct {
	TenancyFlags
	Project string `arg:"" name:"project" help:"Slug of the project."`
}

// Run lists the keys.
func (c *KeyListCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.ListKeys, operatorapi.TenancyRequest{Project: c.Project},
		func(w io.Writer, list []tenants.Key) {
			tableRow(w, "ID", "NAME", "KEY", "CREATED", "STATE")
			for _, k := range list {
				state := "live"
				if k.RevokedAt != nil {
					state = "revoked " + day(*k.RevokedAt)
				}
				tableRow(w, k.ID, k.Name, k.Prefix+"…"+k.Suffix, day(k.CreatedAt), state)
			}
		})
}

// KeyCreateCmd is "annals key create".
type KeyCreateCmd struct {
	TenancyFlags
	Project string `arg:"" name:"project" help:"Slug of the project."`
	Name    string `name:"name" required:"" help:"Name of what uses the key, 1 to 64 characters."`
}

// Run creates the key.
func (c *KeyCreateCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.TenancyRequest{Project: c.Project, Name: c.Name}
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.CreateKey, in,
		func(w io.Writer, k tenants.Key) {
			tableRow(w, fmt.Sprintf("key %q (%s) of project %s is created: %s", k.Name, k.ID, k.Project, k.Key))
			warnOfKey(w, k)
		})
}

// keyFlags name one key.
type keyFlags struct {
	TenancyFlags
	Project string `arg:"" name:"project" help:"Slug of the project."`
	ID      string `arg:"" name:"key-id" help:"Id of the key, as annals key list shows it."`
}

func (f keyFlags) request() operatorapi.TenancyRequest {
	return operatorapi.TenancyRequest{Project: f.Project, Key: f.ID}
}

// KeyRevealCmd is "annals key reveal".
type KeyRevealCmd struct{ keyFlags }

// Run prints the key alone.
func (c *KeyRevealCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.RevealKey, c.request(),
		func(w io.Writer, k tenants.Key) { tableRow(w, k.Key) })
}

// KeyRevokeCmd is "annals key revoke".
type KeyRevokeCmd struct{ keyFlags }

// Run revokes the key.
func (c *KeyRevokeCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.RevokeKey, c.request(), func(w io.Writer, k tenants.Key) {
		tableRow(w, fmt.Sprintf("key %q (%s) of project %s is revoked", k.Name, k.ID, k.Project))
		warnOfKey(w, k)
	})
}

func warnOfKey(to io.Writer, k tenants.Key) {
	if k.Warning != "" {
		tableRow(to, "warning: "+k.Warning)
	}
}
