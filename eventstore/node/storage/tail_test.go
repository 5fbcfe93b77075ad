package storage

import (
	"testing"
)

// The tail stays within its bounds, whatever is pushed, and returns exactly the newest events.
func TestTail_Bounds(t *testing.T) {
	tl := newTail(10)
	position := uint64(10)
	push := func(events, size int) {
		var out []Entry
		for range events {
			position++
			out = append(out, Entry{Position: position, Record: make([]byte, size)})
		}
		tl.push(out)
	}
	for range 3 {
		push(tailEvents-1, 1)
		push(3, tailBytes/2)
		push(1, 2*tailBytes)
		push(2, 10)
		if tl.bytes > tailBytes || position-tl.first+1 > tailEvents {
			t.Fatalf("the tail holds %d bytes, %d events", tl.bytes, position-tl.first+1)
		}
	}
	got, _, evicted := tl.after(position-2, make([]Entry, 0, 5))
	if evicted || len(got) != 2 || got[1].Position != position {
		t.Errorf("got %v, evicted %v", got, evicted)
	}
	if _, _, evicted := tl.after(position-3, nil); !evicted {
		t.Error("an event larger than the bound was kept")
	}
	push(4, pageBytes/2)
	if got, _, _ := tl.after(position-4, make([]Entry, 0, 5)); len(got) != 2 {
		t.Errorf("a subscriber takes %d large events at once", len(got))
	}
	got, changed, _ := tl.after(position, nil)
	if len(got) != 0 {
		t.Errorf("after the head: %v", got)
	}
	push(1, 1)
	<-changed
}
