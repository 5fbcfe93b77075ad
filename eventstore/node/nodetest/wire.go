package nodetest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Wire forwards bytes between the clients of its address and a server. A test can cut it, or have
// it drop what the server sends.
type Wire struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	to       string
	muted    bool
	open     map[net.Conn]bool
	accepted int
}

// NewWire returns a wire to a server. It ends with the test.
func NewWire(t testing.TB, to string) *Wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	w := &Wire{listener: listener, to: to, open: map[net.Conn]bool{}}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		w.Cut()
		w.running.Wait()
	})
	return w
}

// Addr is the address for clients.
func (w *Wire) Addr() string { return w.listener.Addr().String() }

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		to := w.to
		w.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil { // a server that is down: the client sees its connection end
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.accepted++
		w.open[client], w.open[server] = true, true
		w.running.Go(func() { w.pass(client, server) })
		w.running.Go(func() { w.pass(server, &quietly{w, client}) })
		w.mu.Unlock()
	}
}

// pass copies until either end closes, which ends both. What the copy failed of is what the test is
// about.
func (w *Wire) pass(from net.Conn, to io.WriteCloser) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, from)
}

// quietly is a connection that swallows while the wire is muted.
type quietly struct {
	wire *Wire
	net.Conn
}

func (q *quietly) Write(b []byte) (int, error) {
	q.wire.mu.Lock()
	muted := q.wire.muted
	q.wire.mu.Unlock()
	if muted {
		return len(b), nil
	}
	return q.Conn.Write(b)
}

// ReadFrom keeps io.Copy from going past Write.
func (q *quietly) ReadFrom(from io.Reader) (n int64, err error) {
	buf := make([]byte, 16<<10)
	for {
		got, err := from.Read(buf)
		if got > 0 {
			if _, failed := q.Write(buf[:got]); failed != nil {
				return n, failed
			}
			n += int64(got)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Mute has the wire drop what the server sends, or pass it on again.
func (w *Wire) Mute(muted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = muted
}

// Lead lets new connections go to another server.
func (w *Wire) Lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

// Cut breaks all connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		_ = conn.Close()
	}
}

// Clients is how many connections of clients are open, and how many there were.
func (w *Wire) Clients() (open, ever int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) / 2, w.accepted
}
