package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/projections/export"
)

// Export is an export of a project by a server of this machine.
type Export struct {
	From     *operatorapi.Client
	Request  export.Request
	Terminal terminal.Streams
}

// ExportSummary is what an export prints.
type ExportSummary struct {
	File     string    `json:"file"`
	Points   int       `json:"points"`
	Memories int       `json:"memories"`
	Bytes    int64     `json:"bytes"`
	Seconds  float64   `json:"seconds"`
	AsOf     time.Time `json:"asOf"`
	// Audiences are the slugs that a project needs before the file is imported.
	Audiences []string `json:"audiences"`
}

// Lines writes the lines to out.
func (e Export) Lines(ctx context.Context, out io.Writer) error {
	lines := bufio.NewWriterSize(out, 256<<10)
	mark := func(export.Mark) error { return lines.Flush() }
	return e.From.Export(ctx, e.Request, lines, func(export.Began) error { return nil }, mark)
}

// File writes the lines to a file, and continues an export to it that stopped.
func (e Export) File(ctx context.Context, path string) (sum ExportSummary, err error) {
	file, isNew, err := openExport(path)
	if err != nil {
		return sum, err
	}
	if !isNew {
		if file.state.Memories != e.Request.Memories {
			return sum, errors.Join(
				fmt.Errorf("the export that stopped was made with --memories=%t: use the same, or remove %s",
					file.state.Memories, file.progress()), file.file.Close())
		}
		e.Request.From = &export.From{AsOf: file.state.AsOf, After: file.state.After}
	}
	sum, err = e.write(ctx, file)
	if err != nil {
		return sum, errors.Join(fmt.Errorf("export stopped after %s: %w; run the same command again to go on",
			english.Plural(file.state.Points, "data point", "data points"), interrupted(ctx, err)), file.file.Close())
	}
	return sum, nil
}

func (e Export) write(ctx context.Context, file *exportFile) (sum ExportSummary, err error) {
	start, before := time.Now(), file.state.Points
	bar := e.Terminal.Progress(file.size)
	defer bar.End()
	began := func(b export.Began) error {
		if e.Request.From != nil {
			if file.state.ProjectID != b.ProjectID {
				return fmt.Errorf("%s is the progress of an export of another project: remove it, or name another file",
					file.progress())
			}
			return nil
		}
		file.state.ProjectID, file.state.AsOf, file.state.Memories = b.ProjectID, b.AsOf, e.Request.Memories
		return file.save()
	}
	mark := func(m export.Mark) error {
		err := file.mark(m)
		bar.Show(terminal.Step{Items: file.state.Points - before, What: "data points"})
		return err
	}
	if err := e.From.Export(ctx, e.Request, file, began, mark); err != nil {
		return sum, err
	}
	s := file.state
	sum = ExportSummary{
		File: file.path, Points: s.Points, Memories: s.MemoryLines, Bytes: file.size, Seconds: time.Since(start).Seconds(),
		AsOf: s.AsOf, Audiences: slices.Sorted(maps.Keys(s.Audiences)),
	}
	return sum, file.finish()
}

// Print writes the summary as text.
func (s ExportSummary) Print(out io.Writer) error {
	text := english.Plural(s.Points, "data point", "data points")
	if s.Memories > 0 {
		text += " and " + english.Plural(s.Memories, "memory", "memories")
	}
	_, err := fmt.Fprintf(out, "%s in %s (%s, %.1f s)\n", text, s.File, humanize.IBytes(uint64(s.Bytes)), s.Seconds)
	if len(s.Audiences) > 0 && err == nil {
		_, err = fmt.Fprintf(out, "create these audiences before you import it: %s\n", strings.Join(s.Audiences, ", "))
	}
	return err
}
