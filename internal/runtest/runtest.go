// Package runtest holds what tests need of parts and processes that run beside them.
package runtest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
)

// Part runs a part until the test ends, and fails the test with its error. Parts end in the opposite order of their beginnings.
func Part(t testing.TB, part func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// FreeAddress is an address of the loopback that nobody listened on a moment ago: for a process that listens on the same one each
// time that it is started.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

// Output keeps all that is written to it, from any goroutine. The zero value is ready.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer; it never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Tail is the last bytes of it, at most so many.
func (o *Output) Tail(most int) string {
	all := o.String()
	return all[max(0, len(all)-most):]
}
