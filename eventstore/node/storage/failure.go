package storage

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// failure is the reason why nothing can be written any more, once there is one.
type failure struct {
	log  *slog.Logger // nil discards
	once sync.Once
	done chan struct{}
	err  error // readable once done is closed
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

// set keeps the first reason.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// recoverPanic is deferred by a goroutine of the engine. A panic leaves the memory in an unknown
// state, so it is a reason why nothing can be written any more.
func (f *failure) recoverPanic(what string) {
	r := recover()
	if r == nil {
		return
	}
	if f.log != nil {
		f.log.Error("event store engine stopped, restart the process",
			"detail", what+" panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
	f.set(fmt.Errorf("the log can be written no more, until a new start: %s panicked: %w", what, &panicked{r}))
}

func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Failed is closed once nothing can be written any more until a new start: the disk failed or the
// engine panicked, and only a new start can find out what is on the disk. From then on appends and
// deletions are refused; the outcome of those that were under way is unknown. Reads continue if the
// disk allows. A full disk is not a failure.
func (e *Engine) Failed() <-chan struct{} { return e.store.failure.done }

// Err returns the reason why Failed was closed; nil before.
func (e *Engine) Err() error { return e.store.failure.get() }
