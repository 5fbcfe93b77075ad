package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
)

// StatusCmd is "annals status".
type StatusCmd struct {
	Remote
	IngestionID string `arg:"" optional:"" help:"A send, as its receipt names it; without one, the server is asked whether it is ready, and how it is."`
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

// server shows whether the server is ready, which requires no key. A caller who may use the socket of the data
// folder also sees what an operator should know.
func (c *StatusCmd) server(ctx context.Context, env *Env) error {
	named := c.URL
	if _, err := c.fill(); err != nil {
		return err
	}
	is, err := c.read(ctx, named)
	if err != nil && is.URL == "" {
		return err
	}
	if c.JSON {
		if err != nil {
			is.Why = err.Error()
		}
		err = errors.Join(printJSON(env.Stdout, is), err)
	} else if err == nil {
		err = is.print(env.Stdout)
	}
	if err == nil && !is.Ready {
		err = fmt.Errorf("%s is not ready: %s", is.URL, is.Why)
	}
	return err
}

// read asks the server that runs on the data folder, or that at the address. A named address is asked itself.
func (c *StatusCmd) read(ctx context.Context, named string) (is serverStatus, err error) {
	service, err := operatorapi.ServiceStatus.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	if err == nil && (named == "" || named == service.API || named == service.Health) {
		is.Service = &service
	}
	switch {
	case is.Service != nil && named == "":
		is.URL, is.Condition = service.API, statusview.ConditionOf(service)
		return is, nil
	case c.URL == "":
		return is, c.noServer()
	}
	to, err := client.New(c.URL, "", cliOptions...)
	if err != nil {
		return is, fmt.Errorf("address of the server: %w", err)
	}
	is.URL = to.BaseURL()
	is.Condition, err = statusview.Read(ctx, to)
	return is, err
}

// serverStatus is the state of a server as JSON.
type serverStatus struct {
	URL string `json:"url"`
	statusview.Condition
	// Service is nil if the server is known by its address alone.
	Service *operatorapi.Status `json:"service,omitempty"`
}

func (s serverStatus) print(to io.Writer) error {
	err := statusview.Print(to, s.URL, s.Condition)
	if err == nil && s.Service != nil {
		err = statusview.PrintService(to, *s.Service, time.Now())
	}
	return err
}
