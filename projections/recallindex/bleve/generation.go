package bleve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// format is how a generation keeps documents. Raise it with every change of the mapping or of the documents: a
// generation of another format is dropped.
const format = 9

// generation is one build of the index. Its name, which is that of its folder, begins with its format
// and the version of its analysis.
type generation struct {
	name     string
	analysis int
}

// target is the name of the generation outside this package.
func (g generation) target() string { return "bleve:" + g.name }

func newGeneration(analysis int) generation {
	return generation{name: fmt.Sprintf("%d.%d-%s", format, analysis, uuid.NewString()), analysis: analysis}
}

// parseGeneration parses the name of a generation.
func parseGeneration(name string) (generation, error) {
	versions, id, _ := strings.Cut(name, "-")
	of, analysis, _ := strings.Cut(versions, ".")
	if n, err := strconv.Atoi(of); err == nil && n != format {
		return generation{}, fmt.Errorf("generation %q is of another format", name)
	}
	g := generation{name: name}
	var err error
	if g.analysis, err = strconv.Atoi(analysis); err == nil {
		_, err = uuid.Parse(id)
	}
	if err != nil || of != strconv.Itoa(format) {
		return generation{}, fmt.Errorf("generation %q is unreadable", name)
	}
	return g, nil
}

// currentFile names the generation in use, nextFile the shadow.
const (
	currentFile = "CURRENT"
	nextFile    = "NEXT"
)

// named returns the generation that a file names, or why it cannot be used.
func (x *Index) named(file string) (generation, error) {
	data, err := os.ReadFile(filepath.Join(x.folder, file))
	if errors.Is(err, os.ErrNotExist) {
		return generation{}, errNoGeneration
	}
	if err != nil {
		return generation{}, err
	}
	g, err := parseGeneration(strings.TrimSpace(string(data)))
	if err != nil {
		return generation{}, err
	}
	if _, err := os.ReadDir(filepath.Join(x.folder, g.name)); err != nil {
		return generation{}, err
	}
	return g, nil
}

// begin creates an empty generation and makes a file name it.
func (x *Index) begin(file string) (generation, error) {
	g := newGeneration(x.options.Analysis)
	if err := os.Mkdir(filepath.Join(x.folder, g.name), 0o700); err != nil {
		return generation{}, err
	}
	if err := writeDurably(filepath.Join(x.folder, file), []byte(g.name+"\n")); err != nil {
		return generation{}, err
	}
	return g, nil
}

// dropOtherGenerations removes all generations but the current one and a shadow that may still be
// promoted.
func (x *Index) dropOtherGenerations() error {
	next, err := x.named(nextFile)
	if err != nil {
		next.name = nextFile // there is none, or it is unusable and removed
	}
	entries, err := os.ReadDir(x.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != currentFile && name != x.generation.name && name != next.name &&
			(name != nextFile || next.name == nextFile) {
			if err := os.RemoveAll(filepath.Join(x.folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDurably replaces a file: after a crash either the old or the new content is there.
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

// errNoGeneration reports a folder without an index, as at the first start.
var errNoGeneration = errors.New("no generation")
