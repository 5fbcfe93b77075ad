package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/transfer"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/projections/export"
)

// ImportCmd is "annals import".
type ImportCmd struct {
	Remote
	Paths    []string `arg:"" optional:"" name:"path" help:"Files, and folders with all that is in them: shows what they cost, asks, and sends what they become."`
	Points   string   `name:"points" placeholder:"FILE" help:"Instead of paths: JSON Lines file with a data point on each line; - is standard input."`
	Kind     string   `name:"kind" placeholder:"KIND" help:"What all files are; default: detected (see annals estimate)."`
	TimeZone string   `name:"time-zone" placeholder:"ZONE" help:"IANA zone of times that are written without one, such as Europe/Rome; default UTC."`
	Since    string   `name:"since" placeholder:"TIME" help:"Only what has a time from this day or time on, such as 2025-05-01."`
	Only     []string `name:"only" placeholder:"KIND" help:"Only files of these kinds, as they are detected."`
	DryRun   bool     `name:"dry-run" help:"Show what would be sent and cost, and send nothing."`
	Yes      bool     `name:"yes" help:"Send the files without asking."`
	State    string   `name:"state" placeholder:"FILE" help:"File with the progress of the import; default PATH.progress of the first path, or FILE.progress (none for standard input)."`
	Parallel int      `name:"parallel" default:"4" help:"Batches in flight at once, 1 to 32."`
	Wait     bool     `name:"wait" help:"Wait until everything that was sent can be recalled."`
	JSON     bool     `name:"json" help:"Print the summary as one JSON value."`
}

// Validate is called by the parser.
func (c *ImportCmd) Validate() error {
	if c.Parallel < 1 || c.Parallel > 32 {
		return fmt.Errorf("--parallel is %d: want 1 to 32", c.Parallel)
	}
	switch {
	case len(c.Paths) == 0 && c.Points == "":
		return errors.New("name files or folders, or a file of data points with --points")
	case len(c.Paths) > 0 && c.Points != "":
		return errors.New("--points goes without paths")
	case c.Points != "" && (c.Kind != "" || c.TimeZone != "" || c.Yes || c.Since != "" || len(c.Only) > 0 || c.DryRun):
		return errors.New("--kind, --time-zone, --since, --only, --dry-run and --yes are for files, not for --points")
	case c.Kind != "" && !estimate.IsKind(c.Kind):
		return fmt.Errorf("--kind is %q: want %s", c.Kind, strings.Join(estimate.KindNames(), ", "))
	}
	for _, kind := range c.Only {
		if !estimate.IsKind(kind) {
			return fmt.Errorf("--only is %q: want %s", kind, strings.Join(estimate.KindNames(), ", "))
		}
	}
	_, err := c.since()
	return err
}

// since reads the time of --since: a day begins in the zone of --time-zone.
func (c *ImportCmd) since() (time.Time, error) {
	if c.Since == "" {
		return time.Time{}, nil
	}
	zone, err := time.LoadLocation(c.TimeZone) // UTC for none
	if err != nil {
		return time.Time{}, fmt.Errorf("--time-zone is %q: %w", c.TimeZone, err)
	}
	at, err := instant.Read(c.Since)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since is %q: %w", c.Since, err)
	}
	if at.DateOnly {
		y, m, d := at.At.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, zone), nil
	}
	return at.At, nil
}

// Run sends the file, or the files.
func (c *ImportCmd) Run(ctx context.Context, env *Env) error {
	in := transfer.Import{
		Connect: c.client, State: c.State, Parallel: c.Parallel, Wait: c.Wait, Terminal: env.terminal(),
	}
	if len(c.Paths) == 0 {
		sum, err := in.Points(ctx, c.Points)
		if err != nil {
			return err
		}
		return printSummary(env.Stdout, sum, c.JSON)
	}
	since, err := c.since()
	if err != nil {
		return err
	}
	choice := transfer.Choice{DryRun: c.DryRun, Yes: c.Yes}
	choice.Since, choice.Kinds = since, c.Only
	sum, err := in.Files(ctx, c.Paths, transfer.Cut{Kind: c.Kind, TimeZone: c.TimeZone}, choice)
	if errors.Is(err, transfer.ErrDryRun) {
		return nil
	}
	if err != nil {
		return err
	}
	return printSummary(env.Stdout, sum, c.JSON)
}

// ExportCmd is "annals export".
type ExportCmd struct {
	operatorapi.WhoFlags
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

// EstimateCmd is "annals estimate".
type EstimateCmd struct {
	Remote
	Paths    []string `arg:"" name:"path" help:"Files, and folders with all that is in them."`
	Kind     string   `name:"kind" placeholder:"KIND" help:"What all files are: email, chat, transcript, table, records, code, documentation or notes; default: detected."`
	TimeZone string   `name:"time-zone" placeholder:"ZONE" help:"IANA zone of times that are written without one, such as Europe/Rome; default UTC."`
	JSON     bool     `name:"json" help:"Print the estimate as one JSON value, in the shape of the API."`
}

// Validate is called by the parser.
func (c *EstimateCmd) Validate() error {
	if c.Kind != "" && !estimate.IsKind(c.Kind) {
		return fmt.Errorf("--kind is %q: want %s", c.Kind, strings.Join(estimate.KindNames(), ", "))
	}
	return nil
}

// Run estimates the files.
func (c *EstimateCmd) Run(ctx context.Context, env *Env) error {
	cut := transfer.Cut{Kind: c.Kind, TimeZone: c.TimeZone}
	estimated, err := transfer.Estimate(ctx, c.client, c.Paths, cut, env.terminal())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, estimated)
	}
	return transfer.PrintEstimate(env.Stdout, estimated)
}
