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

// lostSuffix names the file of a slot that lost its documents and is not refilled yet.
const lostSuffix = ".lost"

// verifyInterval is the least time between two checks of the checksums of a slot.
const verifyInterval = time.Minute

// loss is the JSON of that file.
type loss struct {
	ID uuid.UUID `json:"id"`
	// Removed reports that the damaged files are removed.
	Removed bool `json:"removed"`
	// Reached is up to where the slot is refilled.
	Reached recallindex.Cursor `json:"reached"`
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
func (x *Index) Refilled(ctx context.Context, of recallindex.Loss, reached *recallindex.Cursor) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	x.mu.Lock()
	l, lost := x.losses[of.Part]
	x.mu.Unlock()
	if !lost || l.ID != of.ID {
		return fmt.Errorf("%w: slot %s was lost again, or is refilled", recallindex.ErrDamaged, of.Part)
	}
	path := x.path(of.Part) + lostSuffix
	if reached == nil {
		if err := errors.Join(os.Remove(path), syncFolderOf(path)); err != nil {
			return fmt.Errorf("recall index: %w", err)
		}
		x.mu.Lock()
		delete(x.losses, of.Part)
		x.mu.Unlock()
		x.options.Log.InfoContext(ctx, "recall index slot is refilled", "slot", of.Part)
		return nil
	}
	l.Reached = *reached
	return x.saveLoss(of.Part, l)
}

// saveLoss records the state of a lost slot.
func (x *Index) saveLoss(slot string, l loss) error {
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

// checkComplete returns ErrIncomplete if documents of a project are lost.
func (x *Index) checkComplete(project uuid.UUID) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for slot := range x.losses {
		if holds(slot, project) {
			return recallindex.ErrIncomplete
		}
	}
	return nil
}

// recoverPanics calls fn and turns its panic into an error, also that of reading a mapped file that
// was truncated.
func (x *Index) recoverPanics(fn func() error) error {
	return panics.Call(context.Background(), x.options.Log, "recall index panicked", func() error {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		return fn()
	})
}

// isResourceError reports whether an error comes from the machine and may pass: files, memory,
// space or permissions.
func isResourceError(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.ENOMEM, syscall.EACCES,
		syscall.EPERM, syscall.EIO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// openFailed handles a slot that did not open: a resource error may pass, anything else is a loss.
// The caller holds life for writing.
func (x *Index) openFailed(slot string, h *handle, cause error) error {
	if isResourceError(cause) {
		return fmt.Errorf("open slot %s of recall index: %w", slot, cause)
	}
	return x.lose(slot, h, cause)
}

// diagnose checks a slot whose use returned an error. If its files are damaged, the slot is lost.
// It returns the error of the call.
func (x *Index) diagnose(slot string, h *handle, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err,
		recallindex.ErrIncomplete) ||
		errors.Is(err, recallindex.ErrDamaged) || errors.Is(err, recallindex.ErrClosed) || isResourceError(err) {
		return err
	}
	h.life.Lock()
	defer h.life.Unlock()
	if h.dropped {
		return errors.Join(errBackground, err)
	}
	damage := x.verify(slot, h)
	switch {
	case damage != nil:
		return x.lose(slot, h, errors.Join(damage, err))
	case h.watch.stopped():
		// The files are intact, but a goroutine ended: open the slot again.
		x.dropHandle(slot, h)
		return errors.Join(errBackground, err)
	}
	return err
}

// verify compares the segments of a slot with their checksums.
func (x *Index) verify(slot string, h *handle) error {
	if h.index == nil || time.Since(h.checked) < verifyInterval {
		return nil
	}
	folder := filepath.Join(x.path(slot), "store")
	err := x.recoverPanics(func() error {
		return h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
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
	if err == nil || isResourceError(err) {
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

// lose drops the contents of a slot and records the loss until it is refilled. The caller holds
// life for writing. It returns ErrIncomplete on success: a write is repeated on the empty slot.
func (x *Index) lose(slot string, h *handle, cause error) error {
	if x.isShadow {
		// No call reads a shadow yet; return the error to its builder.
		err := fmt.Errorf("%w: slot %s: %w", recallindex.ErrDamaged, slot, cause)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.damaged == nil {
			x.damaged = err
		}
		return err
	}
	x.options.Log.Error("recall index slot is damaged, refilling it from the log", "slot", slot, "err", cause)
	l := loss{ID: uuid.New()}
	if err := x.saveLoss(slot, l); err != nil {
		return err
	}
	x.dropHandle(slot, h)
	if err := x.removeFiles(slot); err != nil {
		return fmt.Errorf("remove damaged slot %s of recall index: %w", slot, err)
	}
	l.Removed = true
	if err := x.saveLoss(slot, l); err != nil {
		return err
	}
	return fmt.Errorf("%w: slot %s: %w", recallindex.ErrIncomplete, slot, cause)
}

// dropHandle closes a handle whose index may be damaged. The caller holds its life for writing.
func (x *Index) dropHandle(slot string, h *handle) {
	index, engine := h.index, engine{}
	if index != nil {
		engine, _ = h.engine()
	}
	stopped := h.watch.stopped()
	h.dropped, h.index = true, nil
	x.mu.Lock()
	if x.handles[slot] == h {
		delete(x.handles, slot)
	}
	x.mu.Unlock()
	if index == nil {
		return
	}
	err := x.recoverPanics(func() error {
		if stopped && engine.Scorch != nil {
			// A write that waits for an ended goroutine never returns, and Close of the whole index would
			// wait for it.
			return engine.Close()
		}
		return index.Close()
	})
	h.watch.end()
	if err != nil {
		x.options.Log.Warn("close of damaged recall index slot failed", "slot", slot, "err", err)
	}
}

// loadSlots reads which slots were created, and which of them are lost. A slot whose files are
// missing or cannot be opened is lost, too.
func (x *Index) loadSlots() error {
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
	clear(x.writes)
	for _, slot := range append(slots, lost...) {
		if project, alone := projectOf(slot); alone {
			x.owns[project] = true
		}
	}
	x.mu.Unlock()
	for slot, l := range losses {
		if !l.Removed {
			// The process ended while it dropped the slot.
			l.Removed = true
			if err := errors.Join(x.removeFiles(slot), x.saveLoss(slot, l)); err != nil {
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

// Count implements recallindex.Index.
func (x *Index) Count(ctx context.Context, project uuid.UUID) (total int, err error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	for _, at := range x.partitions(project) {
		err := x.with(at.slot, false, func(h *handle) error {
			if h.index == nil {
				return nil
			}
			n, err := h.count(at)
			total += n
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Total implements recallindex.Index.
func (x *Index) Total(ctx context.Context) (total int, err error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	slots, _, err := x.slots()
	if err != nil {
		return 0, fmt.Errorf("count recall index: %w", err)
	}
	for _, slot := range slots {
		err := x.with(slot, false, func(h *handle) error {
			if h.index == nil {
				return nil
			}
			n, err := h.index.DocCount()
			total += int(n)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("count recall index: %w", err)
		}
	}
	return total, x.damage()
}

// damage returns why a shadow is unusable.
func (x *Index) damage() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.damaged
}
