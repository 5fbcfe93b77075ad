// Package transfer brings data points into a project and out of it: the estimate, the import and the export of the
// command line, with their questions, tables, progress and files. The commands are in cmd/annals.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/importer"
)

// Connect makes a client of the server that a command names.
type Connect func(...client.Option) (*client.Client, error)

// Import is what an import of data points and one of files have in common.
type Import struct {
	Connect Connect
	// State is the file with the progress, "" for one next to what is imported.
	State string
	// Parallel is how many batches are in flight at once.
	Parallel int
	// Wait waits until everything that was sent can be recalled.
	Wait     bool
	Terminal terminal.Streams

	// canWrite replaces isWritable in tests.
	canWrite func(path string) bool
}

const (
	// patience is how long a batch is sent again that a server under load refuses.
	patience = 15 * time.Minute
	// connectWait is how long a server is waited for that is away.
	connectWait = 30 * time.Second
)

// connect makes a client that later waits for a server that is away or under load.
func (i Import) connect(timeout time.Duration) (*client.Client, error) {
	return i.Connect(client.WithMaxAttempts(0), client.WithConnectWait(connectWait), client.WithTimeout(patience),
		client.WithAttemptTimeout(timeout))
}

// target returns where an import sends to. It fails at once without a server; later the client waits for it.
func target(ctx context.Context, to *client.Client) (importer.Target, error) {
	if _, err := statusview.Read(ctx, to); err != nil {
		return importer.Target{}, err
	}
	project, err := to.ProjectID(ctx)
	return importer.Target{Server: to.BaseURL(), Project: project}, err
}

// notice shows the person a line, unless it is "".
func (i Import) notice(text string) {
	if text != "" {
		_, _ = fmt.Fprintln(i.Terminal.Out, text)
	}
}

// Deriving is what an import that did not wait leaves to the background.
type Deriving struct {
	// Sends counts the sends of the project that are not recallable yet, LastSend is the last one of the import.
	Sends    int    `json:"sends"`
	LastSend string `json:"ingestionId"`
	// Unknown is why Sends could not be read, "" if it was. That fails no import: everything was sent.
	Unknown string `json:"unknown,omitempty"`
}

// settled waits, if that is asked for, until the last send can be recalled, and returns the status of the project.
// Otherwise it returns what is still being derived, nil for nothing.
func (i Import) settled(
	ctx context.Context, to *client.Client, last string,
) (*client.IngestionStatus, *Deriving, error) {
	if last == "" {
		return nil, nil, nil
	}
	if !i.Wait {
		status, err := to.GetIngestion(ctx, last)
		if err != nil {
			return nil, &Deriving{LastSend: last, Unknown: err.Error()}, nil
		}
		if open := status.Readiness.Raw + status.Readiness.Comprehension; open > 0 {
			return nil, &Deriving{Sends: open, LastSend: last}, nil
		}
		return nil, nil, nil
	}
	bar := i.Terminal.Progress(0)
	status, err := to.WaitSettled(ctx, last, func(s *client.IngestionStatus) {
		waiting := english.Plural(s.Readiness.Raw+s.Readiness.Comprehension, "send", "sends")
		bar.Show(terminal.Step{Plain: "waiting for " + waiting})
	})
	bar.End()
	if err != nil {
		return nil, nil, fmt.Errorf("everything was sent, but waiting for it failed: %w", err)
	}
	return status, nil, nil
}

// printDerived prints how much of an import can be recalled.
func printDerived(out io.Writer, status *client.IngestionStatus, deriving *Deriving) {
	switch {
	case deriving != nil && deriving.Unknown != "":
		_, _ = fmt.Fprintf(out, "how much is still being derived cannot be read: %s; annals status %s asks again\n",
			deriving.Unknown, deriving.LastSend)
	case deriving != nil:
		_, _ = fmt.Fprintf(out, "%s of the project %s still being derived: annals status %s\n",
			english.Plural(deriving.Sends, "send", "sends"), english.PluralWord(deriving.Sends, "is", "are"), deriving.LastSend)
	case status != nil && status.Readiness.Failed == 0:
		_, _ = fmt.Fprintln(out, "everything can be recalled")
	}
}

// again returns what a person can do after a run that ended with an error: nothing, if the service refused what every
// run would send.
func again(err error, how string) string {
	if refused, is := errors.AsType[*client.APIError](err); is && refused.Status >= 400 && refused.Status < 500 {
		switch refused.Status {
		case http.StatusPaymentRequired, http.StatusTooManyRequests, http.StatusRequestTimeout:
		default:
			return ""
		}
	}
	return "; " + how
}

// listedLeft is how many data points that were left out are shown.
const listedLeft = 20

// printLeft prints the data points that were left out. Those that were deleted are counted: people know them.
func printLeft(out io.Writer, deleted int, left []importer.LeftOut) {
	if deleted > 0 {
		_, _ = fmt.Fprintf(out, "%s deleted before and %s out\n",
			english.Plural(deleted, "data point was", "data points were"), english.PluralWord(deleted, "stays", "stay"))
	}
	shown := 0
	for _, l := range left {
		if l.Deleted {
			continue
		}
		if shown++; shown <= listedLeft {
			_, _ = fmt.Fprintf(out, "left out: %s%s: %s\n", l.ID, placeOf(l), l.Reason)
		}
	}
	if shown > listedLeft {
		_, _ = fmt.Fprintf(out, "left out: %d more; --json lists them\n", shown-listedLeft)
	}
}

func placeOf(l importer.LeftOut) string {
	switch {
	case l.Path != "":
		return " of " + l.Path
	case l.Line > 0:
		return fmt.Sprintf(" of line %d", l.Line)
	}
	return ""
}

// interrupted replaces the error of work that the person ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// stoppedSends is the error of an import after which sends of the project have stopped.
func stoppedSends(s *client.IngestionStatus) error {
	if s == nil || s.Readiness.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%s of the project stopped: annals failed lists them",
		english.Plural(s.Readiness.Failed, "send", "sends"))
}
