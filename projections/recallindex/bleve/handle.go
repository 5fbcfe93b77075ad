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
	// used is when it was last asked for, by the clock of the Index; under the mutex of the Index.
	used uint64
	// life is held for reading by who uses the index, for writing by who opens, closes or removes it.
	life sync.RWMutex
	// index is nil where the slot has none yet, or none was opened yet.
	index bleve.Index
	// absent says that the slot was looked for and has no index.
	absent bool
	// gone says that the handle was given up: ask for another one.
	gone bool
	// write lets one change of the slot happen at a time.
	write sync.Mutex
	// expunging is held by who rewrites the files.
	expunging sync.Mutex
	// columns are of the segments of index.
	columns columns
	// watch is what its goroutines ran into; checked is when its files were right. Both are under life.
	watch   *watch
	checked time.Time
	// counts is about how many documents projects have in a shared slot; under write. What is deleted is not taken off.
	counts map[uuid.UUID]int
}

func (h *handle) close() error {
	h.gone = true
	if h.index == nil {
		return nil
	}
	err := h.index.Close()
	h.index = nil
	h.watch.end()
	return err
}

// with calls fn with the handle of a slot, which stays open until fn returns; its index is nil where the slot has none and
// create is false.
func (x *Index) with(slot string, create bool, fn func(h *handle) error) error {
	for looked := false; ; {
		h := x.handle(slot)
		h.life.RLock()
		switch {
		case h.gone:
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
		// What failed within fn is not called again: it may be done in part.
		before := errors.Is(err, errTrouble) || errors.Is(err, errStopped)
		if err = x.suspect(slot, h, err); !before || !errors.Is(err, errTrouble) || looked {
			return err
		}
		x.options.Log.Warn("files of the recall index could not be merged or written, and are right", "slot", slot, "err", err)
		looked = true
	}
}

// use calls fn with a handle. What the goroutines of the index ran into since it was used last comes first.
func (x *Index) use(h *handle, fn func(h *handle) error) error {
	if h.watch.stopped() {
		return errStopped
	}
	if h.watch.troubled() {
		return errTrouble
	}
	return x.guarded(func() error { return fn(h) })
}

// handle is the handle of a slot, a new one where there is none. It closes the one that was not used for longest where too
// many are open.
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

// evict closes handles that nobody uses, the longest unused first, until few enough are left.
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
			return // all are in use: more are open than wished, for a moment
		}
		if err := oldest.close(); err != nil {
			x.options.Log.Error("slot of the recall index did not close", "slot", slot, "err", err)
		}
		delete(x.handles, slot)
		oldest.life.Unlock()
	}
}

func (x *Index) path(slot string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return filepath.Join(x.folder, x.generation, slot)
}

// open opens the index of a slot, or with create makes it where there is none.
func (x *Index) open(slot string, h *handle, create bool) error {
	h.life.Lock()
	defer h.life.Unlock()
	if h.gone || h.index != nil {
		return nil
	}
	path := x.path(slot)
	_, err := os.Stat(path + knownSuffix)
	switch {
	case err == nil:
		var index bleve.Index
		var moved *moves
		w := newWatch(path)
		err := x.guarded(func() (err error) {
			index, moved, err = openFiles(path)
			return err
		})
		if err != nil {
			w.end()
			return x.failed(slot, h, err)
		}
		h.use(index, moved, w)
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("slot %s of the recall index: %w", slot, err)
	case !create:
		h.absent = true
		return nil
	}
	// What stands here without being known was not finished, and holds nothing that was promised.
	if err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+movesSuffix)); err != nil {
		return fmt.Errorf("slot %s of the recall index: %w", slot, err)
	}
	w := newWatch(path)
	index, err := bleve.NewUsing(path, bleve.NewIndexMapping(), scorch.Name, scorch.Name, tuning())
	if err != nil {
		w.end()
		return fmt.Errorf("slot %s of the recall index: %w", slot, err)
	}
	if err = firstSnapshot(index); err == nil {
		err = writeDurably(path+knownSuffix, nil)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("slot %s of the recall index: %w", slot, err), index.Close())
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
		if h.gone {
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

// removeFiles removes what is on the disk of a slot. The mark goes first: a folder without it is removed when the slot is made again.
func (x *Index) removeFiles(slot string) error {
	path := x.path(slot)
	if err := os.Remove(path + knownSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(path), os.RemoveAll(path+movesSuffix))
}

// tuning is how the segments of an index are merged: as Bleve does by default, but for the floor. Below it segments count as
// equally large; at the default of 2,000 documents a page of a few new ones is merged with nearly all of those again and
// again, which doubled the processor time of a document (20,000 documents in pages of 5: 1,797 µs each, with 50 925 µs).
func tuning() map[string]any {
	return map[string]any{"asyncErrorCallbackName": watchName, "scorchMergePlanOptions": map[string]any{
		"MaxSegmentsPerTier": 10, "MaxSegmentSize": 5_000_000, "MaxSegmentFileSize": 4 << 30, "TierGrowth": 10.0, "SegmentsPerMergeTask": 10,
		"FloorSegmentSize": 50, "ReclaimDeletesWeight": 2.0,
	}}
}
