package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
)

// heldStore is a store whose scavenge takes until it is released.
type heldStore struct{ begun, release chan struct{} }

func (h heldStore) Scavenge(ctx context.Context) error {
	select {
	case h.begun <- struct{}{}:
	default:
	}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// While a scavenge takes long, what crashes left of batches and deletions is completed all the same.
func TestFinisher_FanOutsDuringAScavenge(t *testing.T) {
	t.Parallel()
	w := newIdleNodeHarness(t)
	w.clock.move(finishAfter)
	held := heldStore{make(chan struct{}, 1), make(chan struct{})}
	w.finisher.Eraser.Store = held
	w.ingestBatch(item("a", "one"), item("b", "two"),
		item("c", "three"))
	w.remove("a")
	runtest.Part(t, w.finisher.Run)
	<-held.begun
	w.commitDeletion("b", "c")
	w.commitBatch("key", item("d", "four"), item("e", "five"))
	for id, want := range map[string]bool{"b": false, "c": false, "d": true, "e": true} {
		w.until(id+" is finished", func() bool {
			last, ok, err := w.log.Last(t.Context(), stream.Name(stream.DataPoint,
				stream.DataPointID(w.call.Principal.Project.Namespace, id)))
			runtest.Must(t, err)
			_, deleted := last.Event.(*datapoint.Deleted)
			return ok && deleted != want
		})
	}
	select {
	case <-held.begun:
		t.Error("a second scavenge began during the first")
	default:
	}
	close(held.release)
	w.until("all is cleaned", func() bool {
		w.clock.move(time.Minute) // the disk is not cleaned again at once
		open, err := w.queries.Open(t.Context())
		runtest.Must(t, err)
		return open.Deletions == 0
	})
}
