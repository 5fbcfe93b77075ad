// Package statusview reads and prints the state of a server as annals status shows it.
package statusview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/condition"
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

// ConditionOf is the state of a server as its operator sees it.
func ConditionOf(s operatorapi.Status) Condition {
	return Condition{
		Ready: len(s.NotReady) == 0, Why: notReady(s.NotReady), ReadyStatus: client.ReadyStatus{Remarks: s.Remarks},
	}
}

// PrintService writes what an operator should know about a process, each on a line. now is the time of the operator.
func PrintService(to io.Writer, s operatorapi.Status, now time.Time) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"version", fmt.Sprintf("%s, pid %d, roles %s", s.Version, s.PID, s.Roles)},
		{"data", folder(s)},
		{"API", s.API},
		{"console", s.Console},
		{"agents", s.MCP},
		{"health", health(s)},
		{"disk", disk(s)},
		{"backup", backup(s.LastBackup, now)},
		{"failed", failed(s.FailedSends)},
		{"lag", lag(s.Projections)},
	} {
		if line[1] != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// folder describes the data folder by its parts, the largest first.
func folder(s operatorapi.Status) string {
	text := s.DataDir
	if s.DataPoints != nil {
		text += fmt.Sprintf(", %s data points", humanize.Comma(*s.DataPoints))
	}
	parts := slices.SortedFunc(maps.Keys(s.Bytes), func(a, b string) int { return int(s.Bytes[b] - s.Bytes[a]) })
	for i, part := range parts {
		parts[i] = part + " " + humanize.Bytes(uint64(max(s.Bytes[part], 0)))
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

func health(s operatorapi.Status) string { return s.Health + "/readyz and /metrics" }

func disk(s operatorapi.Status) string {
	if s.DiskFree == nil || s.DiskRequired == nil {
		return "not checked (ANNALS_MIN_FREE_DISK=0)"
	}
	free, required := humanize.Bytes(*s.DiskFree), humanize.Bytes(*s.DiskRequired)
	return fmt.Sprintf("%s free; writes are refused below %s", free, required)
}

func backup(last *time.Time, now time.Time) string {
	if last == nil {
		return "none is recorded: annals backup FOLDER makes one"
	}
	return fmt.Sprintf("%s (%s)", last.UTC().Format(time.RFC3339), humanize.RelTime(*last, now, "ago", "from now"))
}

func failed(sends int) string {
	if sends == 0 {
		return "no send in the last hour"
	}
	return english.Plural(sends, "send", "") + " in the last hour: annals failed lists them"
}

// lag names the projections that have not applied the whole log, the furthest from it first.
func lag(projections []condition.Projection) string {
	lagging := slices.DeleteFunc(slices.Clone(projections), func(p condition.Projection) bool {
		return p.Lag == 0 && p.Problem == ""
	})
	if len(lagging) == 0 {
		return "none: all projections have applied the log"
	}
	slices.SortFunc(lagging, func(a, b condition.Projection) int { return int(b.Lag) - int(a.Lag) })
	texts := make([]string, len(lagging))
	for i, p := range lagging {
		texts[i] = fmt.Sprintf("%s %s", p.Name, english.Plural(int(p.Lag), "position", ""))
		if p.Problem != "" {
			texts[i] += " (" + string(p.Problem) + ")"
		}
	}
	return strings.Join(texts, ", ")
}
