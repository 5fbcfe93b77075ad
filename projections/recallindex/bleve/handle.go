package bleve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"
)

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
