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
	// Batch is the most documents that are written at once; 0 means 4000. Of long ones it is fewer.
	Batch int
	Log   *slog.Logger
}

// Index implements recallindex.Index on files under one folder:
//
//	CURRENT            the generation that is in use
//	NEXT               the generation that is built beside it, where one is
//	<generation>/<project>/   one Bleve index
//	<generation>/<project>.known   says that the project's index was made: without it, a missing one is a loss
type Index struct {
	folder  string
	options Options

	// calls is held for reading by every call, for writing by what ends or replaces all projects.
	calls  sync.RWMutex
	closed bool // under calls

	// beside says that the generation is built beside the one in use, by the Index whose next this is.
	beside bool

	mu         sync.Mutex
	generation string
	next       *Index
	damaged    error
	// handles are the open projects, and those being opened; clock orders their use.
	handles map[uuid.UUID]*handle
	clock   uint64
}

var _ recallindex.Index = (*Index)(nil)

// Open opens the index in a folder, which it makes. Where the folder is new, incomplete or cannot be read, a new and
// empty generation begins, and what was there is removed.
func Open(folder string, options Options) (*Index, error) {
	if options.OpenProjects == 0 {
		options.OpenProjects = 64
	}
	if options.Batch == 0 {
		options.Batch = 4000
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
		if !errors.Is(err, errNone) {
			options.Log.Warn("recall index begins anew", "folder", folder, "reason", err)
		}
		if generation, err = x.begin(currentFile); err != nil {
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
func (x *Index) Generation() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return "bleve:" + x.generation
}

// Close implements recallindex.Index.
func (x *Index) Close() error {
	x.calls.Lock()
	defer x.calls.Unlock()
	x.closed = true
	return x.closeAll()
}

// Reset implements recallindex.Index.
func (x *Index) Reset(ctx context.Context) error {
	x.calls.Lock()
	defer x.calls.Unlock()
	if x.closed {
		return recallindex.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.closeAll(); err != nil {
		x.options.Log.WarnContext(ctx, "recall index did not close before it begins anew", "err", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	generation, err := x.begin(currentFile)
	if err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	x.generation, x.damaged = generation, nil
	if err := x.sweep(); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	return nil
}

// closeAll closes every project, while no call runs.
func (x *Index) closeAll() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for project, h := range x.handles {
		errs = append(errs, h.close())
		delete(x.handles, project)
	}
	return errors.Join(errs...)
}

// enter begins a call; where it returns nil the caller must leave.
func (x *Index) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.calls.RLock()
	if x.closed {
		x.calls.RUnlock()
		return recallindex.ErrClosed
	}
	return nil
}

func (x *Index) leave() { x.calls.RUnlock() }

// DropProject implements recallindex.Index.
func (x *Index) DropProject(ctx context.Context, project uuid.UUID) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	return x.drop(project)
}
