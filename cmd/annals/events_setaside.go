package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
)

// EventsSetAsideCmd is "annals events set-aside".
type EventsSetAsideCmd struct {
	DataDir    string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Position   uint64 `arg:"" optional:"" help:"Position of the event, as /readyz shows it; without it, list the events that are set aside."`
	Reason     string `name:"reason" help:"The reason, which the log records."`
	Projection string `name:"projection" help:"Projection that ignores the event, or all; default those that are stopped at it."`
	By         string `name:"by" help:"Who decides it; default the user of this system."`
	Force      bool   `name:"force" help:"Also an event at which no projection is stopped."`
	JSON       bool   `name:"json" help:"Print JSON."`
}

// Run sets an event aside, or lists what is.
func (c *EventsSetAsideCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	if c.Position == 0 {
		list, err := operatorapi.ListSetAside.Call(ctx, server, operatorapi.None{})
		if err != nil {
			return err
		}
		return c.show(env, list)
	}
	if strings.TrimSpace(c.Reason) == "" {
		return errors.New("--reason is missing: say why the event is set aside, it is kept in the log")
	}
	by := c.By
	if by == "" {
		current, err := user.Current()
		if err != nil {
			return fmt.Errorf("who decides it is not known (say it with --by): %w", err)
		}
		by = current.Username
	}
	setAside, err := operatorapi.SetAside.Call(ctx, server, operatorapi.SetAsideRequest{
		SetAside: commands.SetAside{
			Position: eventstore.Position(c.Position), Projection: c.Projection, Reason: c.Reason, Force: c.Force,
		},
		By: "operator " + by,
	})
	if err != nil {
		return err
	}
	return c.show(env, []registry.EventSetAside{setAside})
}

func (c *EventsSetAsideCmd) show(env *Env, list []registry.EventSetAside) error {
	if c.JSON {
		shown := make([]shownSetAside, len(list))
		for i, a := range list {
			shown[i].EventSetAside = a
		}
		return json.NewEncoder(env.Stdout).Encode(shown)
	}
	for _, a := range list {
		_, err := fmt.Fprintf(env.Stdout, "position %d, %s of %s, is passed over by %s: %s (%s, %s)\n", a.Position,
			harmless(a.Type), harmless(a.Stream), cmp.Or(strings.Join(a.Projections, ", "), "all projections"),
			harmless(a.Reason), harmless(a.By), a.At.Format("2006-01-02 15:04:05"))
		if err != nil {
			return err
		}
	}
	return nil
}

// shownSetAside is an event that is set aside, without its id.
type shownSetAside struct {
	registry.EventSetAside
	EventID *struct{} `json:"eventId,omitempty"`
}
