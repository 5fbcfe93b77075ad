package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/annals-project/annals/internal/operator"
)

// ProjectCmd is the group "annals project".
type ProjectCmd struct {
	Archive   ProjectArchiveCmd   `cmd:"" help:"Refuse every call of a project's keys."`
	Unarchive ProjectUnarchiveCmd `cmd:"" help:"Take an archived project back into service."`
	Caps      ProjectCapsCmd      `cmd:"" help:"Set the monthly caps of a project."`
}

// ProjectArchiveCmd is "annals project archive".
type ProjectArchiveCmd struct {
	Operated
	Whose
	Slug string `arg:"" help:"Slug of the project."`
}

// Run archives the project.
func (c *ProjectArchiveCmd) Run(ctx context.Context, env *Env) error {
	return archive(ctx, env, c.Operated, c.Whose, c.Slug, true)
}

// ProjectUnarchiveCmd is "annals project unarchive".
type ProjectUnarchiveCmd struct {
	Operated
	Whose
	Slug string `arg:"" help:"Slug of the project."`
}

// Run takes the project back.
func (c *ProjectUnarchiveCmd) Run(ctx context.Context, env *Env) error {
	return archive(ctx, env, c.Operated, c.Whose, c.Slug, false)
}

func archive(ctx context.Context, env *Env, o Operated, w Whose, slug string, archived bool) error {
	return change(ctx, env, o, w, func(to operator.Organizations, whom operator.Whom) (operator.Project, error) {
		return to.SetArchived(ctx, operator.ArchiveRequest{Whom: whom, Slug: slug, Archived: archived})
	}, func(b *strings.Builder, changed operator.Project) {
		state := "in service"
		if changed.IsArchived {
			state = "archived"
		}
		fmt.Fprintf(b, "project %s is %s\n", changed.Slug, state)
	})
}

// ProjectCapsCmd is "annals project caps".
type ProjectCapsCmd struct {
	Operated
	Whose
	Slug         string `arg:"" help:"Slug of the project."`
	IngestionCap string `name:"ingestion-cap" placeholder:"N|none" help:"Data points that may be ingested in a UTC calendar month, or none."`
	CreditCap    string `name:"credit-cap" placeholder:"N|none" help:"Credits that ingestion may cost in a UTC calendar month, or none."`
}

// Run sets the caps that are named, and says what they are.
func (c *ProjectCapsCmd) Run(ctx context.Context, env *Env) error {
	var err error
	in := operator.CapsRequest{Slug: c.Slug, SetIngestion: c.IngestionCap != "", SetCredit: c.CreditCap != ""}
	if in.SetIngestion {
		in.Ingestion, err = readCap(c.IngestionCap)
	}
	if in.SetCredit {
		var bad error
		in.CreditTenths, bad = readCreditCap(c.CreditCap)
		err = errors.Join(err, bad)
	}
	if err != nil {
		return err
	}
	return change(ctx, env, c.Operated, c.Whose, func(to operator.Organizations, whom operator.Whom) (operator.Project, error) {
		in.Whom = whom
		return to.SetCaps(ctx, in)
	}, func(b *strings.Builder, changed operator.Project) {
		ingestion, credit := none, none
		if changed.IngestionCap != nil {
			ingestion = fmt.Sprint(*changed.IngestionCap)
		}
		if changed.CreditCap != nil {
			credit = changed.CreditCap.String()
		}
		fmt.Fprintf(b, "project %s: ingestion cap %s, credit cap %s\n", changed.Slug, ingestion, credit)
	})
}
