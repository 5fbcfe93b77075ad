package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage"
)

// ServiceFlags name the service of a command of an operator: a server that runs on a data
// folder, through its socket, else the event store and the database that servers elsewhere work on.
type ServiceFlags struct {
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	EventStore string `name:"eventstore" setting:"ANNALS_EVENTSTORE" default:"embedded" help:"Event store, if no server runs on the data folder: esdb://host:2113."`
	Postgres   string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database, if no server runs on the data folder: postgres://user@host/database."`
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
	to, done, err := f.openRemote(ctx)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return command.On(to, ctx, in)
}

// openRemote opens the event store and the database. The servers that use them apply what it writes.
// The caller must call done.
func (f ServiceFlags) openRemote(ctx context.Context) (to operatorapi.Organizations, done func() error, err error) {
	if !hasScheme(f.EventStore, "esdb", "esdb+discover") {
		return to, nil, errors.New(`the event store is neither "embedded" nor an address such as esdb://host:2113`)
	}
	terms, err := (&Settings{Plans: f.Plans}).planTerms()
	if err != nil {
		return to, nil, fmt.Errorf("ANNALS_PLANS %w", err)
	}
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return to, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	store, err := esdb.Open(esdb.Config{ConnectionString: f.EventStore, Logger: quiet})
	if err != nil {
		return to, nil, err
	}
	if err := commands.CheckFormat(ctx, eventstore.Journal{Store: store, Codec: codec}); err != nil {
		return to, nil, errors.Join(err, store.Close())
	}
	db, err := pg.OpenPool(ctx, f.Postgres)
	if err != nil {
		return to, nil, errors.Join(err, store.Close())
	}
	now := func() time.Time { return instant.Truncate(time.Now()) }
	to = operatorapi.Organizations{DataDir: f.DataDir, Now: now, Commands: commands.New(commands.Config{
		Journal: commands.NewJournal(store, codec, quiet), Waiter: runner.NewWaiter(db), PlanTerms: terms,
		Accounts: usage.Queries{DB: db, PlanTerms: terms},
	})}
	return to, func() error { db.Close(); return store.Close() }, nil
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
