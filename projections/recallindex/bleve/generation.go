package bleve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// format is part of every generation: an index whose documents mean something else is another generation.
// Raise it whenever the analysis of text, or the mapping, changes.
const format = "6"

// currentFile names the generation in use, nextFile one that is built beside it.
const (
	currentFile = "CURRENT"
	nextFile    = "NEXT"
)

// current is the generation that stands in the folder, or why none can be used.
func (x *Index) current() (string, error) { return x.named(currentFile) }

// named is the generation that a file names, or why it cannot be used.
func (x *Index) named(file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(x.folder, file))
	if errors.Is(err, os.ErrNotExist) {
		return "", errNone
	}
	if err != nil {
		return "", err
	}
	generation := strings.TrimSpace(string(data))
	version, id, ok := strings.Cut(generation, "-")
	if !ok || version != format {
		return "", fmt.Errorf("generation %q is of another format", generation)
	}
	if _, err := uuid.Parse(id); err != nil {
		return "", fmt.Errorf("generation %q is unreadable", generation)
	}
	if _, err := os.ReadDir(filepath.Join(x.folder, generation)); err != nil {
		return "", err
	}
	return generation, nil
}

// begin makes a new, empty generation, which a file names from now on.
func (x *Index) begin(file string) (string, error) {
	generation := format + "-" + uuid.NewString()
	if err := os.Mkdir(filepath.Join(x.folder, generation), 0o700); err != nil {
		return "", err
	}
	if err := writeDurably(filepath.Join(x.folder, file), []byte(generation+"\n")); err != nil {
		return "", err
	}
	return generation, nil
}

// sweep removes what earlier generations left. One that a rebuild made stays until it is adopted or discarded.
func (x *Index) sweep() error {
	next, err := x.named(nextFile)
	if err != nil {
		next = nextFile // there is none, or it is of no use: it goes
	}
	entries, err := os.ReadDir(x.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != currentFile && name != x.generation && name != next && (name != nextFile || next == nextFile) {
			if err := os.RemoveAll(filepath.Join(x.folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDurably replaces a file so that after a crash either the old or the new one is there.
func writeDurably(path string, data []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolderOf(path string) error { return syncFolder(filepath.Dir(path)) }

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// errNone is a folder without an index, as at the first start.
var errNone = errors.New("the folder holds none")
