// Package bleve is the recall index on one machine: some Bleve indexes in the data folder, which small projects share.
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
	// OpenSlots is the most slots whose files are open at a time; 0 means 32. Each takes some goroutines and files.
	OpenSlots int
	// Batch is the most documents that are written at once; 0 means 4000. Of long ones it is fewer.
	Batch int
	// OwnFrom is how many documents a project has among others before it gets a slot of its own; 0 means 20,000.
	OwnFrom int
	Log     *slog.Logger
}

// Index implements recallindex.Index on files under one folder:
//
//	CURRENT            the generation that is in use
//	NEXT               the generation that is built beside it, where one is
//	<generation>/<slot>/        one Bleve index
//	<generation>/<slot>.known   says that the slot was made: without it, a missing one is a loss
//	<generation>/<slot>.moves   audiences of data points that were moved
//	<generation>/<slot>.lost    says that the slot lost its documents, and up to where it was filled again
//
// A slot is one of those that all projects share, or belongs to a big project alone. What a project had among others when it got
// its own stays there: its documents are in both, and a search reads both.
type Index struct {
	folder  string
	options Options

	// calls is held for reading by every call, for writing by what ends or replaces all slots.
	calls  sync.RWMutex
	closed bool // under calls

	// beside says that the generation is built beside the one in use, by the Index whose next this is.
	beside bool

	mu         sync.Mutex
	generation string
	next       *Index
	// damaged is why an index that is built beside is of no use.
	damaged error
	// handles are the open slots, and those being opened; clock orders their use.
	handles map[string]*handle
	clock   uint64
	// owns are the projects that have a slot of their own.
	owns map[uuid.UUID]bool
	// losses are the slots that lost their documents, until they are whole again.
	losses map[string]loss
	// written is what changed since slots were expunged.
	written map[string]writing
}

var _ recallindex.Index = (*Index)(nil)

// Open opens the index in a folder, which it makes. Where the folder is new, incomplete or cannot be read, a new and
// empty generation begins, and what was there is removed.
func Open(folder string, options Options) (*Index, error) {
	if options.OpenSlots == 0 {
		options.OpenSlots = 2 * sharedSlots
	}
	if options.OwnFrom == 0 {
		options.OwnFrom = ownFrom
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
	watchAll()
	x := &Index{folder: folder, options: options, handles: map[string]*handle{}, owns: map[uuid.UUID]bool{}, losses: map[string]loss{}, written: map[string]writing{}}
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
	if err := errors.Join(x.sweep(), x.known()); err != nil {
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
	clear(x.owns)
	clear(x.losses)
	clear(x.written)
	if err := x.sweep(); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	return nil
}

// closeAll closes every slot, while no call runs.
func (x *Index) closeAll() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for slot, h := range x.handles {
		errs = append(errs, h.close())
		delete(x.handles, slot)
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
