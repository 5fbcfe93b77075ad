// Package statusview reads and prints the state of a server as annals status shows it, and the progress of a rebuild.
package statusview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
)

// Condition is the state of a server, as annals status prints it as JSON.
type Condition struct {
	Ready bool `json:"ready"`
	// Why names what is missing on one line, if the server is not ready.
	Why string `json:"why"`
	// ReadyStatus has the remarks. Its parts that are not ready are in Why.
	client.ReadyStatus
}

// Read reads the state of the server once. It fails if the server does not answer.
func Read(ctx context.Context, from *client.Client) (is Condition, err error) {
	status, err := from.Ready(ctx)
	refused, answered := errors.AsType[*client.APIError](err)
	switch {
	case answered && refused.Status == http.StatusNotFound:
		is.Why = "it has no /readyz; with ANNALS_OPS_ADDR set, that is there: annals status --url http://HOST:PORT"
		return is, nil
	case answered:
		is.Why = refused.Error()
		return is, nil
	case err != nil:
		return is, err
	}
	is.Ready, is.Why, is.ReadyStatus = status.Ready, notReady(status.NotReady), *status
	is.NotReady = nil
	return is, nil
}

// notReady describes parts on one line, the first one with the time since when it is not ready.
func notReady(parts []client.NotReady) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.String()
	}
	if len(parts) > 0 && !parts[0].Since.IsZero() {
		texts[0] += ", since " + parts[0].Since.UTC().Format(time.RFC3339)
	}
	return strings.Join(texts, "; ")
}

// Print writes what an operator should know, each on a line.
func Print(w io.Writer, url string, is Condition) error {
	var lines []string
	if is.Ready {
		lines = append(lines, url+" is ready")
	}
	lines = append(lines, is.Lines()...)
	for _, e := range is.SetAside {
		by := "all projections"
		if len(e.Projections) > 0 {
			by = strings.Join(e.Projections, ", ")
		}
		lines = append(lines, fmt.Sprintf("set aside: position %d, %s, passed over by %s", e.Position, e.Type, by))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	return nil
}
