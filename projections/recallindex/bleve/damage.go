package bleve

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// lostSuffix names the file of a slot that lost its documents, and is not whole again yet.
const lostSuffix = ".lost"

// checkPause is how long the checksums of a slot that were right are not looked at again, whatever its calls end with.
const checkPause = time.Minute

// loss is what that file says.
type loss struct {
	ID uuid.UUID `json:"id"`
	// Removed says that the damaged files are gone.
	Removed bool `json:"removed"`
	// Reached is up to where the slot is filled again.
	Reached recallindex.Mark `json:"reached"`
}

// Losses implements recallindex.Index.
func (x *Index) Losses() []recallindex.Loss {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []recallindex.Loss
	for slot, l := range x.losses {
		list = append(list, recallindex.Loss{
			ID: l.ID, Part: slot, Reached: l.Reached, Holds: func(project uuid.UUID) bool { return holds(slot, project) },
		})
	}
	slices.SortFunc(list, func(a, b recallindex.Loss) int { return strings.Compare(a.Part, b.Part) })
	return list
}

// Refilled implements recallindex.Index.
func (x *Index) Refilled(ctx context.Context, of recallindex.Loss, reached *recallindex.Mark) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	x.mu.Lock()
	l, lost := x.losses[of.Part]
	x.mu.Unlock()
	if !lost || l.ID != of.ID {
		return fmt.Errorf("%w: slot %s was lost once more, or is whole", recallindex.ErrDamaged, of.Part)
	}
	path := x.path(of.Part) + lostSuffix
	if reached == nil {
		if err := errors.Join(os.Remove(path), syncFolderOf(path)); err != nil {
			return fmt.Errorf("recall index: %w", err)
		}
		x.mu.Lock()
		delete(x.losses, of.Part)
		x.mu.Unlock()
		x.options.Log.InfoContext(ctx, "slot of the recall index is whole again", "slot", of.Part)
		return nil
	}
	l.Reached = *reached
	return x.note(of.Part, l)
}

// note writes down what became of a lost slot.
func (x *Index) note(slot string, l loss) error {
	data, err := json.Marshal(l)
	if err == nil {
		err = writeDurably(x.path(slot)+lostSuffix, data)
	}
	if err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	x.mu.Lock()
	x.losses[slot] = l
	x.mu.Unlock()
	return nil
}

// whole is ErrIncomplete where documents of a project are lost.
func (x *Index) whole(project uuid.UUID) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for slot := range x.losses {
		if holds(slot, project) {
			return recallindex.ErrIncomplete
		}
	}
	return nil
}

// guarded calls fn, whose panic is an error. So is a fault of a file that was cut while it was read.
func (x *Index) guarded(fn func() error) error {
	return panics.Call(context.Background(), x.options.Log, "recall index panicked", func() error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		return fn()
	})
}

// want reports whether an error is a want of the machine, which passes.
func want(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failed judges why a slot did not open: a want of the machine passes, anything else is a loss. The caller holds life for
// writing.
func (x *Index) failed(slot string, h *handle, cause error) error {
	if want(cause) {
		return fmt.Errorf("slot %s of the recall index: %w", slot, cause)
	}
	return x.lose(slot, h, cause)
}

// suspect looks at a slot whose use ended with an error: where its files are not what was written, it is lost. It answers what
// the call ends with.
func (x *Index) suspect(slot string, h *handle, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, recallindex.ErrIncomplete) ||
		errors.Is(err, recallindex.ErrDamaged) || errors.Is(err, recallindex.ErrClosed) || want(err) {
		return err
	}
	h.life.Lock()
	defer h.life.Unlock()
	if h.gone {
		return errors.Join(errTrouble, err)
	}
	damage := x.check(slot, h)
	switch {
	case damage != nil:
		return x.lose(slot, h, errors.Join(damage, err))
	case h.watch.stopped():
		// Its files are right, and its goroutines ended: it is opened again.
		x.abandon(slot, h)
		return errors.Join(errTrouble, err)
	}
	return err
}

// check compares the segments of a slot with their checksums.
func (x *Index) check(slot string, h *handle) error {
	if h.index == nil || time.Since(h.checked) < checkPause {
		return nil
	}
	folder := filepath.Join(x.path(slot), "store")
	err := x.guarded(func() error {
		return h.see(func(segments []*scorch.SegmentSnapshot) error {
			for _, s := range segments {
				if _, persisted := s.Segment().(segment.PersistedSegment); !persisted {
					continue
				}
				if err := checksum(filepath.Join(folder, file(s.Id()))); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil || want(err) {
		h.checked = time.Now()
		return nil
	}
	return err
}

// checksum compares a segment's file with the checksum at its end.
func checksum(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const length = 4
	sum, end := crc32.NewIEEE(), make([]byte, length)
	if _, err := io.Copy(sum, io.LimitReader(f, info.Size()-length)); err != nil {
		return err
	}
	if _, err := io.ReadFull(f, end); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if binary.BigEndian.Uint32(end) != sum.Sum32() {
		return fmt.Errorf("%s does not match its checksum", path)
	}
	return nil
}

// lose gives up what a slot holds: it begins empty, and says that it lost something until it is filled again. The caller holds
// life for writing. The answer is ErrIncomplete where that is done: a call that writes is made again, on the empty slot.
func (x *Index) lose(slot string, h *handle, cause error) error {
	if x.beside {
		// Nobody uses it yet, and who builds it is told.
		err := fmt.Errorf("%w: slot %s: %w", recallindex.ErrDamaged, slot, cause)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.damaged == nil {
			x.damaged = err
		}
		return err
	}
	x.options.Log.Error("slot of the recall index is damaged, and is filled again from the log", "slot", slot, "err", cause)
	l := loss{ID: uuid.New()}
	if err := x.note(slot, l); err != nil {
		return err
	}
	x.abandon(slot, h)
	if err := x.removeFiles(slot); err != nil {
		return fmt.Errorf("remove damaged slot %s of the recall index: %w", slot, err)
	}
	l.Removed = true
	if err := x.note(slot, l); err != nil {
		return err
	}
	return fmt.Errorf("%w: slot %s: %w", recallindex.ErrIncomplete, slot, cause)
}

// abandon closes a handle without trusting it. The caller holds its life for writing.
func (x *Index) abandon(slot string, h *handle) {
	index, engine := h.index, engine{}
	if index != nil {
		engine, _ = h.engine()
	}
	stopped := h.watch.stopped()
	h.gone, h.index = true, nil
	x.mu.Lock()
	if x.handles[slot] == h {
		delete(x.handles, slot)
	}
	x.mu.Unlock()
	if index == nil {
		return
	}
	err := x.guarded(func() error {
		if stopped && engine.Scorch != nil {
			// A write that waits for a goroutine that ended never returns, and Close of the whole would wait for it.
			return engine.Close()
		}
		return index.Close()
	})
	h.watch.end()
	if err != nil {
		x.options.Log.Warn("damaged slot of the recall index did not close", "slot", slot, "err", err)
	}
}

// known reads which slots were made, and which of them are lost. One whose files are not there, or cannot be opened, is lost too.
func (x *Index) known() error {
	slots, lost, err := x.slots()
	if err != nil {
		return err
	}
	losses := map[string]loss{}
	for _, slot := range lost {
		var l loss
		data, err := os.ReadFile(x.path(slot) + lostSuffix)
		if err != nil {
			return err
		}
		if json.Unmarshal(data, &l) != nil {
			l = loss{ID: uuid.New()}
		}
		losses[slot] = l
	}
	x.mu.Lock()
	x.losses = losses
	clear(x.owns)
	clear(x.written)
	for _, slot := range append(slots, lost...) {
		if project, alone := projectOf(slot); alone {
			x.owns[project] = true
		}
	}
	x.mu.Unlock()
	for slot, l := range losses {
		if !l.Removed {
			// The process ended while it was given up.
			l.Removed = true
			if err := errors.Join(x.removeFiles(slot), x.note(slot, l)); err != nil {
				return err
			}
		}
	}
	for _, slot := range slots {
		err := x.with(slot, false, func(*handle) error { return nil })
		if err != nil && !errors.Is(err, recallindex.ErrIncomplete) {
			return err
		}
	}
	return nil
}
