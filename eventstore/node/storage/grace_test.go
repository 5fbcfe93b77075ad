package storage

import (
	"fmt"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// An append to a new stream leaves nothing to remove, however many events it has.
func TestRemoval_OrdinaryAppends(t *testing.T) {
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	n := open(t, cfg)
	c := clientOf(t, n)
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
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	n := open(t, cfg)
	c := clientOf(t, n)
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
	if _, err := n.scavenger.sweep(sweeping{bounded: true}); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 6 {
		t.Errorf("%d events are left, want all 6 until their time has come", got)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	if got := count(); got != 2 {
		t.Errorf("after a scavenge %d events are left, want the last ones", got)
	}
}
