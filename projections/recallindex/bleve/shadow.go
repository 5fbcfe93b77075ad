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

// NewShadow implements recallindex.Rebuildable.
func (x *Index) NewShadow(ctx context.Context) (recallindex.Index, error) {
	if err := x.Discard(ctx); err != nil {
		return nil, err
	}
	if err := x.beginCall(ctx); err != nil {
		return nil, err
	}
	defer x.endCall()
	generation, err := x.begin(nextFile)
	if err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	return x.shadow(generation), nil
}

// shadow returns the Index of a generation that is built.
func (x *Index) shadow(g generation) *Index {
	next := &Index{
		folder: x.folder, options: x.options, handles: map[string]*handle{}, owns: map[uuid.UUID]bool{},
		losses: map[string]loss{}, writes: map[string]writeCount{}, generation: g, isShadow: true,
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
	return next
}

// ResumeShadow implements recallindex.Rebuildable.
func (x *Index) ResumeShadow(ctx context.Context, target string) (recallindex.Index, bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return nil, false, err
	}
	defer x.endCall()
	x.closeNext(ctx)
	generation, err := x.named(nextFile)
	if errors.Is(err, errNoGeneration) || err == nil && generation.target() != target {
		return nil, false, nil
	}
	if err != nil {
		x.options.Log.WarnContext(ctx, "recall index shadow is unusable", "err", err)
		return nil, false, nil
	}
	next := x.shadow(generation)
	err = next.loadSlots()
	if err == nil && next.damage() == nil && len(next.Losses()) == 0 {
		return next, true, nil
	}
	x.options.Log.WarnContext(ctx, "recall index shadow lost documents", "err", errors.Join(err, next.damage()))
	x.closeNext(ctx)
	return nil, false, nil
}

// closeNext closes the shadow, if there is one.
func (x *Index) closeNext(ctx context.Context) {
	x.mu.Lock()
	next := x.next
	x.next = nil
	x.mu.Unlock()
	if next == nil {
		return
	}
	if err := next.Close(); err != nil {
		x.options.Log.WarnContext(ctx, "close of recall index shadow failed", "err", err)
	}
}

// Promote implements recallindex.Rebuildable. The files are durable already. The end of a rebuild and
// the next lease of the projection may promote one generation at the same time.
func (x *Index) Promote(ctx context.Context, target string) (bool, error) {
	generation, err := x.named(nextFile)
	if errors.Is(err, errNoGeneration) || err == nil && generation.target() != target {
		return false, nil
	}
	if err != nil {
		x.options.Log.WarnContext(ctx, "recall index shadow is unusable", "err", err)
		return false, nil
	}
	before, handles, err := x.replace(ctx, generation)
	if err != nil || before == generation {
		return err == nil, err
	}
	for slot, h := range handles {
		h.life.Lock()
		if err := h.close(); err != nil {
			x.options.Log.WarnContext(ctx, "close of recall index slot failed", "slot", slot, "err", err)
		}
		h.life.Unlock()
	}
	// What cannot be removed now is removed at the next start.
	if err := os.RemoveAll(filepath.Join(x.folder, before.name)); err != nil {
		x.options.Log.WarnContext(ctx, "removal of old recall index generation failed, the next start retries",
			"generation", before.name, "err", err)
	}
	return true, nil
}

// replace waits for running calls, and switches to the new generation. It returns the one before,
// which is the same if another call was faster.
func (x *Index) replace(
	ctx context.Context, g generation,
) (before generation, handles map[string]*handle, err error) {
	defer x.lockCalls()()
	if x.closed {
		return before, nil, recallindex.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return before, nil, err
	}
	if x.used() == g {
		return g, nil, nil
	}
	// The new generation is in use from here on, also after a restart.
	if err := os.Rename(filepath.Join(x.folder, nextFile), filepath.Join(x.folder, currentFile)); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	if err := syncFolder(x.folder); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	x.mu.Lock()
	before, handles = x.generation, x.handles
	x.generation, x.damaged, x.handles = g, nil, map[string]*handle{}
	if next := x.next; next != nil && next.generation == g {
		x.handles = next.releaseHandles() // keep its slots open
	}
	x.next = nil
	for slot := range x.handles {
		x.compactLater(slot)
	}
	x.mu.Unlock()
	if err := x.loadSlots(); err != nil {
		return before, nil, fmt.Errorf("recall index: %w", err)
	}
	return before, handles, nil
}

// releaseHandles closes a shadow, and returns its open slots.
func (x *Index) releaseHandles() map[string]*handle {
	x.compaction.close()
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
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	x.closeNext(ctx)
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
	g, err := parseGeneration(strings.TrimSpace(string(data)))
	if err != nil {
		return nil //nolint:nilerr // the file names nothing that this package wrote
	}
	if err := os.RemoveAll(filepath.Join(x.folder, g.name)); err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	return nil
}
