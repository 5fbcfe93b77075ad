package main

import (
	"context"
	"errors"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/transfer"
	"github.com/annals-project/annals/projections/export"
)

// ExportCmd is "annals export".
type ExportCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	OrgFlag
	Project  string `name:"project" required:"" placeholder:"SLUG" help:"Project to export."`
	Identity string `name:"identity" placeholder:"NAME" help:"Write the copy of a person instead: all that this identity wrote, its traits and audiences, and what was derived from its texts."`
	Out      string `name:"out" default:"-" placeholder:"FILE" help:"File to write; a second run continues one that stopped. - is standard output."`
	Memories bool   `name:"memories" help:"Write also what was derived, after the line of each data point."`
	JSON     bool   `name:"json" help:"Print the summary as one JSON value; needs --out FILE."`
}

// Validate is called by the parser.
func (c *ExportCmd) Validate() error {
	if c.JSON && c.Out == "-" {
		return errors.New("--json needs --out FILE: standard output has the lines")
	}
	if c.Identity != "" && c.Memories {
		return errors.New("--memories does not go with --identity: the copy of a person has them")
	}
	return nil
}

// Run exports the project, or what it has of an identity.
func (c *ExportCmd) Run(ctx context.Context, env *Env) error {
	if c.Identity != "" {
		return c.person(ctx, env)
	}
	out := transfer.Export{
		From:     operatorapi.Dial(c.DataDir),
		Request:  export.Request{Organization: c.Org, Project: c.Project, Memories: c.Memories},
		Terminal: env.terminal(),
	}
	if c.Out == "-" {
		return out.Lines(ctx, env.Stdout)
	}
	sum, err := out.File(ctx, c.Out)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, sum)
	}
	return sum.Print(env.Stdout)
}

// person writes the copy of a person.
func (c *ExportCmd) person(ctx context.Context, env *Env) error {
	out := transfer.PersonExport{
		From:    operatorapi.Dial(c.DataDir),
		Request: export.PersonRequest{Organization: c.Org, Project: c.Project, Identity: c.Identity},
	}
	if c.Out == "-" {
		_, err := out.Lines(ctx, env.Stdout)
		return err
	}
	sum, err := out.File(ctx, c.Out)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, sum)
	}
	return sum.Print(env.Stdout)
}
