package storage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// tombstoned creates streams of one event with metadata, and tombstones them. The writer decides
// each write alone, many at a time.
func tombstoned(t testing.TB, n *Engine, streams int) {
	t.Helper()
	const callers = 256
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := caller; i < streams; i += callers {
				name := fmt.Sprintf("gone-%d", i)
				event := Propose(name, uuid.New(), "told", false, []byte("the secret"), nil)
				meta := Propose(MetaPrefix+name, uuid.New(), MetadataType, true, []byte(`{"note":"the secret"}`), nil)
				for _, r := range []*Request{
					{Stream: name, Expected: Expectation{Revision: NoStream}, Events: []Proposed{event}},
					{Stream: MetaPrefix + name, Expected: Expectation{Revision: NoStream}, Events: []Proposed{meta}},
					{Kind: KindTombstone, Stream: name, Expected: Expectation{Revision: 0}},
				} {
					if d, err := n.writer.do(t.Context(), r); err != nil || d.Verdict != Written {
						t.Errorf("%s: %v, %v", name, d, err)
						return
					}
				}
			}
		}()
	}
	wg.Wait()
}

// A scavenge of many tombstones takes few fsyncs: removals of many streams are committed together
// with their records.
func TestScavenge_ManyTombstonesFewFsyncs(t *testing.T) {
	const streams = 2000
	var fsyncs atomic.Int64
	fs := &gatedSync{FS: vfs.NewMem(), before: func() { fsyncs.Add(1) }}
	n := open(t, Config{Dir: "log", FS: fs, ManualScavenge: true})
	tombstoned(t, n, streams)
	before := fsyncs.Load()
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	if took := fsyncs.Load() - before; took > streams/20 {
		t.Errorf("the scavenge of %d tombstoned streams took %d fsyncs", streams, took)
	}
	if got := storedCount(t, n, "the secret"); got != 0 {
		t.Errorf("the secret is still in the log %d times", got)
	}
	todo, err := pendingOf(n.store.db)
	runtest.Must(t, err)
	if len(todo) != 0 {
		t.Errorf("%d removals are still to be done", len(todo))
	}
	if got := len(clientOf(t, n).read(ofAll())); got != streams {
		t.Errorf("the log shows %d events, want the tombstones", got)
	}
}

// BenchmarkScavengeTombstones scavenges 10,000 tombstoned streams on a disk.
func BenchmarkScavengeTombstones(b *testing.B) {
	for range b.N {
		b.StopTimer()
		var fsyncs atomic.Int64
		counting := &gatedSync{FS: vfs.Default, before: func() { fsyncs.Add(1) }}
		n := open(b, Config{Dir: b.TempDir(), FS: counting, ManualScavenge: true})
		tombstoned(b, n, 10_000)
		before := fsyncs.Load()
		b.StartTimer()
		begun := time.Now()
		runtest.Must(b, n.Scavenge(b.Context()))
		b.StopTimer()
		b.ReportMetric(float64(fsyncs.Load()-before), "fsyncs")
		b.ReportMetric(time.Since(begun).Seconds(), "s/scavenge")
		runtest.Must(b, n.Close())
	}
}
