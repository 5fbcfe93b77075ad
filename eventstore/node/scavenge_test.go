package node

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// awaitScavenged waits until no tombstone has events left to remove.
func awaitScavenged(t testing.TB, n *Node) {
	t.Helper()
	deadline := time.After(testTime)
	for {
		_, found, err := n.scavenger.next()
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return
		}
		select {
		case <-deadline:
			t.Fatal("the tombstoned streams were not removed")
		case <-time.Tick(time.Millisecond):
		}
	}
}

// awaitRenewed waits until readers see a view that is newer than the removals so far.
func awaitRenewed(t testing.TB, n *Node) {
	t.Helper()
	// One renewal waits at most: the third is taken in once the second was taken out, and that is after the first was published.
	for range 3 {
		select {
		case n.writer.removed <- struct{}{}:
		case <-time.After(testTime):
			t.Fatal("no new view")
		}
	}
}

// storedCount says in how many values of the log a text stands.
func storedCount(t testing.TB, n *Node, text string) (count int) {
	t.Helper()
	iter, err := n.store.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(value), text) {
			count++
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return count
}

// The events of a tombstoned stream and its metadata are removed; the tombstone and other streams stay.
func TestTombstonedEventsAreRemoved(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	c := dial(t, n)
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
	awaitScavenged(t, n)
	if got := storedCount(t, n, "the secret"); got != 0 {
		t.Errorf("the secret still stands in the log %d times", got)
	}
	awaitRenewed(t, n)
	all := c.read(ofAll())
	if len(all) != 4 || last(all).position != position || all[0].id != kept[0].id {
		t.Errorf("the whole log shows %d events", len(all))
	}
	if got := c.read(ofStream("other")); len(got) != 2 {
		t.Errorf("the other stream holds %d events", len(got))
	}
	if _, err := c.tryAppend(testContext(t), "s", anyRevision, newEvents(1)...); err == nil {
		t.Error("the tombstoned stream was written")
	}
}

// A removal that a crash left half done goes on at the next start.
func TestRemovalGoesOnAfterRestart(t *testing.T) {
	cfg := memoryConfig()
	st, err := openStore(Config{Dir: cfg.Dir, FS: cfg.FS, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	vs := &views{db: st.db}
	if err := vs.publish(0); err != nil {
		t.Fatal(err)
	}
	w := newWriter(st.db, vs, newTail(0), &counters{}, 0, func() {}) // a node whose scavenger never came to run
	go w.run()
	for _, r := range []*request{
		{stream: "s", expected: none, events: []proposed{propose("s", newEvent("").id, "told", false, []byte("the secret"), nil)}},
		{kind: kindTombstone, stream: "s", expected: anyRevision},
	} {
		if d, err := w.do(t.Context(), r); err != nil || d.verdict != write {
			t.Fatalf("%v, %v", d, err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if err := vs.close(); err != nil {
		t.Fatal(err)
	}
	if err := st.close(); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, cfg)
	awaitScavenged(t, n)
	if got := storedCount(t, n, "the secret"); got != 0 {
		t.Errorf("the secret still stands in the log %d times", got)
	}
}
