// Package auditcli is the commands of the group "annals audit". They call the server that runs on a data folder.
package auditcli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/audit/state"
)

// Flags are those of every command.
type Flags struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

func (f Flags) server() *operatorapi.Client { return operatorapi.Dial(f.DataDir) }

// StatusCmd is "annals audit status".
type StatusCmd struct {
	Flags
	Org string `name:"org" placeholder:"NAME|ID" help:"Organization; default all, and the deployment."`
}

// Run prints how far each tree is signed.
func (c *StatusCmd) Run(ctx context.Context, to io.Writer) error {
	list := []state.State{}
	in := operatorapi.AuditRequest{Organization: c.Org, All: true}
	err := operatorapi.AuditStatus.Call(ctx, c.server(), in, func() {}, func(s state.State) error {
		if list = append(list, s); c.JSON {
			return nil
		}
		_, err := io.WriteString(to, words(s, time.Now()))
		return err
	})
	if err != nil || !c.JSON {
		return err
	}
	return printJSON(to, map[string]any{"trees": list})
}

func printJSON(to io.Writer, value any) error {
	enc := json.NewEncoder(to)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// treeName names a tree.
func treeName(organization uuid.UUID, name string) string {
	switch {
	case organization == uuid.Nil:
		return "the deployment"
	case name == "":
		return organization.String()
	}
	return name + " (" + organization.String() + ")"
}

// words describe a state.
func words(s state.State, now time.Time) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "  %-12s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	b.WriteString(treeName(s.Organization, s.Name) + "\n")
	line("events", "%d, %d without a checkpoint", s.Events, s.Uncovered)
	if s.Checkpoint == nil {
		line("checkpoint", "none yet")
	} else {
		line("checkpoint", "%d events, %s", s.Checkpoint.Events, ago(s.Checkpoint.At, now))
	}
	if !s.Since.IsZero() {
		line("waits", "for a checkpoint since %s", ago(s.Since, now))
	}
	if s.Cosigned != nil {
		line("cosigned", "%d events, %s", s.Cosigned.Events, ago(s.Cosigned.At, now))
	}
	for _, c := range s.Copies {
		lag := "has the last checkpoint"
		if !c.Since.IsZero() {
			lag = "waits for a newer one since " + ago(c.Since, now)
		}
		line("copy", "%s: %d events, %s", c.Place, c.Events, lag)
	}
	if s.Origin != "" {
		line("origin", "%s", s.Origin)
	}
	for _, key := range s.Keys {
		line("key", "%s", key)
	}
	return b.String()
}

// ago is a time with its age.
func ago(at, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", at.UTC().Format(time.RFC3339), max(0, now.Sub(at)).Truncate(time.Second))
}
