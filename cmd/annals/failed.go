package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/datapoints"
)

// FailedCmd is "annals failed". It calls the server through the socket in the data folder, so it
// needs no key, but the rights of the user that runs the server.
type FailedCmd struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	Retry   bool   `name:"retry" help:"Put back the stopped sends that a retry can help."`
	JSON    bool   `name:"json" help:"Print the list as one JSON value."`
}

// failedSend is a stopped send as it is printed.
type failedSend struct {
	datapoints.StoppedSend
	// Retried is true if --retry queued the send again.
	Retried bool `json:"retried,omitempty"`
}

// Run lists the stopped sends of every project, oldest first.
func (c *FailedCmd) Run(ctx context.Context, env *Env) error {
	server := operatorapi.Dial(c.DataDir)
	list, err := allFailed(ctx, server)
	if err != nil {
		return err
	}
	if c.Retry {
		if err := retryAll(ctx, server, list); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]any{"failed": list})
	}
	return c.print(env, list)
}

func allFailed(ctx context.Context, server *operatorapi.Client) ([]failedSend, error) {
	list := []failedSend{}
	err := operatorapi.ListFailed.Call(ctx, server, operatorapi.None{}, func() {}, func(f datapoints.StoppedSend) error {
		list = append(list, failedSend{StoppedSend: f})
		return nil
	})
	return list, err
}

// retryAll retries the sends that a retry can help. It skips a send that another caller retried or
// deleted meanwhile.
func retryAll(ctx context.Context, server *operatorapi.Client, list []failedSend) error {
	for i := range list {
		if !list[i].Retryable {
			continue
		}
		_, err := operatorapi.Retry.Call(ctx, server, operatorapi.RetryRequest{ID: list[i].IngestionID})
		switch {
		case err == nil:
			list[i].Retried = true
		case errors.Is(err, operatorapi.ErrNotStopped), errors.Is(err, operatorapi.ErrNotFound):
		default:
			return fmt.Errorf("retry %s: %w", list[i].IngestionID, err)
		}
	}
	return nil
}

func (c *FailedCmd) print(env *Env, list []failedSend) error {
	if len(list) == 0 {
		_, _ = fmt.Fprintln(env.Stdout, "no send has stopped")
		return nil
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "SEND\tPROJECT\tSTOPPED\tITEMS\tREASON")
	var retried int
	for _, f := range list {
		note := ""
		switch {
		case f.Retried:
			note, retried = " (put back)", retried+1
		case !f.Retryable:
			note = " (a retry does not help: change the content and send it again)"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s: %s%s\n", f.IngestionID, f.Project, f.FailedAt.UTC().Format(time.RFC3339),
			f.Items, f.Code, f.Message, note)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	if c.Retry {
		_, _ = fmt.Fprintf(env.Stdout, "%d of %d put back\n", retried, len(list))
	}
	return nil
}
