package storage

import (
	"testing"
	"time"
)

func TestCommitDelay_SingleCaller(t *testing.T) {
	var g commitDelay
	for range 100 {
		if d := g.wait(1, 0); d != 0 {
			t.Fatalf("waits for %s", d)
		}
		g.record(1, 0, time.Second)
	}
}

func TestCommitDelay_ManyCallers(t *testing.T) {
	var g commitDelay
	for range 100 {
		g.record(4, 4, 300*time.Microsecond)
	}
	for _, c := range []struct {
		size  int
		since time.Duration
		want  time.Duration
	}{
		{1, 0, 300 * time.Microsecond},
		{7, 100 * time.Microsecond, 200 * time.Microsecond},
		{8, 0, 0},
		{20, 0, 0},
	} {
		if got := g.wait(c.size, c.since); got != c.want {
			t.Errorf("a group of %d waits for %s, want %s", c.size, got, c.want)
		}
	}
	// However slow the disk is: nobody waits long for others.
	g.record(4, 4, time.Minute)
	if got := g.wait(1, 0); got != maxCommitDelay {
		t.Errorf("waits for %s, want %s", got, maxCommitDelay)
	}
	if got := g.wait(1, 2*maxCommitDelay); got > 0 {
		t.Errorf("waits for %s after its time", got)
	}
	// Once the others are gone, so is the wait.
	for range 20 {
		g.record(1, 0, time.Millisecond)
	}
	if got := g.wait(1, 0); got != 0 {
		t.Errorf("waits for %s when alone again", got)
	}
}

func TestCommitDelay_NodeCloses(t *testing.T) {
	w := &writer{
		requests: make(chan *Request, 1),
		stop:     make(chan struct{}),
		delay:    commitDelay{concurrency: 10, fsync: maxCommitDelay},
	}
	r := &Request{}
	w.requests <- r
	if got := w.next(time.Now()); got != r {
		t.Errorf("got %v, want the request that waits", got)
	}
	if got := w.next(time.Now()); got != nil { // nobody comes
		t.Errorf("got %v", got)
	}
	close(w.stop)
	if got := w.next(time.Now()); got != nil {
		t.Errorf("got %v after the end", got)
	}
}
