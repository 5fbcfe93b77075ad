package runtest

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// Timeout is how long a test waits for anything at all; nothing waits that long unless it hangs.
const Timeout = 5 * time.Minute

// T is what a test, a benchmark and a property check have in common.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Output() io.Writer
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// Logger writes to the output of the test.
func Logger(t T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Context returns a context that ends after Timeout, and not with the context of the test, so that
// cleanups can use it.
func Context(t T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// Must ends the test if there is an error.
func Must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Await waits for a condition, or ends the test after Timeout.
func Await(t T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", Timeout, what)
		}
	}
}
