package bleve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

var _ recallindex.Rebuildable = (*Index)(nil)

// Beside implements recallindex.Rebuildable.
func (x *Index) Beside(ctx context.Context) (recallindex.Index, error) {
	if err := x.Discard(ctx); err != nil {
		return nil, err
	}
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	defer x.leave()
	generation, err := x.begin(nextFile)
	if err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	next := &Index{folder: x.folder, options: x.options, handles: map[string]*handle{}, owns: map[uuid.UUID]bool{}, losses: map[string]loss{}, written: map[string]writing{}, generation: generation, beside: true}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
	return next, nil
}

// Adopt implements recallindex.Rebuildable. The files are durable already: every change of them was.
func (x *Index) Adopt(ctx context.Context, target string) (bool, error) {
	generation, err := x.named(nextFile)
	if errors.Is(err, errNone) || err == nil && "bleve:"+generation != target {
		return false, nil
	}
	if err != nil {
		x.options.Log.WarnContext(ctx, "recall index that was built beside cannot be used", "err", err)
		return false, nil
	}
	before, handles, err := x.replace(ctx, generation)
	if err != nil {
		return false, err
	}
	for slot, h := range handles {
		h.life.Lock()
		if err := h.close(); err != nil {
			x.options.Log.WarnContext(ctx, "slot of the recall index did not close", "slot", slot, "err", err)
		}
		h.life.Unlock()
	}
	// What cannot be removed now is removed at the next start.
	if err := os.RemoveAll(filepath.Join(x.folder, before)); err != nil {
		x.options.Log.WarnContext(ctx, "recall index of before is not removed", "generation", before, "err", err)
	}
	return true, nil
}

// replace waits for the calls that run, and lets those that follow find the new generation.
func (x *Index) replace(ctx context.Context, generation string) (before string, handles map[string]*handle, err error) {
	x.calls.Lock()
	defer x.calls.Unlock()
	if x.closed {
		return "", nil, recallindex.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	// From here on the new one is in use, also for the next process.
	if err := os.Rename(filepath.Join(x.folder, nextFile), filepath.Join(x.folder, currentFile)); err != nil {
		return "", nil, fmt.Errorf("recall index: %w", err)
	}
	if err := syncFolder(x.folder); err != nil {
		return "", nil, fmt.Errorf("recall index: %w", err)
	}
	x.mu.Lock()
	before, handles = x.generation, x.handles
	x.generation, x.damaged, x.handles = generation, nil, map[string]*handle{}
	if next := x.next; next != nil && next.generation == generation {
		x.handles = next.surrender() // its slots are open
	}
	x.next = nil
	x.mu.Unlock()
	if err := x.known(); err != nil {
		return "", nil, fmt.Errorf("recall index: %w", err)
	}
	return before, handles, nil
}

// surrender closes an Index that was built beside, and answers its open slots.
func (x *Index) surrender() map[string]*handle {
	x.calls.Lock()
	defer x.calls.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	handles := x.handles
	x.handles = map[string]*handle{}
	for _, h := range handles {
		h.used = 0
	}
	return handles
}

// Discard implements recallindex.Rebuildable.
func (x *Index) Discard(ctx context.Context) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	x.mu.Lock()
	next := x.next
	x.next = nil
	x.mu.Unlock()
	if next != nil {
		if err := next.Close(); err != nil {
			x.options.Log.WarnContext(ctx, "recall index that was built beside did not close", "err", err)
		}
	}
	data, err := os.ReadFile(filepath.Join(x.folder, nextFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	if err := os.Remove(filepath.Join(x.folder, nextFile)); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	if name := strings.TrimSpace(string(data)); name == filepath.Base(name) && strings.HasPrefix(name, format+"-") {
		if err := os.RemoveAll(filepath.Join(x.folder, name)); err != nil {
			return fmt.Errorf("recall index: %w", err)
		}
	}
	return nil
}
