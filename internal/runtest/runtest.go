// Package runtest helps tests that run parts of the service and processes.
package runtest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
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

// repeatsShown is how often Warnings writes one message. What failed must not drown in what is retried.
const repeatsShown = 3

// Warnings writes warnings and errors to the output of the test, the first ones of each message.
func Warnings(t T) *slog.Logger {
	text := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	return slog.New(&firstOnes{text, &tally{seen: map[string]int{}}})
}

// firstOnes is a handler that drops the repeats of a message.
type firstOnes struct {
	slog.Handler
	messages *tally
}

// tally counts messages.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (t *tally) add(message string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[message]++
	return t.seen[message]
}

// Handle implements slog.Handler.
func (f *firstOnes) Handle(ctx context.Context, r slog.Record) error {
	n := f.messages.add(r.Message)
	if n > repeatsShown {
		return nil
	}
	if n == repeatsShown {
		r.AddAttrs(slog.String("repeats", "not shown"))
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (f *firstOnes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &firstOnes{f.Handler.WithAttrs(attrs), f.messages}
}

// WithGroup implements slog.Handler.
func (f *firstOnes) WithGroup(name string) slog.Handler {
	return &firstOnes{f.Handler.WithGroup(name), f.messages}
}
