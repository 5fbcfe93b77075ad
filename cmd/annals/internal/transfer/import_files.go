package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/sources"
)

// FilesSummary is what an import of files prints.
type FilesSummary struct {
	// Files and Skipped count the files that were read and those that became nothing.
	Files   int `json:"files"`
	Skipped int `json:"skipped"`
	// Points counts the data points of the files, Sent and Unchanged those of this run.
	Points    int `json:"points"`
	Sent      int `json:"sent"`
	Unchanged int `json:"unchanged"`
	// Deleted and Refused count the data points that were left out: those that were deleted before, and those that the
	// service refused for themselves, which Left names.
	Deleted int                `json:"deleted"`
	Refused int                `json:"refused"`
	Left    []importer.LeftOut `json:"left,omitempty"`
	Batches int                `json:"batches"`
	Seconds float64            `json:"seconds"`
	Project int64              `json:"projectId"`
	// Status is that of the project, where the command waited for it.
	Status *client.IngestionStatus `json:"status,omitempty"`
	// Deriving is what is still being derived, where the command did not wait.
	Deriving *Deriving `json:"deriving,omitempty"`
	// last is the last send.
	last string
}

// Choice is what is imported of files.
type Choice struct {
	importer.Choice
	// DryRun sends nothing.
	DryRun bool
	// Yes sends without a question.
	Yes bool
}

// ErrDryRun ends an import that was to show only what it would send.
var ErrDryRun = errors.New("nothing was sent: --dry-run")

// Files shows what files, and the files of folders, cost, asks, and sends what they become. The error is ErrDryRun if
// nothing was to be sent.
func (i Import) Files(ctx context.Context, paths []string, cut Cut, choice Choice) (sum FilesSummary, err error) {
	to, err := i.connect(estimateTimeout)
	if err != nil {
		return sum, err
	}
	target, err := target(ctx, to)
	if err != nil {
		return sum, err
	}
	progress, err := i.filesProgress(paths[0])
	if err != nil {
		return sum, err
	}
	found, err := sources.Find(paths...)
	if err != nil {
		return sum, err
	}
	found = slices.DeleteFunc(found, func(f sources.File) bool {
		isHidden := f.Skipped != "" && strings.HasPrefix(filepath.Base(f.Path), ".") // such as .git
		return isHidden || f.Path == progress
	})
	spool, err := importer.NewSpool()
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	add := func(ctx context.Context, in client.EstimateRequest) (*client.Estimate, error) {
		return spool.Add(ctx, to, in, choice.Choice)
	}
	estimated, err := estimateFiles(ctx, found, cut, i.Terminal, add)
	if err != nil {
		return sum, err
	}
	if choice.DryRun {
		if err := PrintEstimate(i.Terminal.Out, estimated); err != nil {
			return sum, err
		}
		return sum, ErrDryRun
	}
	state, err := importer.OpenFilesState(progress, target)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	i.notice(state.Notice)
	files := importer.Files{To: to, Spool: spool, State: state, Parallel: i.Parallel}
	if err := i.confirm(choice.Yes, estimated, files.Total()); err != nil {
		return sum, err
	}
	if sum, err = i.send(ctx, files, estimated); err != nil {
		return sum, err
	}
	sum.Status, sum.Deriving, err = i.settled(ctx, to, sum.last)
	return sum, err
}

// filesProgress is the path of the progress file, without links, as sources.Find names files.
func (i Import) filesProgress(first string) (string, error) {
	path := i.State
	if path == "" {
		absolute, err := filepath.Abs(first)
		if err != nil {
			return "", fmt.Errorf("name the progress file: %w", err)
		}
		if path, err = i.ownState(absolute); err != nil {
			return "", err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("name the progress file: %w", err)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("name the progress file: %w", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// confirm shows what the files cost, and asks.
func (i Import) confirm(yes bool, e client.Estimate, done importer.FilesTotal) error {
	if err := PrintEstimate(i.Terminal.Out, e); err != nil {
		return err
	}
	if done.Points > 0 {
		_, _ = fmt.Fprintf(i.Terminal.Out, "%s of that were sent by an earlier run\n",
			english.Plural(done.Points, "data point", "data points"))
	}
	open := e.DataPoints - done.Points - len(done.Left)
	if yes || open == 0 {
		return nil
	}
	yes, err := i.Terminal.Ask("Send " + english.Plural(open, "data point", "data points") + "?")
	if err != nil {
		return fmt.Errorf("to send the files, add --yes: %w", err)
	}
	if !yes {
		return errors.New("nothing was sent")
	}
	return nil
}

// send sends what the files became.
func (i Import) send(ctx context.Context, files importer.Files, e client.Estimate) (sum FilesSummary, err error) {
	began, before, size := time.Now(), files.Total(), files.Spool.Bytes()
	bar := i.Terminal.Progress(before.Bytes)
	files.Moved = func(t importer.FilesTotal) {
		bar.Show(terminal.Step{Done: t.Bytes, Total: size, Items: t.Sent, What: "data points"})
	}
	after, err := files.Run(ctx)
	bar.End()
	if err != nil {
		return sum, fmt.Errorf("import stopped after %s of %s data points: %w%s", humanize.Comma(int64(after.Points)),
			humanize.Comma(int64(e.DataPoints)), interrupted(ctx, err), again(err, "run the same command again to go on"))
	}
	sum = FilesSummary{
		Files: len(e.Files), Points: after.Points, Sent: after.Sent, Unchanged: after.SentUnchanged,
		Batches: after.SentBatches, Seconds: time.Since(began).Seconds(), Project: after.ProjectID,
		last: after.LastIngestion, Left: after.Left,
	}
	for _, left := range after.Left {
		if left.Deleted {
			sum.Deleted++
		} else {
			sum.Refused++
		}
	}
	for _, f := range e.Files {
		if f.Skipped != nil {
			sum.Skipped++
		}
	}
	return sum, nil
}

// Print writes the summary as text.
func (s FilesSummary) Print(out io.Writer) {
	rate := int64(float64(s.Sent) / max(s.Seconds, 0.001))
	_, _ = fmt.Fprintf(out, "%s sent in %s in %.1f s (%s/s), %s of them unchanged; %s from %s in all\n",
		english.Plural(s.Sent, "data point", "data points"), english.Plural(s.Batches, "batch", "batches"), s.Seconds,
		humanize.Comma(rate), humanize.Comma(int64(s.Unchanged)), english.Plural(s.Points, "data point", "data points"),
		english.Plural(s.Files-s.Skipped, "file", "files"))
	printLeft(out, s.Deleted, s.Left)
	printDerived(out, s.Status, s.Deriving)
}

// SkippedError is the error of an import that sent all but some files and data points.
type SkippedError struct{ Files, Deleted, Refused int }

func (e *SkippedError) Error() string {
	var parts []string
	if e.Files > 0 {
		parts = append(parts, english.Plural(e.Files, "file was", "files were")+" skipped")
	}
	if e.Deleted > 0 {
		parts = append(parts, english.Plural(e.Deleted, "data point was", "data points were")+" deleted before")
	}
	if e.Refused > 0 {
		parts = append(parts, english.Plural(e.Refused, "data point was", "data points were")+" refused")
	}
	return strings.Join(parts, ", ") + "; the rest was sent"
}

// errLeft is the error of an import that left something out, nil for one that did not.
func errLeft(files, deleted, refused int) error {
	if files+deleted+refused == 0 {
		return nil
	}
	return &SkippedError{files, deleted, refused}
}

// Err is what ends the command after the summary.
func (s FilesSummary) Err() error {
	if err := stoppedSends(s.Status); err != nil {
		return err
	}
	return errLeft(s.Skipped, s.Deleted, s.Refused)
}
