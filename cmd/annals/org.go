package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/tenancy"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/tenants"
)

// OrgCmd is the group "annals org".
type OrgCmd struct {
	List     tenancy.OrgListCmd `cmd:"" help:"List the organizations."`
	Show     tenancy.OrgShowCmd `cmd:"" help:"Show an organization."`
	Create   OrgCreateCmd       `cmd:"" help:"Create an organization and print its management key."`
	Plan     OrgPlanCmd         `cmd:"" help:"Put an organization on a plan."`
	Credits  OrgCreditsCmd      `cmd:"" help:"Grant credits, or take some back."`
	SpendCap OrgSpendCapCmd     `cmd:"" name:"spend-cap" help:"Bound what an organization is charged in a month."`
	Rotate   OrgRotateCmd       `cmd:"" name:"rotate-management-key" help:"Replace the management key and print the new one."`
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
		NewOrganization: commands.NewOrganization{Name: c.Name, Plan: metering.Plan(c.Plan), OwnerEmail: c.OwnerEmail},
		By:              by,
	}
	made, err := runCommand(ctx, c.ServiceFlags, operatorapi.CreateOrganization, order)
	if err != nil {
		return err
	}
	return c.print(env, made, func(b *strings.Builder) {
		fmt.Fprintf(b, "organization %q (%s) is created, on plan %s\n", made.Name, made.ID, made.Plan)
		if made.Granted != "" {
			fmt.Fprintf(b, "starting credits: %s\n", made.Granted)
		}
		fmt.Fprintf(b, "management key, shown only now: %s\n", made.ManagementKey)
		warn(b, made)
	})
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
	in := target
	describe := func(b *strings.Builder, changed tenants.Organization) {
		fmt.Fprintf(b, "management key of organization %q, shown only now: %s\n", changed.Name, changed.ManagementKey)
		if changed.CredentialsFile != "" {
			fmt.Fprintf(b, "%s has it too\n", changed.CredentialsFile)
		}
		warn(b, changed)
	}
	return runChange(ctx, env, c.ServiceFlags, operatorapi.RotateManagementKey, in, describe)
}

// warn adds the warning of a command.
func warn(b *strings.Builder, o tenants.Organization) {
	if o.Warning != "" {
		fmt.Fprintf(b, "warning: %s\n", o.Warning)
	}
}

// print writes an answer as JSON or in words.
func (o ServiceFlags) print(env *Env, answer any, words func(*strings.Builder)) error {
	if o.JSON {
		return printJSON(env.Stdout, answer)
	}
	var b strings.Builder
	words(&b)
	if _, err := fmt.Fprint(env.Stdout, b.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
