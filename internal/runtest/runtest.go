// Package runtest helps tests that run parts of the service and processes.
package runtest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Part runs a part of the service until the test ends, and fails the test with its error. Parts stop
// in the reverse order of their starts.
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

// The ports of FreeAddress are below those that the kernel assigns to listeners on port 0 and to
// connections. So no other process gets a port by chance while the process that uses it is down.
const firstPort, lastPort = 15000, 31999

// FreeAddress returns a loopback address that is free at this moment, for a process that must listen
// on the same address after each restart. No other call returns it until the test ends: the UDP port of
// the same number is held, which processes of other packages see too.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		var held net.PacketConn
		if held, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", addr); err != nil {
			continue // another test has it
		}
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", addr); err == nil {
			err = l.Close()
		}
		if err == nil {
			t.Cleanup(func() { _ = held.Close() })
			return addr
		}
		_ = held.Close() // the TCP port is in use
	}
	t.Fatalf("no address is free: %v", err)
	return ""
}

// Output collects everything written to it. It is safe for concurrent use; the zero value is ready.
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

// String returns everything written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Tail returns at most the last most bytes.
func (o *Output) Tail(most int) string {
	all := o.String()
	return all[max(0, len(all)-most):]
}

// Word returns letters that no compression shortens, and that nobody else writes.
func Word() string {
	letters := make([]byte, 28)
	for i := range letters {
		letters[i] = "bcdfghjklmnpqrtvwxz"[rand.IntN(19)] //nolint:gosec // it is to differ, not to be secret
	}
	return string(letters)
}
