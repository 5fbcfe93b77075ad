package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strconv"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/usage"
)

// Operated says where a command of an operator finds the service: a server that runs on a data folder, through its socket, else the
// event store and the database that servers elsewhere work on.
type Operated struct {
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	EventStore string `name:"eventstore" setting:"ANNALS_EVENTSTORE" default:"embedded" help:"Event store, where no server runs on the data folder: esdb://host:2113."`
	Postgres   string `name:"postgres" setting:"ANNALS_POSTGRES" default:"embedded" help:"Database, where no server runs on the data folder: postgres://user@host/database."`
	Plans      string `name:"plans" setting:"ANNALS_PLANS" help:"Terms of plans that differ from the default, as JSON by plan, where no server runs on the data folder."`
	JSON       bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Whose says which organization a command is about, and who gives it.
type Whose struct {
	Org string `name:"org" placeholder:"NAME|ID" help:"Organization; default the only one."`
}

func (w Whose) whom() (operator.Whom, error) {
	by, err := operatorName()
	return operator.Whom{Organization: w.Org, By: by}, err
}

// operatorName is who gives a command, as its events name them.
func operatorName() (string, error) {
	current, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("who gives the command is not known: %w", err)
	}
	return "operator " + current.Username, nil
}

// open reaches the service. What is opened is closed by calling done.
func (o Operated) open(ctx context.Context) (to operator.Organizations, done func() error, err error) {
	server := operator.Dial(o.DataDir)
	if o.EventStore == Embedded || o.Postgres == Embedded || server.Running(ctx) {
		return server, func() error { return nil }, nil
	}
	return o.direct(ctx)
}

// direct works on the event store and the database themselves; the servers that work on them apply what it writes.
func (o Operated) direct(ctx context.Context) (_ operator.Organizations, done func() error, err error) {
	if !hasScheme(o.EventStore, "esdb", "esdb+discover") {
		return nil, nil, errors.New(`the event store is neither "embedded" nor an address such as esdb://host:2113`)
	}
	tariff, err := (&Settings{Plans: o.Plans}).tariff()
	if err != nil {
		return nil, nil, fmt.Errorf("ANNALS_PLANS %w", err)
	}
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	store, err := esdb.Open(esdb.Config{ConnectionString: o.EventStore, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	db, err := pg.OpenPool(ctx, o.Postgres)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	service := commands.New(commands.Config{
		Log: commands.NewLog(store, codec, quiet), Waiter: projections.NewWaiter(db), Tariff: tariff, Accounts: usage.Queries{DB: db, Tariff: tariff},
	})
	return organizations{service, o.DataDir, now}, func() error { db.Close(); return store.Close() }, nil
}

// operate reaches the service, gives it one command, and closes what was opened.
func operate[T any](ctx context.Context, o Operated, do func(operator.Organizations) (T, error)) (out T, err error) {
	to, done, err := o.open(ctx)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return do(to)
}

// change gives a command about an organization, or about a project of it, and prints what that is now.
func change[T any](ctx context.Context, env *Env, o Operated, w Whose, give func(operator.Organizations, operator.Whom) (T, error), say func(*strings.Builder, T)) error {
	whom, err := w.whom()
	if err != nil {
		return err
	}
	changed, err := operate(ctx, o, func(to operator.Organizations) (T, error) { return give(to, whom) })
	if err != nil {
		return err
	}
	return o.print(env, changed, func(b *strings.Builder) { say(b, changed) })
}

// none is the word for no cap.
const none = "none"

// readCredits reads a number of credits with at most one decimal digit, such as 100, 0.5 or -20, as tenths.
func readCredits(text string) (int64, error) {
	whole, digit, decimal := strings.Cut(text, ".")
	if !decimal {
		digit = "0"
	}
	n, err := strconv.ParseInt(whole+digit, 10, 64)
	if err != nil || len(digit) != 1 || strings.Trim(whole, "+-") == "" || strings.ContainsAny(digit, "+-") {
		return 0, fmt.Errorf("%q is no number of credits: want one with at most one decimal digit, such as 100 or 0.5", text)
	}
	return n, nil
}

// readCreditCap reads a cap in credits as tenths; nil is none.
func readCreditCap(text string) (*int64, error) {
	if text == none {
		return nil, nil //nolint:nilnil // no cap is no fault
	}
	n, err := readCredits(text)
	if err == nil && n < 0 {
		err = fmt.Errorf("%q is no cap: want 0 or more, or %s", text, none)
	}
	return &n, err
}

// readCap reads a cap in data points; nil is none.
func readCap(text string) (*int64, error) {
	if text == none {
		return nil, nil //nolint:nilnil // no cap is no fault
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is no cap: want 0 or more, or %s", text, none)
	}
	return &n, nil
}

// joinNegative makes one argument of --grant and a number below 0, which the parser would take for a flag.
func joinNegative(args []string) []string {
	joined := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if args[i] == "--grant" && i+1 < len(args) && len(args[i+1]) > 1 && args[i+1][0] == '-' && args[i+1][1] != '-' {
			joined = append(joined, args[i]+"="+args[i+1])
			i++
			continue
		}
		joined = append(joined, args[i])
	}
	return joined
}
