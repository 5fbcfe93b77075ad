package bleve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// Options configure an index. The zero value has defaults.
type Options struct {
	// OpenSlots is the most slots that are open at a time; 0 means 32. Each takes some goroutines and
	// files.
	OpenSlots int
	// Batch is the most documents that are written at once; 0 means 4000. It is fewer of long ones.
	Batch int
	// OwnFrom is from how many documents in a shared slot a project gets its own; 0 means 20,000.
	OwnFrom int
	// QuietFor is how long a slot was not written before its segments are merged to few; 0 means half a second.
	QuietFor time.Duration
	// Analysis is the version of the analysis of new generations; 0 means that of recall.NewAnalyzer.
	Analysis int
	Log      *slog.Logger
}

// Index implements recallindex.Index on files under one folder:
//
//	CURRENT            the generation in use
//	NEXT               the shadow, if there is one
//	<generation>/<slot>/        one Bleve index
//	<generation>/<slot>.known   the slot was created: a missing slot is a loss
//	<generation>/<slot>.moves   audiences of data points that were moved
//	<generation>/<slot>.lost    the slot lost its documents; up to where it is refilled
//
// A slot is shared by all small projects, or is the own slot of a big one. What a project had in a
// shared slot when it got its own stays there, and a search reads both.
type Index struct {
	folder  string
	options Options

	// calls is held for reading by every call, for writing by what closes or replaces all slots.
	calls  sync.RWMutex
	closed bool // guarded by calls

	// isShadow reports that the generation is a shadow, built for the Index whose next this is.
	isShadow bool

	mu         sync.Mutex
	generation generation
	next       *Index
	// damaged is why a shadow is unusable.
	damaged error
	// handles are the open slots, and those being opened; clock orders their use.
	handles map[string]*handle
	clock   uint64
	// owns are the projects with an own slot.
	owns map[uuid.UUID]bool
	// losses are the lost slots, until they are refilled.
	losses map[string]loss
	// writes counts changes since slots were expunged.
	writes map[string]writeCount

	activity   activity
	compaction compaction
}

var _ recallindex.Index = (*Index)(nil)

// Open opens the index in a folder, which it creates. A generation of another analysis stays in use
// until a shadow is promoted. If the folder is new, incomplete, unreadable or of another format, Open
// begins an empty generation and removes what was there.
func Open(folder string, options Options) (*Index, error) {
	options.OpenSlots = cmp.Or(options.OpenSlots, 2*sharedSlots)
	options.OwnFrom = cmp.Or(options.OwnFrom, ownFrom)
	options.Batch = cmp.Or(options.Batch, 4000)
	options.QuietFor = cmp.Or(options.QuietFor, quietFor)
	options.Analysis = cmp.Or(options.Analysis, recall.NewAnalyzer().Version())
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	registerCallback()
	RegisterPacking()
	x := &Index{
		folder: folder, options: options, handles: map[string]*handle{}, owns: map[uuid.UUID]bool{},
		losses: map[string]loss{}, writes: map[string]writeCount{},
	}
	generation, err := x.named(currentFile)
	if err != nil {
		if !errors.Is(err, errNoGeneration) {
			options.Log.Warn("recall index begins an empty generation", "folder", folder, "reason", err)
		}
		if generation, err = x.begin(currentFile); err != nil {
			return nil, fmt.Errorf("recall index: %w", err)
		}
	}
	x.generation = generation
	if err := errors.Join(x.dropOtherGenerations(), x.loadSlots()); err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	return x, nil
}

// Generation implements recallindex.Index.
func (x *Index) Generation() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.generation.target()
}

// Analysis implements recallindex.Index.
func (x *Index) Analysis() int { return x.used().analysis }

// used returns the generation in use. During a call it does not change.
func (x *Index) used() generation {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.generation
}

// Close implements recallindex.Index.
func (x *Index) Close() error {
	x.compaction.close()
	x.calls.Lock()
	defer x.calls.Unlock()
	x.closed = true
	x.closeNext(context.Background())
	return x.closeAll()
}

// Reset implements recallindex.Index.
func (x *Index) Reset(ctx context.Context) error {
	defer x.lockCalls()()
	if x.closed {
		return recallindex.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.closeAll(); err != nil {
		x.options.Log.WarnContext(ctx, "close of recall index before reset failed", "err", err)
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
	clear(x.writes)
	if err := x.dropOtherGenerations(); err != nil {
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

// beginCall begins a call; if it returns nil, the caller must call endCall.
func (x *Index) beginCall(ctx context.Context) error {
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

func (x *Index) endCall() { x.calls.RUnlock() }
