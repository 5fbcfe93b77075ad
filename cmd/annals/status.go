package main

import (
	"context"
	"errors"
	"fmt"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
)

// StatusCmd is "annals status".
type StatusCmd struct {
	Remote
	IngestionID string `arg:"" optional:"" help:"A send, as its receipt names it; without one, the server is asked whether it is ready."`
	JSON        bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Run shows the state. It fails if the server is not ready or the send has stopped.
func (c *StatusCmd) Run(ctx context.Context, env *Env) error {
	if c.IngestionID == "" {
		return c.server(ctx, env)
	}
	to, err := c.client()
	if err != nil {
		return err
	}
	s, err := to.GetIngestion(ctx, c.IngestionID)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(env.Stdout, s); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(env.Stdout, "send: %s\nproject: %s; sends waiting %d, in progress %d, stopped %d\n",
			s.Status, projectState(s), s.Readiness.Raw, s.Readiness.Comprehension, s.Readiness.Failed)
	}
	if s.Failure != nil {
		return fmt.Errorf("the send has stopped: %s: %s", s.Failure.Code, s.Failure.Message)
	}
	return nil
}

func projectState(s *client.IngestionStatus) string {
	switch {
	case s.Settled:
		return "settled"
	case s.Blocked:
		return "blocked by stopped sends"
	default:
		return "working"
	}
}

// server shows whether the server is ready, which requires no key.
func (c *StatusCmd) server(ctx context.Context, env *Env) error {
	if _, err := c.fill(); err != nil {
		return err
	}
	to, err := client.New(c.URL, "", cliOptions...)
	if err != nil {
		return fmt.Errorf("address of the server: %w", err)
	}
	is, err := statusview.Read(ctx, to)
	if err != nil {
		if c.JSON {
			is.Why = err.Error()
			err = errors.Join(printJSON(env.Stdout, serverStatus{to.BaseURL(), is}), err)
		}
		return err
	}
	if c.JSON {
		err = printJSON(env.Stdout, serverStatus{to.BaseURL(), is})
	} else {
		err = statusview.Print(env.Stdout, to.BaseURL(), is)
	}
	if err == nil && !is.Ready {
		err = fmt.Errorf("%s is not ready: %s", to.BaseURL(), is.Why)
	}
	return err
}

// serverStatus is the state of a server as JSON.
type serverStatus struct {
	URL string `json:"url"`
	statusview.Condition
}
