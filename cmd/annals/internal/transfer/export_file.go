package transfer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/projections/export"
)

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
