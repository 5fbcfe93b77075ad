package bleve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
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

// handle is the Bleve index of one slot while it is open.
type handle struct {
	// used is when the handle was last requested, by the clock of the Index; under the mutex of the
	// Index.
	used uint64
	// life is held for reading by users of the index, for writing by what opens, closes or removes it.
	life sync.RWMutex
	// index is nil if the slot has none, or was not opened yet.
	index bleve.Index
	// absent reports that the slot was looked up and has no index.
	absent bool
	// dropped reports that the handle is invalid: request another one.
	dropped bool
	// write serializes changes of the slot.
	write sync.Mutex
	// expunging serializes rewrites of the files.
	expunging sync.Mutex
	// columns belong to the segments of index.
	columns columns
	// watch holds failures of its goroutines; checked is when its files were last intact. Both are
	// under life.
	watch   *watch
	checked time.Time
	// counts is about how many documents projects have in a shared slot; under write. Deletions are
	// not subtracted.
	counts map[uuid.UUID]int
}

func (h *handle) close() error {
	h.dropped = true
	if h.index == nil {
		return nil
	}
	err := h.index.Close()
	h.index = nil
	h.watch.end()
	return err
}

// with calls fn with the handle of a slot, which stays open until fn returns; its index is nil if
// the slot has none and create is false.
func (x *Index) with(slot string, create bool, fn func(h *handle) error) error {
	for verified := false; ; {
		h := x.handle(slot)
		h.life.RLock()
		switch {
		case h.dropped:
			h.life.RUnlock()
			continue
		case h.index == nil && (create || !h.absent):
			h.life.RUnlock()
			if err := x.open(slot, h, create); err != nil {
				return err
			}
			continue
		}
		err := x.use(h, fn)
		h.life.RUnlock()
		if err == nil {
			return nil
		}
		// Do not call fn again if fn failed: it may have run in part.
		before := errors.Is(err, errBackground) || errors.Is(err, errStopped)
		if err = x.diagnose(slot, h, err); !before || !errors.Is(err, errBackground) || verified {
			return err
		}
		x.options.Log.Warn("recall index could not merge or write files, which are intact; retrying", "slot", slot, "err",
			err)
		verified = true
	}
}

// use calls fn with a handle, unless a goroutine of the index has failed since the last use.
func (x *Index) use(h *handle, fn func(h *handle) error) error {
	if h.watch.stopped() {
		return errStopped
	}
	if h.watch.takeFailed() {
		return errBackground
	}
	return x.recoverPanics(func() error { return fn(h) })
}

// handle returns the handle of a slot, and closes the least recently used one if too many are open.
func (x *Index) handle(slot string) *handle {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clock++
	h := x.handles[slot]
	if h == nil {
		h = new(handle)
		x.handles[slot] = h
		x.evict(h)
	}
	h.used = x.clock
	return h
}

// evict closes unused handles, the least recently used first, until few enough are left. A cache
// library has no notion of a handle that is in use.
func (x *Index) evict(keep *handle) {
	for len(x.handles) > x.options.OpenSlots {
		var oldest *handle
		var slot string
		for name, h := range x.handles {
			if h == keep || oldest != nil && h.used >= oldest.used {
				continue
			}
			if !h.life.TryLock() {
				continue
			}
			if oldest != nil {
				oldest.life.Unlock()
			}
			oldest, slot = h, name
		}
		if oldest == nil {
			return // all are in use: exceed OpenSlots for now
		}
		if err := oldest.close(); err != nil {
			x.options.Log.Error("close of recall index slot failed", "slot", slot, "err", err)
		}
		delete(x.handles, slot)
		oldest.life.Unlock()
	}
}

func (x *Index) path(slot string) string {
	return filepath.Join(x.folder, x.used().name, slot)
}

// open opens the index of a slot, or with create creates it if it does not exist.
func (x *Index) open(slot string, h *handle, create bool) error {
	h.life.Lock()
	defer h.life.Unlock()
	if h.dropped || h.index != nil {
		return nil
	}
	path := x.path(slot)
	_, err := os.Stat(path + knownSuffix)
	switch {
	case err == nil:
		var index bleve.Index
		var moved *moves
		w := newWatch(path)
		err := x.recoverPanics(func() (err error) {
			index, moved, err = openFiles(path)
			return err
		})
		if err != nil {
			w.end()
			return x.openFailed(slot, h, err)
		}
		h.use(index, moved, w)
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("open slot %s of recall index: %w", slot, err)
	case !create:
		h.absent = true
		return nil
	}
	// Files without the known mark are from a creation that did not finish.
	if err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+movesSuffix)); err != nil {
		return fmt.Errorf("open slot %s of recall index: %w", slot, err)
	}
	w := newWatch(path)
	index, err := bleve.NewUsing(path, bleve.NewIndexMapping(), scorch.Name, scorch.Name, tuning())
	if err != nil {
		w.end()
		return fmt.Errorf("open slot %s of recall index: %w", slot, err)
	}
	if err = firstSnapshot(index); err == nil {
		err = writeDurably(path+knownSuffix, nil)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open slot %s of recall index: %w", slot, err), index.Close())
	}
	h.use(index, &moves{of: map[moveKey]uuid.UUID{}, path: path + movesSuffix}, w)
	if project, alone := projectOf(slot); alone {
		x.mu.Lock()
		x.owns[project] = true
		x.mu.Unlock()
	}
	return nil
}

func (h *handle) use(index bleve.Index, moves *moves, w *watch) {
	h.index, h.absent, h.watch = index, false, w
	h.counts, h.columns.moves = map[uuid.UUID]int{}, moves
}

// remove closes a slot and removes its files.
func (x *Index) remove(slot string) error {
	for {
		h := x.handle(slot)
		h.life.Lock()
		if h.dropped {
			h.life.Unlock()
			continue
		}
		err := errors.Join(h.close(), x.removeFiles(slot))
		x.mu.Lock()
		delete(x.handles, slot)
		x.mu.Unlock()
		h.life.Unlock()
		return err
	}
}

// removeFiles removes the files of a slot, the known mark first: files without it are removed when
// the slot is created again.
func (x *Index) removeFiles(slot string) error {
	path := x.path(slot)
	if err := os.Remove(path + knownSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(path), os.RemoveAll(path+movesSuffix))
}

// maxSegmentSize is the most documents of a segment that a merge makes.
const maxSegmentSize = 5_000_000

// tuning configures the merge of segments: Bleve's defaults except the floor. Segments smaller than
// the floor count as equal. With the default of 2,000 documents, a page of a few new ones is merged
// with nearly all small segments each time, which doubled the processor time of a document (20,000
// documents in pages of 5: 1,797 µs each, with 50 925 µs).
func tuning() map[string]any {
	return map[string]any{"asyncErrorCallbackName": watchName, "scorchMergePlanOptions": map[string]any{
		"MaxSegmentsPerTier": 10, "MaxSegmentSize": maxSegmentSize, "MaxSegmentFileSize": 4 << 30, "TierGrowth": 10.0, "SegmentsPerMergeTask": 10,
		"FloorSegmentSize": 50, "ReclaimDeletesWeight": 2.0,
	}}
}

// Bleve merges and writes files in background goroutines, and reports their failures to a callback
// that the configuration of an index names. watchName is the name of onBackgroundError.
const watchName = "annals"

// registerCallback must run before any index is opened: from then on Bleve only reads the names.
var registerCallback = sync.OnceFunc(func() { scorch.RegistryAsyncErrorCallbacks[watchName] = onBackgroundError })

// watches are those of open indexes, by the folder of their files.
var watches sync.Map

// watch holds the failures of the goroutines of an open index.
type watch struct {
	path string
	// failed is set by every failure, and cleared by takeFailed.
	failed atomic.Bool
	// stop is closed once a goroutine has ended: waiting for it would never return.
	stop chan struct{}
	once sync.Once
}

func newWatch(path string) *watch {
	w := &watch{path: filepath.Join(path, "store"), stop: make(chan struct{})}
	watches.Store(w.path, w)
	return w
}

// end ends a watch. w may be nil.
func (w *watch) end() {
	if w != nil {
		watches.CompareAndDelete(w.path, w)
	}
}

// onBackgroundError receives the failures of all indexes.
func onBackgroundError(err error, path string) {
	found, open := watches.Load(path)
	if w, ok := found.(*watch); open && ok {
		w.failed.Store(true)
		if errors.Is(err, scorch.ErrAsyncPanic) {
			w.once.Do(func() { close(w.stop) })
		}
	}
}

// stopped reports whether a goroutine has ended.
func (w *watch) stopped() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// takeFailed reports whether something failed since its last call.
func (w *watch) takeFailed() bool { return w != nil && w.failed.CompareAndSwap(true, false) }

// errStopped reports an index that writes nothing any more.
var errStopped = errors.New("a goroutine of the index ended")

// errBackground reports an index whose goroutines failed.
var errBackground = errors.New("files of the index could not be merged or written")

// batch writes a batch. It also returns if the goroutine that should write it ends.
func (h *handle) batch(b *bleve.Batch) error {
	done := make(chan error, 1)
	index := h.index
	b.SetInternal(stampKey, stamp())
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- errStopped
			}
		}()
		done <- index.Batch(b)
	}()
	select {
	case err := <-done:
		return err
	case <-h.watch.stop:
		return errStopped
	}
}
