package bleve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

const knownSuffix = ".known"

// handle is one project's index while it is open.
type handle struct {
	// used is when it was last asked for, by the clock of the Index; under the mutex of the Index.
	used uint64
	// life is held for reading by who uses the index, for writing by who opens, closes or removes it.
	life sync.RWMutex
	// index is nil where the project has none yet, or none was opened yet.
	index bleve.Index
	// absent says that the project was looked for and has no index.
	absent bool
	// gone says that the handle was given up: ask for another one.
	gone bool
	// write lets one change of the project happen at a time.
	write sync.Mutex
	// expunging is held by who rewrites the files.
	expunging sync.Mutex
	// columns are of the segments of index.
	columns columns
}

func (h *handle) close() error {
	h.gone = true
	if h.index == nil {
		return nil
	}
	err := h.index.Close()
	h.index = nil
	return err
}

// with calls fn with the index of a project, which stays open until fn returns; with nil where the project has none
// and create is false.
func (x *Index) with(project uuid.UUID, create bool, fn func(h *handle) error) error {
	for {
		h := x.handle(project)
		h.life.RLock()
		switch {
		case h.gone:
			h.life.RUnlock()
			continue
		case h.index == nil && (create || !h.absent):
			h.life.RUnlock()
			if err := x.open(project, h, create); err != nil {
				return err
			}
			continue
		}
		err := fn(h)
		h.life.RUnlock()
		return err
	}
}

// handle is the handle of a project, a new one where there is none. It closes the one that was not used for longest where
// too many are open.
func (x *Index) handle(project uuid.UUID) *handle {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clock++
	h := x.handles[project]
	if h == nil {
		h = new(handle)
		x.handles[project] = h
		x.evict(h)
	}
	h.used = x.clock
	return h
}

// evict closes handles that nobody uses, the longest unused first, until few enough are left.
func (x *Index) evict(keep *handle) {
	for len(x.handles) > x.options.OpenProjects {
		var oldest *handle
		var project uuid.UUID
		for p, h := range x.handles {
			if h == keep || oldest != nil && h.used >= oldest.used {
				continue
			}
			if !h.life.TryLock() {
				continue
			}
			if oldest != nil {
				oldest.life.Unlock()
			}
			oldest, project = h, p
		}
		if oldest == nil {
			return // all are in use: more are open than wished, for a moment
		}
		if err := oldest.close(); err != nil {
			x.options.Log.Error("recall index of a project did not close", "project", project, "err", err)
		}
		delete(x.handles, project)
		oldest.life.Unlock()
	}
}

func (x *Index) path(project uuid.UUID) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return filepath.Join(x.folder, x.generation, project.String())
}

// open opens the index of a project, or with create makes it where there is none.
func (x *Index) open(project uuid.UUID, h *handle, create bool) error {
	h.life.Lock()
	defer h.life.Unlock()
	if h.gone || h.index != nil {
		return nil
	}
	path := x.path(project)
	_, err := os.Stat(path + knownSuffix)
	switch {
	case err == nil:
		index, err := bleve.Open(path)
		if err != nil {
			return x.failed(project, err)
		}
		h.index = index
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("recall index of project %s: %w", project, err)
	case !create:
		h.absent = true
		return nil
	}
	// What stands here without being known was not finished, and holds nothing that was promised.
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("recall index of project %s: %w", project, err)
	}
	index, err := bleve.NewUsing(path, bleve.NewIndexMapping(), scorch.Name, scorch.Name, tuning())
	if err != nil {
		return fmt.Errorf("recall index of project %s: %w", project, err)
	}
	if err := writeDurably(path+knownSuffix, nil); err != nil {
		return errors.Join(fmt.Errorf("recall index of project %s: %w", project, err), index.Close())
	}
	h.index, h.absent = index, false
	return nil
}

// failed judges why an index did not open: a want of the machine passes, anything else is a loss.
func (x *Index) failed(project uuid.UUID, cause error) error {
	for _, want := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EIO} {
		if errors.Is(cause, want) {
			return fmt.Errorf("recall index of project %s: %w", project, cause)
		}
	}
	err := fmt.Errorf("%w: project %s: %w", recallindex.ErrDamaged, project, cause)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.damaged == nil {
		x.damaged = err
		x.options.Log.Error("recall index is damaged and begins anew at the next start", "project", project, "err", cause)
		if voided := x.void(); voided != nil {
			return errors.Join(err, voided)
		}
	}
	return err
}

// drop closes and removes a project.
func (x *Index) drop(project uuid.UUID) error {
	for {
		h := x.handle(project)
		h.life.Lock()
		if h.gone {
			h.life.Unlock()
			continue
		}
		err := h.close()
		// The mark goes first: a folder without it is removed when the project is made again.
		if e := os.Remove(x.path(project) + knownSuffix); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		} else {
			err = errors.Join(err, os.RemoveAll(x.path(project)))
		}
		x.mu.Lock()
		delete(x.handles, project)
		x.mu.Unlock()
		h.life.Unlock()
		return err
	}
}

// tuning is how the segments of an index are merged: as Bleve does by default, but for the floor. Below it segments count as
// equally large; at the default of 2,000 documents a page of a few new ones is merged with nearly all of those again and
// again, which doubled the processor time of a document (20,000 documents in pages of 5: 1,797 µs each, with 50 925 µs).
func tuning() map[string]any {
	return map[string]any{"scorchMergePlanOptions": map[string]any{
		"MaxSegmentsPerTier": 10, "MaxSegmentSize": 5_000_000, "MaxSegmentFileSize": 4 << 30, "TierGrowth": 10.0, "SegmentsPerMergeTask": 10,
		"FloorSegmentSize": 50, "ReclaimDeletesWeight": 2.0,
	}}
}
