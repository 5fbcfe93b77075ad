package feed

import (
	"testing"

	"github.com/annals-project/annals/eventstore"
)

// TestWindow_BoundInBytes adds events so large that a few exceed the bound. A topic that begins
// before the window is reported as evicted: it does not skip them.
func TestWindow_BoundInBytes(t *testing.T) {
	l := newLive(nil, nil, nil, nil, nil)
	l.known = true
	const size, n = 512 << 10, 100
	for i := range n {
		l.add(eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{Position: eventstore.Position(i + 1), Data: make([]byte, size)},
		})
	}
	if l.bytes > windowBytes || l.bytes < windowBytes-size {
		t.Errorf("%d bytes are kept, want about %d", l.bytes, windowBytes)
	}
	if want := eventstore.Position(n - len(l.events)); l.base != want {
		t.Errorf("%d events are kept and the window begins after %d, want %d", len(l.events), l.base, want)
	}
	if v := l.after(l.base-1, PageEvents); !v.evicted {
		t.Error("a topic before the window is not evicted")
	}
	v := l.after(l.base, PageEvents)
	if v.evicted || len(v.events) == 0 || v.events[0].Position != l.base+1 {
		t.Errorf("a topic at the begin of the window gets %d events", len(v.events))
	}
	if got := len(v.events) * size; got > PageBytes {
		t.Errorf("a page of %d bytes", got)
	}
}
