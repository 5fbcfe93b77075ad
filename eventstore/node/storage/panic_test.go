package storage

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// panics fails the test unless the engine has stopped writing because of a panic.
func panics(t *testing.T, e *Engine, of string) {
	t.Helper()
	select {
	case <-e.Failed():
	case <-runtest.Context(t).Done():
		t.Fatal("the engine has not failed")
	}
	if err := e.Err(); err == nil || !strings.Contains(err.Error(), of+" panicked: out of order") {
		t.Errorf("the engine failed with %v", err)
	}
}

// A panic of the writer fails the engine and does not end the process: the append that it happened
// in and all later ones get the error, reads continue, and the next start finds what was written.
func TestWriter_Panic(t *testing.T) {
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	e := open(t, cfg)
	c := clientOf(t, e)
	_, position := c.append("kept-1", none, newEvent(`{}`))
	sound := e.writer.short
	e.writer.short = func() bool { panic("out of order") }
	for range 2 {
		if d, err := c.tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); err == nil || !errors.Is(err, e.Err()) {
			t.Errorf("append: %+v, %v", d, err)
		}
	}
	panics(t, e, "the writer")
	e.writer.short = sound
	if p, _, err := e.ReadAll(0, false, 10); err != nil || len(p.Events) != 1 {
		t.Errorf("read: %+v, %v", p, err)
	}
	if err := e.Scavenge(runtest.Context(t)); !errors.Is(err, e.Err()) {
		t.Errorf("scavenge: %v", err)
	}
	runtest.Must(t, e.Close())
	if again := open(t, cfg); again.Head() != position {
		t.Errorf("after a new start the head is %d, want %d", again.Head(), position)
	}
}

// A panic while the scavenger waits for the writer ends both.
func TestWriter_PanicDuringScavenge(t *testing.T) {
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	e := open(t, cfg)
	vs := e.writer.views
	e.writer.views = nil
	if err := e.writer.republishAndDrain(runtest.Context(t)); err == nil || !errors.Is(err, e.Err()) {
		t.Errorf("drain: %v", err)
	}
	e.writer.views = vs
	runtest.Must(t, e.Close())
}

// A panic of the commit itself, which is in a goroutine of its own.
func TestWriter_PanicOfCommit(t *testing.T) {
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	e := open(t, cfg)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.writer.commitBatch() // without a batch; the goroutine ends here, as the writer does
	}()
	<-ended
	if err := e.Err(); err == nil || !strings.Contains(err.Error(), "a commit panicked") {
		t.Errorf("the engine failed with %v", err)
	}
	if d, err := clientOf(t, e).tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); !errors.Is(err, e.Err()) {
		t.Errorf("append: %+v, %v", d, err)
	}
	runtest.Must(t, e.Close())
}

// A panic of the scavenger fails the engine too: a scavenge that is waited for ends with the error.
func TestScavenger_Panic(t *testing.T) {
	cfg := memoryConfig()
	cfg.ManualScavenge = true
	e := open(t, cfg)
	c := clientOf(t, e)
	c.append("kept-1", none, newEvent(`{}`))
	e.scavenger.drainReaders = func(context.Context) error { panic("out of order") }
	if err := e.Scavenge(runtest.Context(t)); err == nil || !errors.Is(err, e.Err()) {
		t.Errorf("scavenge: %v", err)
	}
	panics(t, e, "the scavenger")
	if d, err := c.tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); !errors.Is(err, e.Err()) {
		t.Errorf("append: %+v, %v", d, err)
	}
	if p, _, err := e.ReadAll(0, false, 10); err != nil || len(p.Events) == 0 || len(p.Events) > 2 {
		t.Errorf("read: %+v, %v", p, err)
	}
	runtest.Must(t, e.Close())
}
