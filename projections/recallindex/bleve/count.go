package bleve

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

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
