// Package statusview prints the state of a server as annals status shows it.
package statusview

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/internal/client"
)

// Print writes what an operator should know, each on a line.
func Print(w io.Writer, url string, is client.Condition) error {
	var lines []string
	if is.Ready {
		lines = append(lines, url+" is ready")
	}
	if is.CatchingUp != "" {
		lines = append(lines, is.CatchingUp)
	}
	for _, reason := range is.WritesRefused {
		lines = append(lines, "writes are refused: "+reason)
	}
	if is.OpenTooLong != "" {
		lines = append(lines, is.OpenTooLong)
	}
	if len(is.RecallIncomplete) > 0 {
		lines = append(
			lines,
			"parts of the index are filled again, and recall of their projects is refused meanwhile: "+strings.Join(
				is.RecallIncomplete, ", ",
			),
		)
	}
	if is.RecallElsewhere != "" {
		lines = append(lines, "recall is not answered here: "+is.RecallElsewhere)
	}
	if is.SemanticSearchOff != "" {
		lines = append(lines, is.SemanticSearchOff)
	}
	lines = append(lines, is.ServersDown...)
	if is.SendsFailed != "" {
		lines = append(lines, is.SendsFailed)
	}
	if is.BulkWritesLost > 0 {
		lines = append(
			lines,
			english.Plural(
				is.BulkWritesLost, "bulk write", "bulk writes",
			)+" of identities given up, since the rows could not be read",
		)
	}
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
