package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatFile contains one line, formatName and the number of the format of the log. Folders that
// are older than this file have format 1.
const (
	formatFile = "FORMAT"
	formatName = "annals-log"
	// unfinishedRestore replaces the number while a restore fills the folder.
	unfinishedRestore = "unfinished"
)

// The formats.
//
//	1  events, revisions, states, removals
//	2  the streams that are bounded by number or age are listed (boundedKey)
const newestFormat = 2

// readFormat returns the format of the log of a folder; 0 if there is no log. The engine must not
// have opened the folder: it would begin an empty log if the files of the old one are not as it
// expects.
func readFormat(fs vfs.FS, dir string) (int, error) {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return 0, openError(dir, err)
	}
	text, err := readSmall(fs, fs.PathJoin(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		return formatOfOld(fs, dir, desc.Exists)
	}
	if err != nil {
		return 0, openError(dir, err)
	}
	name, value, _ := strings.Cut(strings.TrimSpace(text), " ")
	if name == formatName && value == unfinishedRestore {
		return 0, fmt.Errorf("data folder %s holds a restore that did not finish: remove the folder and restore again", dir)
	}
	format, err := strconv.Atoi(value)
	switch {
	case name != formatName || err != nil || format < 1:
		return 0, damagedError(dir, fmt.Errorf("the file %s does not hold the number of a format", formatFile))
	case format > newestFormat:
		return 0, newerError(dir, fmt.Sprintf("format %d; this one knows formats up to %d", format, newestFormat))
	case !desc.Exists:
		return 0, damagedError(dir, errors.New("the marker of its manifest is missing"))
	}
	return format, nil
}

// formatOfOld returns the format of a folder without formatFile: it was never used, or is older
// than that file.
func formatOfOld(fs vfs.FS, dir string, exists bool) (int, error) {
	if exists {
		return 1, nil
	}
	names, err := fs.List(dir)
	if err != nil {
		return 0, fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, name := range names {
		if _, isLog := logNumber(name); isLog || strings.HasSuffix(name, ".sst") {
			return 0, damagedError(dir, errors.New("the marker of its manifest is missing"))
		}
	}
	return 0, nil
}

// writeFormat writes the format of a folder: a number, or unfinishedRestore.
func writeFormat(fs vfs.FS, dir, format string) error {
	return writeAtomic(fs, dir, formatFile, []byte(formatName+" "+format+"\n"))
}

// upgrade converts a log to the newest format.
func (s *store) upgrade(from int) error {
	if from == newestFormat {
		return nil
	}
	if from == 1 {
		if err := s.listBounded(); err != nil {
			return fmt.Errorf("bring the log to format %d: %w", newestFormat, err)
		}
	}
	return writeFormat(s.disk.FS, s.disk.dir, strconv.Itoa(newestFormat))
}

// listBounded marks the streams that are bounded.
func (s *store) listBounded() (err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceStream}, UpperBound: []byte{spaceStream + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	batch := s.db.NewBatch()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return errors.Join(err, batch.Close())
		}
		// A state that cannot be read fails the calls of its stream, not the start.
		if state, err := decodeState(value); err != nil || !state.meta.bounded() {
			continue
		}
		if err := batch.Set(boundedKey(string(iter.Key()[1:])), nil, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := iter.Error(); err != nil {
		return errors.Join(err, batch.Close())
	}
	return s.commit(batch)
}

// readSmall reads a file of a few lines.
func readSmall(fs vfs.FS, path string) (_ string, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, 64<<20))
	return string(text), err
}

// writeAtomic replaces a file so that a crash leaves either the old one or the new one.
func writeAtomic(fs vfs.FS, dir, name string, content []byte) error {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fs.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncFolder(fs, dir)
}

func syncFolder(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("fsync %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("fsync %s: %w", dir, err)
	}
	return nil
}
