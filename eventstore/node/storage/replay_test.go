package storage

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/internal/runtest"
)

// gated is a disk that writes no tables while its gate is closed.
type gated struct {
	vfs.FS
	gate chan struct{}
}

func (g gated) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		<-g.gate
	}
	return g.FS.Create(name, category)
}

// The bytes of the write-ahead logs that a start must read are bounded, however much is written and
// however slowly tables are flushed.
func TestReplay_Bounded(t *testing.T) {
	// Besides what the tables in memory count, the log holds the frames of its records.
	const most = (memtablesKept+1)*memtableBytes + memtableBytes/8
	disk := gated{vfs.NewMem(), make(chan struct{})}
	st, err := openStore(Config{Dir: "log", FS: disk, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	var writing sync.WaitGroup
	writing.Go(func() {
		value := []byte(noise(32 << 10))
		for i := range 2 * most / len(value) {
			if err := st.db.Set(eventKey(uint64(i+1)), value, pebble.NoSync); err != nil {
				t.Error(err)
				return
			}
			if size := st.db.Metrics().WAL.Size; size > most {
				t.Errorf("after %d events %d bytes are to be read at a start", i, size)
				return
			}
		}
	})
	deadline := time.Now().Add(runtest.Timeout)
	for st.db.Metrics().WAL.Size < memtablesKept*memtableBytes { // the writer comes to wait
		if time.Now().After(deadline) {
			t.Fatal("the log does not grow: this test tests nothing")
		}
	}
	close(disk.gate)
	writing.Wait()
	runtest.Must(t, st.close())
}

// A node that was closed leaves nothing in the write-ahead log.
func TestReplay_AfterClose(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, Config{Dir: "log", FS: disk})
	c := clientOf(t, n)
	for i := range 20 {
		c.append(fmt.Sprintf("s%d", i), none, newEvent(noise(1000)))
	}
	runtest.Must(t, n.Close())
	st, err := openStore(Config{Dir: "log", FS: disk, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	head, err := st.head()
	runtest.Must(t, err)
	m := st.db.Metrics()
	if replayed := m.Levels[0].TablesFlushed; replayed != 0 || head != 20 {
		t.Errorf("%d tables were made of what was in the log, and the head is %d", replayed, head)
	}
	runtest.Must(t, st.close())
}
