// Package sources finds the files of an import, reads them as text, and groups them into requests.
package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	client "github.com/annals-project/annals/client"
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

// requestBytes is the size from which files go into the next request. A single file may exceed it.
const requestBytes = 64 << 20

// Request is the files of one call, and those that were left out.
type Request struct {
	Files   []client.EstimateFile
	Skipped []client.EstimatedFile
	// Remarks are what is not certain of the texts of Files, by their places.
	Remarks map[int]client.EstimateRemark
}

// Requests reads files and groups them in their order, so that each request is within the limits of the
// API. It holds the texts of one request in memory. The last request may have no files.
func Requests(ctx context.Context, files []File, kind string) iter.Seq2[Request, error] {
	return requests(ctx, files, kind, limit.EstimateFiles, requestBytes)
}

func requests(ctx context.Context, files []File, kind string, mostFiles, mostBytes int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var r Request
		size := 0
		for _, f := range files {
			text, skipped, remark, err := f.Read(ctx, kind)
			if err != nil {
				yield(Request{}, err)
				return
			}
			if skipped != "" {
				r.Skipped = append(r.Skipped, client.EstimatedFile{
					Path: f.Name, Skipped: &skipped, Remarks: []client.EstimateRemark{},
				})
				continue
			}
			encoded, err := json.Marshal(text)
			if err != nil {
				yield(Request{}, fmt.Errorf("encode %s: %w", f.Name, err))
				return
			}
			if len(r.Files) == mostFiles || len(r.Files) > 0 && size+len(encoded) > mostBytes {
				if !yield(r, nil) {
					return
				}
				r, size = Request{}, 0
			}
			if remark != nil {
				if r.Remarks == nil {
					r.Remarks = map[int]client.EstimateRemark{}
				}
				r.Remarks[len(r.Files)] = client.EstimateRemark{Code: string(remark.Code), Count: remark.Count, Text: remark.Text}
			}
			r.Files = append(r.Files, client.EstimateFile{Path: f.Name, Content: text, Kind: kind})
			size += len(encoded) + len(f.Name)
		}
		if len(r.Files)+len(r.Skipped) > 0 {
			yield(r, nil)
		}
	}
}
