package main

import (
	"context"
	"errors"
	"io"

	"github.com/annals-project/annals/cmd/annals/internal/erasure"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// EraseCmd is "annals erase".
type EraseCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Now     bool   `name:"now" help:"Erase all that was deleted, from tables, index and event store, and wait until that is done."`
	OrgFlag
	Project  string `name:"project" placeholder:"SLUG" help:"Project of the identity."`
	Identity string `name:"identity" placeholder:"NAME" help:"Erase a person: everything that this identity wrote in the project, its record, and its name in the request log."`
	Resends  bool   `name:"with-resends" help:"With --identity: without effect, for scripts that have it. Nothing that others wrote holds the name of a person who sent it again."`
	Yes      bool   `name:"yes" help:"Erase the person without asking."`
	JSON     bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Validate is called by the parser.
func (c *EraseCmd) Validate() error {
	switch {
	case c.Identity == "" && (c.Project != "" || c.Org != "" || c.Yes || c.Resends):
		return errors.New("--project, --org, --yes and --with-resends need --identity")
	case c.Identity != "" && c.Project == "":
		return errors.New("--identity needs --project")
	case c.Identity != "" && c.Now:
		return errors.New("--identity does not go with --now: it erases at once")
	}
	return nil
}

// Run shows what waits to be erased, or erases it.
func (c *EraseCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	if c.Identity != "" {
		return c.erasePerson(ctx, env, server)
	}
	if !c.Now {
		pending, err := operatorapi.PendingErasures.Call(ctx, server, operatorapi.None{})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(env.Stdout, pending)
		}
		erasure.PrintPending(env.Stdout, pending)
		return nil
	}
	done, err := operatorapi.EraseNow.Call(ctx, server, operatorapi.None{})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, done)
	}
	erasure.PrintErased(env.Stdout, done)
	return nil
}

func (c *EraseCmd) erasePerson(ctx context.Context, env *Env, server *operatorapi.Client) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	of := erasure.OfPerson{
		Server: server, Yes: c.Yes, Terminal: env.terminal(), Deleted: io.Discard,
		Person: operatorapi.PersonRequest{
			Target: target, Project: c.Project, Identity: c.Identity,
		},
	}
	if !c.JSON {
		of.Deleted = env.Stdout
	}
	sum, err := of.Run(ctx)
	if err != nil {
		return err
	}
	return printSummary(env.Stdout, sum, c.JSON)
}
