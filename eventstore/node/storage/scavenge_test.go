package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// scavenge removes what is due. The node's own scavenger may run at the same time, or not have
// begun.
func scavenge(t testing.TB, n *Engine) {
	t.Helper()
	if !n.scavenger.manual {
		t.Fatal("the scavenger sweeps while the test does")
	}
	runtest.Must(t, errorOf(n.scavenger.sweep(sweeping{})))
	awaitRenewed(t, n)
}

// awaitRenewed waits until readers see a view that is newer than the removals so far.
func awaitRenewed(t testing.TB, n *Engine) {
	t.Helper()
	// One renewal waits at most: the third is taken in once the second was taken out, and that is
	// after the first was published.
	for range 3 {
		select {
		case n.writer.republishes <- struct{}{}:
		case <-time.After(runtest.Timeout):
			t.Fatal("no new view")
		}
	}
}

// storedCount returns how many values of the log contain a text.
func storedCount(t testing.TB, n *Engine, text string) (count int) {
	t.Helper()
	iter, err := n.store.db.NewIter(&pebble.IterOptions{})
	runtest.Must(t, err)
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		runtest.Must(t, err)
		if strings.Contains(string(value), text) {
			count++
		}
	}
	runtest.Must(t, iter.Close())
	return count
}

func wantStored(t testing.TB, n *Engine, text string, want int) {
	t.Helper()
	if got := storedCount(t, n, text); got != want {
		t.Errorf("%d values of the log contain %q, want %d", got, text, want)
	}
}

// The events of a tombstoned stream and its metadata are removed; the tombstone and other streams
// stay.
func TestScavenge_TombstonedStream(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	secret := event{typ: "told", data: `"the secret"`}
	for i := range 2*scavengeBatch + 10 {
		secret.id = newEvent("").id
		c.append("s", at(int64(i)-1), secret)
	}
	c.append("$$s", none, metadataEvent(`{"note":"the secret"}`))
	kept := newEvents(2)
	c.append("other", none, kept...)
	c.append("$$other", none, metadataEvent(`{"$maxCount":5}`))
	position := c.tombstone("s", anyRevision)
	scavenge(t, n)
	wantStored(t, n, "the secret", 0)
	all := c.read(ofAll())
	if len(all) != 4 || last(all).position != position || all[0].id != kept[0].id {
		t.Errorf("the whole log shows %d events", len(all))
	}
	c.wantCount(ofStream("other"), 2)
	if _, err := c.tryAppend(runtest.Context(t), "s", anyRevision, newEvents(1)...); err == nil {
		t.Error("the tombstoned stream was written")
	}
}

// A removal that a crash interrupted continues at the next start.
func TestScavenge_ContinuesAfterRestart(t *testing.T) {
	cfg := memoryConfig()
	st, err := openStore(Config{Dir: cfg.Dir, FS: cfg.FS, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	vs := &views{db: st.db}
	runtest.Must(t, vs.publish(0))
	w := newWriter(st, vs, newTail(0), &counters{}, 0, func() {}) // a node whose scavenger never came to run
	go w.run()
	for _, r := range []*Request{
		{Stream: "s", Expected: none, Events: []Proposed{Propose("s", newEvent("").id, "told", false, []byte("the secret"), nil)}},
		{Kind: KindTombstone, Stream: "s", Expected: anyRevision},
	} {
		if d, err := w.do(t.Context(), r); err != nil || d.Verdict != Written {
			t.Fatalf("%v, %v", d, err)
		}
	}
	runtest.Must(t, w.close())
	runtest.Must(t, vs.close())
	runtest.Must(t, st.close())
	n := open(t, cfg)
	scavenge(t, n)
	wantStored(t, n, "the secret", 0)
}

// Events before $tb are removed, and the last event of the stream as soon as another follows. Later
// events stay, and the numbering continues.
func TestScavenge_TruncatedStream(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	told := []event{
		{id: uuid.New(), typ: "told", data: `"the secret"`},
		{id: uuid.New(), typ: "told", data: `"the secret"`},
	}
	c.append("s", none, told...)
	c.append("$$s", none, metadataEvent(`{"$tb":2}`))
	scavenge(t, n)
	wantStored(t, n, "the secret", 1)
	if revision, _ := c.append("s", at(1), newEvent(`"kept"`)); revision != 2 {
		t.Errorf("appended as revision %d", revision)
	}
	c.append("$$s", at(0), metadataEvent(`{"$tb":2,"$maxCount":1}`))
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	wantStored(t, n, "the secret", 0)
	if got := c.read(ofStream("s")); len(got) != 1 || got[0].data != `"kept"` {
		t.Errorf("the stream shows %d events", len(got))
	}
	if resp, err := c.tryAppend(runtest.Context(t), "s", none, told...); err != nil || resp.Verdict != WrongVersion ||
		resp.Revision != 2 {
		t.Errorf("the removed events again: %v, %v", resp, err)
	}
}

// The events of a soft-deleted stream stay for a while, also if it is written again: its writer may find that it was
// deleted by mistake.
func TestScavenge_SoftDeletedStream(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	for _, stream := range []string{"s", "again"} {
		c.append(stream, none, event{id: uuid.New(), typ: "told", data: `"the secret"`})
		c.append(stream, at(0), event{id: uuid.New(), typ: "told", data: `"the last words"`})
		c.delete(stream, at(1))
	}
	scavenge(t, n)
	if got := storedCount(t, n, "the secret"); got != 2 {
		t.Fatalf("the secrets are in the log %d times", got)
	}
	c.append("again", at(1), newEvent("{}"))
	scavenge(t, n)
	wantStored(t, n, "the secret", 2)
	if got := c.read(ofStream("again")); len(got) != 1 || got[0].revision != 2 {
		t.Errorf("the stream shows %v", revisions(got))
	}

	later := newScavenger(n.store, n.views, runtest.Logger(t))
	later.now = func() time.Time { return time.Now().Add(softDeleteGrace + time.Minute) }
	runtest.Must(t, errorOf(later.sweep(sweeping{})))
	wantStored(t, n, "the secret", 0)
	wantStored(t, n, "the last words", 1) // the last event of a stream, which servers keep
	if revision, _ := c.append("s", none, newEvent("{}")); revision != 2 {
		t.Errorf("appended as revision %d", revision)
	}
}

// After the files were rewritten and the log was opened again, no file holds a byte of the removed
// events.
func TestScavenge_RewritesFiles(t *testing.T) {
	secret := strings.Repeat("tell nobody of this ", 20)
	dir := t.TempDir()
	n, c := openClient(t, Config{Dir: dir, FS: vfs.Default, ManualScavenge: true})
	// Bytes that do not compress, so that the text would be found as it is.
	for i := range 50 {
		c.append(fmt.Sprintf("kept-%d", i), none, newEvent(uuid.NewString()))
		c.append(fmt.Sprintf("gone-%d", i), none, event{id: uuid.New(), typ: "told", data: secret})
	}
	runtest.Must(t, n.store.db.Flush())
	if got := filesWith(t, dir, secret[:15]); got == 0 {
		t.Fatal("no file holds the secret: this test tests nothing")
	}
	for i := range 50 {
		c.tombstone(fmt.Sprintf("gone-%d", i), at(0))
	}
	scavenge(t, n)
	runtest.Must(t, n.scavenger.erase(false))
	if keys, holes, err := n.scavenger.holes(); len(keys) != 0 || len(holes) != 0 || err != nil {
		t.Errorf("still to be rewritten: %v, %v", holes, err)
	}
	runtest.Must(t, n.Close())
	n = open(t, Config{Dir: dir, FS: vfs.Default})
	clientOf(t, n).wantCount(ofAll(), 100)
	runtest.Must(t, n.Close())
	if got := filesWith(t, dir, secret[:15]); got != 0 {
		t.Errorf("%d files still hold the secret", got)
	}
}

// filesWith counts the files below a folder that hold a text.
func filesWith(t testing.TB, dir, text string) (count int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(content), text) {
			count++
			t.Logf("%s holds the text", filepath.Base(path))
		}
		return nil
	})
	runtest.Must(t, err)
	return count
}

// The node's own scavenger handles a tombstone without a request.
func TestScavenger_RunsByItself(t *testing.T) {
	n := open(t, memoryConfig())
	ran := make(chan struct{}, 1)
	n.scavenger.close() // replaced by one that notifies the test
	s := newScavenger(n.store, n.views, runtest.Logger(t))
	s.republish = func() {
		n.writer.republish()
		select {
		case ran <- struct{}{}:
		default:
		}
	}
	s.pause = time.Millisecond // rewrite the files at once, too
	n.scavenger, n.writer.onRemovals = s, s.wake
	go s.run()
	c := clientOf(t, n)
	c.append("s", none, event{id: uuid.New(), typ: "told", data: `"the secret"`})
	c.tombstone("s", at(0))
	select {
	case <-ran:
	case <-time.After(runtest.Timeout):
		t.Fatal("nothing was removed")
	}
	awaitRenewed(t, n)
	wantStored(t, n, "the secret", 0)
}

// Ranges that are close to each other are rewritten together.
func TestScavenge_JoinsHoles(t *testing.T) {
	var s spans
	for _, next := range []span{{1, 1}, {2, 2}, {2 + holeGap, 10 + holeGap}, {5, 7}, {100 + 3*holeGap, 100 + 3*holeGap}} {
		s.add(next)
	}
	want := spans{{1, 10 + holeGap}, {100 + 3*holeGap, 100 + 3*holeGap}}
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(span{})); diff != "" {
		t.Error(diff)
	}
}

// An append to a new stream leaves nothing to remove, however many events it has.
func TestRemoval_OrdinaryAppends(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	for i := range 4 {
		c.append(fmt.Sprintf("s%d", i), none, newEvents(i+1)...)
		c.append(fmt.Sprintf("s%d", i), at(int64(i)), newEvents(2)...)
	}
	if left, err := pendingOf(n.store.db); err != nil || len(left) != 0 {
		t.Errorf("to be removed: %v, %v", left, err)
	}
}

// An immediate removal does not remove the rest of a stream that is deleted meanwhile.
func TestRemoval_StreamDeletedMeanwhile(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	for stream, meta := range map[string]string{"cut": `{"$tb":1}`, "counted": `{"$maxCount":2}`} {
		c.append(stream, none, newEvents(3)...)
		c.append(MetaPrefix+stream, none, event{id: newEvent("").id, typ: "$metadata", data: meta})
		c.delete(stream, at(2))
	}
	count := func() (count int) {
		for _, e := range c.read(ofAll()) {
			if e.stream == "cut" || e.stream == "counted" {
				count++
			}
		}
		return count
	}
	runtest.Must(t, errorOf(n.scavenger.sweep(sweeping{bounded: true})))
	if got := count(); got != 6 {
		t.Errorf("%d events are left, want all 6 until their time has come", got)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	if got := count(); got != 2 {
		t.Errorf("after a scavenge %d events are left, want the last ones", got)
	}
}

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
	wantStored(t, n, "the secret", 0)
	todo, err := pendingOf(n.store.db)
	runtest.Must(t, err)
	if len(todo) != 0 {
		t.Errorf("%d removals are still to be done", len(todo))
	}
	clientOf(t, n).wantCount(ofAll(), streams)
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
