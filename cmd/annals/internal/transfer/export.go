package transfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/fsx"
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

// exportState is the progress of an export. It is written next to the lines, after they are synced.
type exportState struct {
	Version   int       `json:"version"`
	ProjectID uuid.UUID `json:"projectId"`
	Memories  bool      `json:"withMemories"`
	// AsOf is the time that the export shows.
	AsOf time.Time `json:"asOf"`
	// After is the place of the last line, nil before the first one.
	After *export.Place `json:"after"`
	// Offset is the end of the complete lines, Sum their SHA-256.
	Offset int64  `json:"offset"`
	Sum    string `json:"sha256"`
	// Points and MemoryLines count the lines, Audiences those of the data points of each audience.
	Points      int             `json:"points"`
	MemoryLines int             `json:"memories"`
	Audiences   map[string]bool `json:"audiences"`
}

const exportStateVersion = 1

// saveEvery is how many bytes of lines are written between two saves.
const saveEvery = 8 << 20

// exportFile is the file of an export. Its lines are in FILE.part until it is complete, and its progress is in
// FILE.progress. A crash leaves lines after the last saved mark, which the next run cuts off.
type exportFile struct {
	path  string
	file  *os.File
	out   *bufio.Writer
	sum   hash.Hash
	size  int64
	saved int64
	state exportState
}

func (f *exportFile) part() string     { return f.path + ".part" }
func (f *exportFile) progress() string { return f.path + ".progress" }

// openExport opens the file of an export and returns the progress of an earlier run. isNew is false if there is one.
func openExport(path string) (f *exportFile, isNew bool, err error) {
	f = &exportFile{path: path, sum: sha256.New()}
	if _, err := os.Lstat(path); err == nil {
		return nil, false, fmt.Errorf("%s exists: remove it or name another file", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	text, err := os.ReadFile(f.progress())
	isNew = errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return nil, false, fmt.Errorf("read progress file: %w", err)
	}
	if !isNew {
		if json.Unmarshal(text, &f.state) != nil || f.state.Version != exportStateVersion {
			return nil, false, fmt.Errorf("%s is not a progress file of an export: remove it to begin again", f.progress())
		}
	}
	if f.file, err = os.OpenFile(f.part(), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, fmt.Errorf("open %s: %w", f.part(), err)
	}
	if err := f.toState(); err != nil {
		return nil, false, errors.Join(err, f.file.Close())
	}
	f.out = bufio.NewWriterSize(f.file, 256<<10)
	return f, isNew, nil
}

// toState cuts off what was written after the progress was saved.
func (f *exportFile) toState() error {
	n, err := io.CopyN(f.sum, f.file, f.state.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", f.part(), err)
	}
	if n != f.state.Offset || n > 0 && hex.EncodeToString(f.sum.Sum(nil)) != f.state.Sum {
		return fmt.Errorf("%s has changed since the export stopped: remove it and %s to begin again", f.part(), f.progress())
	}
	f.size, f.saved = n, n
	if err := f.file.Truncate(n); err != nil {
		return fmt.Errorf("cut %s: %w", f.part(), err)
	}
	return nil
}

// Write implements io.Writer.
func (f *exportFile) Write(b []byte) (int, error) {
	n, err := f.out.Write(b)
	_, _ = f.sum.Write(b[:n]) // a hash takes everything
	f.size += int64(n)
	return n, err
}

// mark records that the lines so far are complete, and saves that from time to time.
func (f *exportFile) mark(m export.Mark) error {
	s := &f.state
	s.After, s.Offset = &m.Place, f.size
	s.Points, s.MemoryLines = s.Points+m.Points, s.MemoryLines+m.Memories
	for _, slug := range m.Audiences {
		if s.Audiences == nil {
			s.Audiences = map[string]bool{}
		}
		s.Audiences[slug] = true
	}
	if f.size-f.saved < saveEvery {
		return nil
	}
	return f.save()
}

// save syncs the lines and then writes the progress. The lines end with a mark.
func (f *exportFile) save() error {
	if err := errors.Join(f.out.Flush(), f.file.Sync()); err != nil {
		return fmt.Errorf("write %s: %w", f.part(), err)
	}
	f.state.Version, f.state.Sum = exportStateVersion, hex.EncodeToString(f.sum.Sum(nil))
	text, err := json.MarshalIndent(f.state, "", "  ")
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	f.saved = f.size
	return fsx.WriteFile(f.progress(), append(text, '\n'))
}

// finish gives the complete file its name.
func (f *exportFile) finish() error {
	if err := f.save(); err != nil {
		return err
	}
	if err := errors.Join(f.file.Close(), os.Link(f.part(), f.path)); err != nil { // a link replaces no file
		return fmt.Errorf("name the export: %w", err)
	}
	return errors.Join(os.Remove(f.progress()), os.Remove(f.part()))
}

// PersonExport is the copy of a person by a server of this machine.
type PersonExport struct {
	From    *operatorapi.Client
	Request export.PersonRequest
}

// PersonCopy is what the export of a person prints.
type PersonCopy struct {
	File string `json:"file"`
	export.PersonSummary
}

// Lines writes the lines to out.
func (e PersonExport) Lines(ctx context.Context, out io.Writer) (sum export.PersonSummary, err error) {
	lines := bufio.NewWriterSize(out, 256<<10)
	sum, err = e.From.ExportPerson(ctx, e.Request, lines)
	return sum, errors.Join(interrupted(ctx, err), lines.Flush())
}

// File writes the lines to a new file. A copy that stops leaves none: it shows one time, and is made again.
func (e PersonExport) File(ctx context.Context, path string) (sum PersonCopy, err error) {
	part, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return sum, fmt.Errorf("open the file of a copy: %w", err)
	}
	sum.File = path
	if sum.PersonSummary, err = e.Lines(ctx, part); err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Link(part.Name(), path) // a link replaces no file
	}
	return sum, errors.Join(err, os.Remove(part.Name()))
}

// Print writes the summary as text.
func (c PersonCopy) Print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%s and %s in %s\n", english.Plural(c.Texts, "text", "texts"),
		english.Plural(c.Memories, "memory", "memories"), c.File)
	if err == nil && !c.HasRecord && c.Texts == 0 {
		_, err = fmt.Fprintln(out, "the project holds nothing of this identity: look at how the name is written")
	}
	if c.Naming == nil || err != nil {
		return err
	}
	least := ""
	if c.MoreNaming {
		least = "at least "
	}
	_, err = fmt.Fprintf(out, "texts of others that name the person: %s%d; they are not in it\n", least, *c.Naming)
	return err
}
