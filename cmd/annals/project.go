package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/tenancy"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/tenants"
)

// ProjectCmd is the group "annals project".
type ProjectCmd struct {
	List      tenancy.ProjectListCmd   `cmd:"" help:"List the projects, archived ones too."`
	Show      tenancy.ProjectShowCmd   `cmd:"" help:"Show a project."`
	Create    tenancy.ProjectCreateCmd `cmd:"" help:"Create a project."`
	Archive   ProjectArchiveCmd        `cmd:"" help:"Refuse every call of a project's keys."`
	Unarchive ProjectUnarchiveCmd      `cmd:"" help:"Take an archived project back into service."`
	Caps      ProjectCapsCmd           `cmd:"" help:"Set the monthly caps of a project."`
}

// ProjectArchiveCmd is "annals project archive".
type ProjectArchiveCmd struct {
	ServiceFlags
	OrgFlag
	Slug string `arg:"" help:"Slug of the project."`
}

// Run archives the project.
func (c *ProjectArchiveCmd) Run(ctx context.Context, env *Env) error {
	return archive(ctx, env, c.ServiceFlags, c.OrgFlag, c.Slug, true)
}

// ProjectUnarchiveCmd is "annals project unarchive".
type ProjectUnarchiveCmd struct {
	ServiceFlags
	OrgFlag
	Slug string `arg:"" help:"Slug of the project."`
}

// Run restores the project.
func (c *ProjectUnarchiveCmd) Run(ctx context.Context, env *Env) error {
	return archive(ctx, env, c.ServiceFlags, c.OrgFlag, c.Slug, false)
}

func archive(ctx context.Context, env *Env, o ServiceFlags, w OrgFlag, slug string, archived bool) error {
	target, err := w.target()
	if err != nil {
		return err
	}
	in := operatorapi.ArchiveRequest{Target: target, Slug: slug, Archived: archived}
	describe := func(b *strings.Builder, changed tenants.Project) {
		state := "in service"
		if changed.IsArchived {
			state = "archived"
		}
		fmt.Fprintf(b, "project %s is %s\n", changed.Slug, state)
	}
	return runChange(ctx, env, o, operatorapi.SetArchived, in, describe)
}

// ProjectCapsCmd is "annals project caps".
type ProjectCapsCmd struct {
	ServiceFlags
	OrgFlag
	Slug         string `arg:"" help:"Slug of the project."`
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
		Target: target, Slug: c.Slug, Caps: commands.Caps{SetIngestion: c.IngestionCap != "", SetCredit: c.CreditCap != ""},
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
