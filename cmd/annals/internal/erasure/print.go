package erasure

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/work"
)

// PrintErased writes what an erasure did and what is left, as text.
func PrintErased(to io.Writer, done erasure.Report) {
	_, _ = fmt.Fprintf(to, "deletions cleaned: %d\nremoved identities cleared: %d\nstreams ended: %d\n"+
		"blobs swept: %d\ntables vacuumed: %d\nindexes rewritten: %d\nevent store: %s\n",
		done.Deletions, done.Identities, done.Streams, done.Blobs, done.Tables, done.Indexes, done.Store)
	PrintPending(to, done.Left)
}

// PrintPending writes what waits to be erased, as text.
func PrintPending(to io.Writer, p work.Open) {
	if p.FanOuts+p.Deletions+p.Identities+p.Blobs == 0 {
		_, _ = fmt.Fprintln(to, "nothing waits to be erased")
		return
	}
	_, _ = fmt.Fprintf(to, "waiting: %s of %s, %s to be completed",
		english.Plural(p.Deletions, "deletion", "deletions"),
		english.Plural(p.DataPoints, "data point", "data points"),
		english.Plural(p.FanOuts, "operation", "operations"))
	if p.Identities > 0 {
		_, _ = fmt.Fprintf(to, ", %s", english.Plural(p.Identities, "removed identity", "removed identities"))
	}
	if p.Blobs > 0 {
		_, _ = fmt.Fprintf(to, ", %d texts of sends that were never stored", p.Blobs)
		if p.Until != nil {
			_, _ = fmt.Fprintf(to, " (until %s)", p.Until.UTC().Format(time.RFC3339))
		}
	}
	_, _ = fmt.Fprintln(to)
}
