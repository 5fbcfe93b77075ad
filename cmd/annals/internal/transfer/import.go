// Package transfer brings data points into a project and out of it: the estimate, the import and the export of the
// command line, with their questions, tables, progress and files. The commands are in cmd/annals.
package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sys/unix"

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

// PointsSummary is what an import of data points prints.
type PointsSummary struct {
	Points    int `json:"points"`
	Sent      int `json:"sent"`
	Unchanged int `json:"unchanged"`
	Batches   int `json:"batches"`
	// Deleted and Refused count the data points that were left out: those that were deleted before, and those that the
	// service refused for themselves. Left names the first of them.
	Deleted int                `json:"deleted"`
	Refused int                `json:"refused"`
	Left    []importer.LeftOut `json:"left,omitempty"`
	// Skipped counts the lines of an export that are no data points.
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
	Project int64   `json:"projectId"`
	// Status is that of the project, where the command waited for it.
	Status *client.IngestionStatus `json:"status,omitempty"`
	// Deriving is what is still being derived, where the command did not wait.
	Deriving *Deriving `json:"deriving,omitempty"`
}

// Points sends the data points of a file of JSON Lines; - is standard input.
func (i Import) Points(ctx context.Context, path string) (sum PointsSummary, err error) {
	if i.State == "" && path != "-" {
		if i.State, err = i.ownState(path); err != nil {
			return sum, err
		}
	}
	to, err := i.connect(0)
	if err != nil {
		return sum, err
	}
	in, size, closeInput, err := i.open(path)
	if err != nil {
		return sum, err
	}
	defer closeInput()
	target, err := target(ctx, to)
	if err != nil {
		return sum, err
	}
	before, err := i.load(target)
	if err != nil {
		return sum, err
	}
	began := time.Now()
	bar := i.Terminal.Progress(before.Offset)
	after, err := importer.Import{
		To: to, In: in, State: before, Parallel: i.Parallel,
		Moved: func(s importer.State) error {
			bar.Show(terminal.Step{Done: s.Offset, Total: size, Items: s.Points - before.Points, What: "data points"})
			return i.save(s)
		},
	}.Run(ctx)
	bar.End()
	if err != nil {
		return sum, i.stopped(ctx, after, err)
	}
	sum = PointsSummary{
		Points: after.Points, Sent: after.Points - before.Points, Unchanged: after.Unchanged - before.Unchanged,
		Batches: after.Batches - before.Batches, Skipped: after.Skipped - before.Skipped,
		Seconds: time.Since(began).Seconds(), Project: after.ProjectID,
		Deleted: after.Deleted, Refused: after.Refused, Left: after.Left,
	}
	sum.Status, sum.Deriving, err = i.settled(ctx, to, after.LastIngestion)
	return sum, err
}

// open opens the input and checks a regular file before anything is sent. size is 0 if unknown.
func (i Import) open(path string) (in io.Reader, size int64, done func(), err error) {
	if path == "-" {
		return i.Terminal.In, 0, func() {}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("open data points: %w", err)
	}
	done = func() { _ = f.Close() }
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f, 0, done, err
	}
	count, err := importer.Check(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, count.Bytes, done, nil
}

// load reads the progress of an earlier import to the same project, or begins.
func (i Import) load(to importer.Target) (importer.State, error) {
	if i.State == "" {
		return importer.NewState(to), nil
	}
	before, ok, err := importer.LoadState(i.State)
	if err != nil {
		return before, err
	}
	if !ok {
		before = importer.NewState(to)
	}
	state, notice := before.Continue(i.State, to)
	i.notice(notice)
	return state, state.Save(i.State)
}

func (i Import) save(s importer.State) error {
	if i.State != "" {
		return s.Save(i.State)
	}
	return nil
}

// stopped adds to the reason of a stop how to continue.
func (i Import) stopped(ctx context.Context, s importer.State, err error) error {
	how := "run the same command again to go on"
	if i.State == "" {
		how = "what was sent already is found unchanged when it is sent again"
	}
	return fmt.Errorf("import stopped after %s data points: %w%s", humanize.Comma(int64(s.Points)),
		interrupted(ctx, err), again(err, how))
}

// Print writes the summary as text.
func (s PointsSummary) Print(out io.Writer) {
	rate := int64(float64(s.Sent) / max(s.Seconds, 0.001))
	_, _ = fmt.Fprintf(out, "%s sent in %s in %.1f s (%s/s), %s of them unchanged; %s in all\n",
		english.Plural(s.Sent, "data point", "data points"), english.Plural(s.Batches, "batch", "batches"), s.Seconds,
		humanize.Comma(rate), humanize.Comma(int64(s.Unchanged)), humanize.Comma(int64(s.Points)))
	if s.Skipped > 0 {
		_, _ = fmt.Fprintf(out, "%s of an export skipped: they are derived again\n",
			english.Plural(s.Skipped, "memory", "memories"))
	}
	printLeft(out, s.Deleted, s.Left)
	printDerived(out, s.Status, s.Deriving)
}

// Err is what ends the command after the summary.
func (s PointsSummary) Err() error {
	if err := stoppedSends(s.Status); err != nil {
		return err
	}
	return errLeft(0, s.Deleted, s.Refused)
}

// stateFolder is the variable with the folder of a user for the state of programs, and homeState where it is without.
const stateFolder = "XDG_STATE_HOME"

var homeState = filepath.Join(".local", "state")

// progressFile returns the path of the progress of an import without --state: next to what is imported, or below the
// state folder of the user if nothing can be written there, as next to a mail folder that is read-only. elsewhere is
// true for the latter.
func (i Import) progressFile(imported string) (path string, elsewhere bool, err error) {
	path = imported + ".progress"
	canWrite := i.canWrite
	if canWrite == nil {
		canWrite = isWritable
	}
	if canWrite(path) {
		return path, false, nil
	}
	base := os.Getenv(stateFolder)
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", false, fmt.Errorf("%s cannot be written, and there is no folder for it elsewhere: name a file with "+
				"--state: %w", path, err)
		}
		base = filepath.Join(home, homeState)
	}
	folder := filepath.Join(base, "annals", "import")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", false, fmt.Errorf("%s cannot be written, so the progress goes to %s, which fails too (--state names a "+
			"file): %w", path, folder, err)
	}
	absolute, err := filepath.Abs(imported)
	if err != nil {
		return "", false, fmt.Errorf("name the progress file: %w", err)
	}
	sum := sha256.Sum256([]byte(absolute))
	return filepath.Join(folder, filepath.Base(absolute)+"-"+hex.EncodeToString(sum[:8])+".progress"), true, nil
}

// isWritable reports whether a file can be written, or created if it does not exist. It changes nothing.
func isWritable(path string) bool {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = filepath.Dir(path)
	}
	return unix.Access(path, unix.W_OK) == nil
}

// ownState is progressFile, and shows the person where the file is if it is elsewhere.
func (i Import) ownState(imported string) (string, error) {
	path, elsewhere, err := i.progressFile(imported)
	if err == nil && elsewhere {
		i.notice("the folder of " + imported + " cannot be written: the progress is in " + path)
	}
	return path, err
}
