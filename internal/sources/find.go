// Package sources finds the files of an import, reads them as text, and groups them into requests.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
)

// File is a file that was found.
type File struct {
	// Name identifies the file in ids. It begins with the last part of the path that was given, so it is
	// the same from every working directory.
	Name string
	// Path is where the file is.
	Path string
	Size int64
	// Skipped is the reason why the file is not read, "" for none.
	Skipped string
}

// Find lists the files of paths, those of folders in the order of their names. Hidden files in folders
// and what is not a regular file are skipped with a reason; hidden folders are one entry.
func Find(paths ...string) ([]File, error) {
	var found []File
	for _, root := range paths {
		whole, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", root, err)
		}
		// A link that is named is followed; those in a folder are not, since they may lead in a circle.
		if whole, err = filepath.EvalSymlinks(whole); err != nil {
			return nil, fmt.Errorf("find files: %w", err)
		}
		base := filepath.Base(strings.TrimRight(root, string(filepath.Separator)))
		if base == "." || base == ".." || base == "" {
			base = filepath.Base(whole)
		}
		files, err := walk(whole, base)
		if err != nil {
			return nil, err
		}
		found = append(found, files...)
	}
	return found, nil
}

func walk(root, base string) (found []File, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := base
		if rest, relErr := filepath.Rel(root, path); relErr == nil && rest != "." {
			name = filepath.ToSlash(filepath.Join(base, rest))
		}
		skipped := func(reason string) { found = append(found, File{Name: name, Path: path, Skipped: reason}) }
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			skipped("cannot be read: " + reasonOf(err))
			return nil
		case path != root && strings.HasPrefix(entry.Name(), "."):
			skipped("is hidden")
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			skipped("is not a regular file")
			return nil
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			skipped("cannot be read: " + reasonOf(err))
		case info.Size() > 2*limit.EstimateFileBytes+2: // UTF-16 takes twice the bytes of ASCII
			skipped(fmt.Sprintf("has %d bytes: want at most %d", info.Size(), limit.EstimateFileBytes))
		default:
			found = append(found, File{Name: name, Path: path, Size: info.Size()})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	return found, nil
}

// reasonOf leaves out the path, which the name of the file shows.
func reasonOf(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// Read reads the text of a file. skipped is the reason why it has none, "" if it has; remark is what is not certain of
// it, nil for nothing.
func (f File) Read(ctx context.Context, kind string) (text, skipped string, remark *estimate.Remark, err error) {
	if f.Skipped != "" {
		return "", f.Skipped, nil, nil
	}
	raw, err := os.ReadFile(f.Path)
	if err != nil {
		return "", "cannot be read: " + reasonOf(err), nil, nil
	}
	text, remark, err = estimate.Text(ctx, f.Name, estimate.Kind(kind), raw)
	if skip, ok := errors.AsType[*estimate.Skip](err); ok {
		return "", skip.Reason, nil, nil
	}
	return text, "", remark, err
}
