package esdb_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// smallDisk is a disk that can be full.
type smallDisk struct {
	vfs.FS
	full atomic.Bool
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.full.Load() {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// An append that a full node refused was not done, and its error is not an unknown outcome: a
// caller that repeats unknown writes does not repeat it.
func TestAppend_FullDisk(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprint("together=", together), func(t *testing.T) {
			disk := &smallDisk{FS: vfs.NewMem()}
			n := startInsecure(t, disk)
			store := nodetest.Open(t, esdb.Config{
				ConnectionString: "esdb://" + n.Connection().Addr + "?tls=false",
				Logger:           quiet(),
				BatchAppends:     together,
			})
			ctx := within(t, hangLimit)
			for range 20 { // the first append opens the common call
				if _, err := store.Append(ctx, "warm-"+uuid.NewString(), eventstore.NoStream, oneEvent()); err != nil {
					t.Fatal(err)
				}
			}
			disk.full.Store(true)
			_, err := eventstore.AppendUntilKnown(ctx, store, "account-1", eventstore.NoStream, oneEvent())
			if !errors.Is(err, eventstore.ErrUnavailable) || !errors.Is(err, eventstore.ErrFull) ||
				errors.Is(err, eventstore.ErrUnknown) || ctx.Err() != nil {
				t.Fatalf("got %v", err)
			}
			disk.full.Store(false)
			if done, err := store.Append(ctx, "account-1", eventstore.NoStream, oneEvent()); err != nil || done.Revision != 0 {
				t.Errorf("once there is space: %+v, %v", done, err)
			}
		})
	}
}
