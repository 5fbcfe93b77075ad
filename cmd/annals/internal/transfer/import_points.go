package transfer

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/importer"
)

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
