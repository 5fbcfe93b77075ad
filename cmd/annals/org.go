package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/tenants"
)

// OrgCmd is the group "annals org".
type OrgCmd struct {
	List     OrgListCmd     `cmd:"" help:"List the organizations."`
	Show     OrgShowCmd     `cmd:"" help:"Show an organization."`
	Create   OrgCreateCmd   `cmd:"" help:"Create an organization and print its management key."`
	Plan     OrgPlanCmd     `cmd:"" help:"Put an organization on a plan."`
	Credits  OrgCreditsCmd  `cmd:"" help:"Grant credits, or take some back."`
	SpendCap OrgSpendCapCmd `cmd:"" name:"spend-cap" help:"Bound what an organization is charged in a month."`
	Rotate   OrgRotateCmd   `cmd:"" name:"rotate-management-key" help:"Replace the management key and print the new one."`
}

// OrgListCmd is "annals org list".
type OrgListCmd struct{ TenancyFlags }

// Run lists the organizations.
func (c *OrgListCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.ListOrganizations, operatorapi.TenancyRequest{},
		func(w io.Writer, list []tenants.ListedOrganization) {
			tableRow(w, "NAME", "PLAN", "PROJECTS", "CREATED", "ID")
			for _, o := range list {
				tableRow(w, o.Name, o.Plan, o.Projects, day(*o.CreatedAt), o.ID)
			}
		})
}

// OrgShowCmd is "annals org show".
type OrgShowCmd struct{ TenancyFlags }

// Run shows an organization.
func (c *OrgShowCmd) Run(ctx context.Context, to io.Writer) error {
	return runTenancy(ctx, c.TenancyFlags, to, operatorapi.ShowOrganization, operatorapi.TenancyRequest{},
		func(w io.Writer, o tenants.ListedOrganization) {
			tableRow(w, "name:", o.Name)
			tableRow(w, "id:", o.ID)
			tableRow(w, "plan:", o.Plan)
			tableRow(w, "owner:", o.OwnerEmail)
			tableRow(w, "spend cap:", limitOf(o.SpendCap))
			tableRow(w, "projects:", o.Projects)
			tableRow(w, "created:", o.CreatedAt.UTC().Format(time.RFC3339))
			if !o.IsPrepared {
				tableRow(w, "state:", "being prepared: its calls are refused")
			}
		})
}

// OrgCreateCmd is "annals org create".
type OrgCreateCmd struct {
	ServiceFlags
	Name       string `arg:"" help:"Name, which no other organization has."`
	Plan       string `name:"plan" default:"self-hosted" help:"Plan: self-hosted, payg, flex or enterprise."`
	OwnerEmail string `name:"owner-email" help:"Address of the owner."`
}

// Run creates the organization.
func (c *OrgCreateCmd) Run(ctx context.Context, env *Env) error {
	by, err := operatorName()
	if err != nil {
		return err
	}
	order := operatorapi.NewOrganization{
		NewOrganization: tenancy.NewOrganization{Name: c.Name, Plan: metering.Plan(c.Plan), OwnerEmail: c.OwnerEmail},
		By:              by,
	}
	describe := func(b *strings.Builder, made tenants.Organization) {
		fmt.Fprintf(b, "organization %q (%s) is created, on plan %s\n", made.Name, made.ID, made.Plan)
		if made.Granted != "" {
			fmt.Fprintf(b, "starting credits: %s\n", made.Granted)
		}
		fmt.Fprintf(b, "management key, shown only now: %s\n", made.ManagementKey)
		warn(b, made)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.CreateOrganization, order, describe)
}

// OrgPlanCmd is "annals org plan".
type OrgPlanCmd struct {
	ServiceFlags
	OrgFlag
	Plan string `arg:"" help:"Plan: self-hosted, payg, flex or enterprise."`
}

// Run sets the plan.
func (c *OrgPlanCmd) Run(ctx context.Context, env *Env) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.PlanRequest{Target: target, Plan: metering.Plan(c.Plan)}
	describe := func(b *strings.Builder, changed tenants.Organization) {
		fmt.Fprintf(b, "organization %q is on plan %s\n", changed.Name, changed.Plan)
		if changed.Granted != "" {
			fmt.Fprintf(b, "starting credits: %s\n", changed.Granted)
		}
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.SetPlan, in, describe)
}

// OrgCreditsCmd is "annals org credits".
type OrgCreditsCmd struct {
	ServiceFlags
	OrgFlag
	Grant string `name:"grant" required:"" placeholder:"N" help:"Credits to grant; a number below 0 takes credits back, at most those that are left."`
}

// Run grants credits.
func (c *OrgCreditsCmd) Run(ctx context.Context, env *Env) error {
	tenths, err := amounts.Credits(c.Grant)
	if err != nil {
		return err
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.CreditsRequest{Target: target, Tenths: tenths}
	describe := func(b *strings.Builder, changed tenants.Organization) {
		granted := changed.Granted.String()
		if back, less := strings.CutPrefix(granted, "-"); less {
			fmt.Fprintf(b, "%s credits were taken back from organization %q, which has %s left\n", back, changed.Name,
				changed.Left)
			return
		}
		fmt.Fprintf(b, "%s credits were granted to organization %q, which has %s left\n", granted, changed.Name, changed.Left)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.GrantCredits, in, describe)
}

// OrgSpendCapCmd is "annals org spend-cap".
type OrgSpendCapCmd struct {
	ServiceFlags
	OrgFlag
	Cap string `arg:"" help:"Credits that may be charged in a UTC calendar month, or none."`
}

// Run sets the spend cap.
func (c *OrgSpendCapCmd) Run(ctx context.Context, env *Env) error {
	tenths, err := amounts.CreditCap(c.Cap)
	if err != nil {
		return err
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.SpendCapRequest{Target: target, Tenths: tenths}
	describe := func(b *strings.Builder, changed tenants.Organization) {
		if changed.SpendCap == nil {
			fmt.Fprintf(b, "organization %q has no spend cap\n", changed.Name)
			return
		}
		fmt.Fprintf(b, "organization %q is charged at most %s credits a month\n", changed.Name, *changed.SpendCap)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.SetSpendCap, in, describe)
}

// OrgRotateCmd is "annals org rotate-management-key".
type OrgRotateCmd struct {
	ServiceFlags
	OrgFlag
}

// Run replaces the management key.
func (c *OrgRotateCmd) Run(ctx context.Context, env *Env) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	describe := func(b *strings.Builder, changed tenants.Organization) {
		fmt.Fprintf(b, "management key of organization %q, shown only now: %s\n", changed.Name, changed.ManagementKey)
		if changed.CredentialsFile != "" {
			fmt.Fprintf(b, "%s has it too\n", changed.CredentialsFile)
		}
		warn(b, changed)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.RotateManagementKey, target, describe)
}

// warn adds the warning of a command.
func warn(b *strings.Builder, o tenants.Organization) {
	if o.Warning != "" {
		fmt.Fprintf(b, "warning: %s\n", o.Warning)
	}
}

// ServiceFlags name the service of a command of an operator: a server that runs on a data
// folder, through its socket, else the event store and the database that servers elsewhere work on.
type ServiceFlags struct {
	operatorapi.WhoFlags
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	EventStore string `name:"eventstore" setting:"ANNALS_EVENTSTORE" default:"embedded" help:"Event store, if no server runs on the data folder: esdb://host:2113."`
	Postgres   string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database, if no server runs on the data folder: postgres://user@host/database."`
	Prefix     string `name:"postgres-schema-prefix" setting:"ANNALS_POSTGRES_SCHEMA_PREFIX" help:"Start of the names of all schemas in the database, if no server runs on the data folder."`
	Plans      string `name:"plans" setting:"ANNALS_PLANS" help:"Terms of plans that differ from the default, as JSON by plan, if no server runs on the data folder."`
	JSON       bool   `name:"json" help:"Print the result as one JSON value."`
}

// OrgFlag names the organization of a command.
type OrgFlag struct {
	Org string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one."`
}

func (f OrgFlag) target() (operatorapi.Target, error) {
	by, err := operatorName()
	return operatorapi.Target{Organization: f.Org, By: by}, err
}

// operatorName returns the name of the operator for events.
func operatorName() (string, error) {
	current, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the user of this process: %w", err)
	}
	return "operator " + current.Username, nil
}

// runCommand lets the server that runs on the data folder perform a command. If the event store and the
// database are elsewhere and no server runs on the folder, this process performs it.
func runCommand[In, Out any](
	ctx context.Context, f ServiceFlags, command operatorapi.OrganizationCommand[In, Out], in In,
) (out Out, err error) {
	running := operatorapi.Dial(f.DataDir)
	if f.EventStore == server.Embedded || f.Postgres == server.Embedded || running.Running(ctx) {
		return command.Call(ctx, running, in)
	}
	terms, err := (&Settings{Plans: f.Plans}).planTerms()
	if err != nil {
		return out, fmt.Errorf("ANNALS_PLANS %w", err)
	}
	by, err := operatorName()
	if err != nil {
		return out, err
	}
	service, done, err := server.OpenCommands(ctx, f.EventStore, f.Postgres, f.Prefix, f.DataDir, terms)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, done()) }()
	who := operatorapi.WhoOf(ctx)
	if who.As != "" {
		by += " (says: " + who.As + ")"
	}
	call := operatorapi.CallBy(by, instant.Truncate(time.Now()))
	call.Reason = who.Reason
	return command.On(ctx, service, call, in)
}

// runChange performs a command on an organization or on one of its projects, and prints the result.
func runChange[In, Out any](
	ctx context.Context, env *Env, f ServiceFlags, command operatorapi.OrganizationCommand[In, Out], in In,
	describe func(*strings.Builder, Out),
) error {
	changed, err := runCommand(ctx, f, command, in)
	if err != nil {
		return err
	}
	if f.JSON {
		return printJSON(env.Stdout, changed)
	}
	var b strings.Builder
	describe(&b, changed)
	if _, err := fmt.Fprint(env.Stdout, b.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// TenancyFlags are those of every command.
type TenancyFlags struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Org     string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one, or all in a list."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// runTenancy performs an operation and prints its result: as JSON, or by words.
func runTenancy[Out any](
	ctx context.Context, f TenancyFlags, to io.Writer, do operatorapi.Operation[operatorapi.TenancyRequest, Out],
	in operatorapi.TenancyRequest, words func(io.Writer, Out),
) error {
	in.Organization = f.Org
	out, err := do.Call(ctx, operatorapi.Dial(f.DataDir), in)
	if err != nil {
		return err
	}
	if f.JSON {
		return printJSON(to, out)
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	words(table, out)
	return table.Flush()
}

// tableRow writes a line of a table.
func tableRow(to io.Writer, cells ...any) {
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
