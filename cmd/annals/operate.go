package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/domain/instant"
)

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
	return f.print(env, changed, func(b *strings.Builder) { describe(b, changed) })
}
