package bleve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// formatVersion is part of every generation. Raise it with every change of the analysis of text, or
// of the mapping: an index of another version is dropped.
const formatVersion = "6"

// currentFile names the generation in use, nextFile the shadow.
const (
	currentFile = "CURRENT"
	nextFile    = "NEXT"
)

// current returns the generation in use, or why it cannot be used.
func (x *Index) current() (string, error) { return x.named(currentFile) }

// named returns the generation that a file names, or why it cannot be used.
func (x *Index) named(file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(x.folder, file))
	if errors.Is(err, os.ErrNotExist) {
		return "", errNoGeneration
	}
	if err != nil {
		return "", err
	}
	generation := strings.TrimSpace(string(data))
	version, id, ok := strings.Cut(generation, "-")
	if !ok || version != formatVersion {
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

// begin creates an empty generation and makes a file name it.
func (x *Index) begin(file string) (string, error) {
	generation := formatVersion + "-" + uuid.NewString()
	if err := os.Mkdir(filepath.Join(x.folder, generation), 0o700); err != nil {
		return "", err
	}
	if err := writeDurably(filepath.Join(x.folder, file), []byte(generation+"\n")); err != nil {
		return "", err
	}
	return generation, nil
}

// dropOtherGenerations removes all generations but the current one and a shadow that may still be
// promoted.
func (x *Index) dropOtherGenerations() error {
	next, err := x.named(nextFile)
	if err != nil {
		next = nextFile // there is none, or it is unusable and removed
	}
	entries, err := os.ReadDir(x.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != currentFile && name != x.generation && name != next &&
			(name != nextFile || next == nextFile) {
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
