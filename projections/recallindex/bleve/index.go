// Package bleve is the recall index on one machine: a Bleve index per project in the data folder.
package bleve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// Options of an index. The zero value has defaults.
type Options struct {
	// OpenProjects is the most projects whose files are open at a time; 0 means 64. Each takes some goroutines and files.
	OpenProjects int
	// Batch is the most documents that are written at once; 0 means 1000.
	Batch int
	Log   *slog.Logger
}

// Index implements recallindex.Index on files under one folder:
//
//	CURRENT            the generation that is in use
//	<generation>/<project>/   one Bleve index
//	<generation>/<project>.known   says that the project's index was made: without it, a missing one is a loss
type Index struct {
	folder  string
	options Options

	mu         sync.Mutex
	generation string
	closed     bool
	damaged    error
	// handles are the open projects, and those being opened; clock orders their use.
	handles map[uuid.UUID]*handle
	clock   uint64
	// calls counts what runs, so that Close can wait for it.
	calls sync.WaitGroup
}

var _ recallindex.Index = (*Index)(nil)

// Open opens the index in a folder, which it makes. Where the folder is new, incomplete or cannot be read, a new and
// empty generation begins, and what was there is removed.
func Open(folder string, options Options) (*Index, error) {
	if options.OpenProjects == 0 {
		options.OpenProjects = 64
	}
	if options.Batch == 0 {
		options.Batch = 1000
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	x := &Index{folder: folder, options: options, handles: make(map[uuid.UUID]*handle)}
	generation, err := x.current()
	if err != nil {
		options.Log.Warn("recall index begins anew", "folder", folder, "reason", err)
		if generation, err = x.begin(); err != nil {
			return nil, fmt.Errorf("recall index: %w", err)
		}
	}
	x.generation = generation
	if err := x.sweep(); err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	return x, nil
}

// Generation implements recallindex.Index.
func (x *Index) Generation() string { return "bleve:" + x.generation }

// Close implements recallindex.Index.
func (x *Index) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	x.mu.Unlock()
	x.calls.Wait()

	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for project, h := range x.handles {
		h.life.Lock()
		errs = append(errs, h.close())
		h.life.Unlock()
		delete(x.handles, project)
	}
	return errors.Join(errs...)
}

// DropProject implements recallindex.Index.
func (x *Index) DropProject(ctx context.Context, project uuid.UUID) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.calls.Done()
	return x.drop(project)
}
