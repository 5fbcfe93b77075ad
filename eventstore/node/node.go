package node

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
)

const (
	// maxMessage is the largest message that is read: larger than maxAppend, so that an event over
	// that limit gets its error.
	maxMessage = 17 << 20
	// clientPing is the shortest interval of a client's keepalive pings; the official client sends
	// one every 10 s.
	clientPing = 5 * time.Second
	// bufferSize is how many bytes a connection buffers before it writes.
	bufferSize = 256 << 10
	// streamWindow and connectionWindow are how much a client may send without an acknowledgement. grpc widens that
	// of a stream for a longer message once a handler reads it, so a call without a password never gets more.
	// Fixed windows avoid the pings by which grpc measures the line: two writes for each append.
	streamWindow     = 64 << 10
	connectionWindow = 8 << 20
	// maxHeaders bounds the headers of a call.
	maxHeaders = 16 << 10
	// maxStreams bounds the calls of a connection at once: further ones wait at the client.
	maxStreams = 1000
	// maxConnections bounds the connections of all clients.
	maxConnections = 256
	// handshakeTime bounds the time until a new connection speaks TLS and HTTP/2.
	handshakeTime = 10 * time.Second
	// streamWorkers is how many goroutines serve calls: a new goroutine would grow its stack for
	// every call.
	streamWorkers = 64
	// drainTime bounds how long Close waits for calls in progress.
	drainTime = 5 * time.Second
)

// Config describes a node. Only Dir is required.
type Config struct {
	// Dir is the folder of the log; it is created if it does not exist.
	Dir string
	// FS is the file system that holds Dir: nil is the disk.
	FS vfs.FS
	// Addr is where the node listens: 127.0.0.1:0 if empty, a free port of the loopback.
	Addr string
	// Certificate is the certificate of the node; nil creates one, which Connection returns.
	Certificate *tls.Certificate
	// Password is the password of the user "admin"; empty generates one, which Connection returns.
	Password string
	// Insecure serves every caller, without TLS and without a password. Only a loopback address may
	// be insecure.
	Insecure bool
	// Logger receives failures; nil discards them.
	Logger *slog.Logger
	// CacheBytes bounds the cache of blocks read from the disk: 64 MiB if 0.
	CacheBytes int64
	// SystemStream begins a new log with metadata of a system stream, as a server does: clients of
	// other languages expect an event of the server in a log.
	SystemStream bool
	// Tests set these fields of storage.Config.
	memtable       uint64
	now            func() time.Time
	manualScavenge bool
}

// Node is a running event store.
type Node struct {
	log        *slog.Logger
	engine     *storage.Engine
	server     *grpc.Server
	connection Connection

	closing   chan struct{} // closed when subscriptions are to end
	served    chan error
	closeOnce sync.Once
	closed    error
}

// Start opens the log and serves it; the node is reachable when it returns. The context bounds the
// start only: the node runs until Close. It fails if another process uses the folder.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Addr = cmp.Or(cfg.Addr, "127.0.0.1:0")
	engine, err := storage.Open(storage.Config{
		Dir: cfg.Dir, FS: cfg.FS, Logger: cfg.Logger, CacheBytes: cfg.CacheBytes,
		MemtableBytes: cfg.memtable, Now: cfg.now, ManualScavenge: cfg.manualScavenge,
	})
	if err != nil {
		return nil, err
	}
	n, err := start(ctx, cfg, engine)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return n, nil
}

func start(ctx context.Context, cfg Config, engine *storage.Engine) (*Node, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for event store clients: %w", err)
	}
	id, err := newIdentity(cfg, listener.Addr())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	members, err := newMembership(id.connection.Addr)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	n := &Node{
		log: cfg.Logger, engine: engine, connection: id.connection,
		closing: make(chan struct{}), served: make(chan error, 1),
	}
	n.server = grpc.NewServer(append(id.options(),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxReceived), grpc.MaxSendMsgSize(maxMessage),
		grpc.WriteBufferSize(bufferSize), grpc.ReadBufferSize(bufferSize),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(handshakeTime),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.ChainStreamInterceptor(n.recoverStream, id.authorize, checkSizes),
	)...)
	n.server.RegisterService(asStreams(streams.Streams_ServiceDesc), newService(n))
	registerOpen(n.server, members)
	if cfg.SystemStream && engine.Head() == 0 {
		err = n.writeSystemStream(ctx)
	}
	// Serve even if the start failed: stop expects a server that runs.
	go n.serve(newConnections(listener, maxConnections))
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

// writeSystemStream writes the first event of a log: how long servers keep the history of their
// scavenges. The node keeps no such history, so the stream stays otherwise empty. On a full disk
// the event is left out, and the node starts.
func (n *Node) writeSystemStream(ctx context.Context) error {
	name := storage.MetaPrefix + "$scavenges"
	first := storage.Propose(name, uuid.New(), storage.MetadataType, true, []byte(`{"$maxAge":2592000}`), nil)
	d, err := n.engine.Do(ctx, &storage.Request{
		Kind: storage.KindAppend, Stream: name,
		Expected: storage.Expectation{Revision: storage.NoStream}, Events: []storage.Proposed{first},
	})
	if err == nil && d.Verdict != storage.Written {
		err = errors.New("the log was not empty")
	}
	if errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrStalled) {
		n.log.Warn("the log begins without the metadata of a system stream", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the first event of the log: %w", err)
	}
	return nil
}

func (n *Node) serve(listener net.Listener) {
	err := n.server.Serve(listener)
	if errors.Is(err, grpc.ErrServerStopped) { // closed before it came to serve
		err = nil
	}
	if err != nil {
		n.log.Error("event store listener failed", "err", err)
	}
	n.served <- err
}

// Connection returns how a client of this process reaches the node.
func (n *Node) Connection() Connection { return n.connection }

// Close ends the subscriptions, waits a few seconds for other calls, and releases the folder. It
// may be called more than once.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closed = n.close() })
	return n.closed
}

func (n *Node) close() error {
	stopped := n.stop()
	return errors.Join(stopped, n.engine.Close())
}

// stop ends all calls and leaves the log open.
func (n *Node) stop() error {
	close(n.closing)
	force := time.AfterFunc(drainTime, n.server.Stop)
	n.server.GracefulStop()
	force.Stop()
	return <-n.served
}

// Stats counts what the node wrote since it started.
type Stats = storage.Stats

// Stats returns the counts so far.
func (n *Node) Stats() Stats { return n.engine.Stats() }

// Space is what the disk of the log has left.
type Space = storage.Space

// Space returns what the disk of the log has left.
func (n *Node) Space() Space { return n.engine.Space() }

// Failed is closed once the node can no longer write: see storage.Engine.Failed.
func (n *Node) Failed() <-chan struct{} { return n.engine.Failed() }

// Err returns the reason why Failed was closed; nil before.
func (n *Node) Err() error { return n.engine.Err() }

// Scavenge removes what was deleted before the call from the log and from its files: see
// storage.Engine.Scavenge.
func (n *Node) Scavenge(ctx context.Context) error { return n.engine.Scavenge(ctx) }

// Backup writes the log as of one moment into an empty folder while calls continue: see
// storage.Engine.Backup.
func (n *Node) Backup(ctx context.Context, dir string) error { return n.engine.Backup(ctx, dir) }

// Restore fills an empty folder with the log of a backup: see storage.Restore.
func Restore(ctx context.Context, backup, dir string) error {
	return storage.Restore(ctx, vfs.Default, backup, dir)
}

// BackedUp returns the position of the newest event in a backup.
func BackedUp(backup string) (position uint64, err error) {
	return storage.BackedUp(vfs.Default, backup)
}

// connections bounds the connections of a listener. A new one over the bound replaces the oldest on which no call was
// admitted yet. If there is none, the new one is closed.
type connections struct {
	net.Listener
	most int

	mu     sync.Mutex
	open   int
	closed bool
	// strangers are the connections without an admitted call, the oldest first.
	strangers *list.List // of *connection
}

func newConnections(of net.Listener, most int) *connections {
	return &connections{Listener: of, most: most, strangers: list.New()}
}

// Accept returns the next connection for which there is room. It never waits for room.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close() // nobody waits for what it returns
	}
}

// Close closes the listener and the connections without an admitted call: nothing waits for a handshake to end.
func (l *connections) Close() error {
	l.mu.Lock()
	l.closed = true
	var strangers []*connection
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		strangers = append(strangers, e.Value.(*connection))
	}
	l.mu.Unlock()
	for _, c := range strangers {
		_ = c.Close() // its transport notices
	}
	return l.Listener.Close()
}

// admit counts a connection. It returns nil if there is no room for it.
func (l *connections) admit(conn net.Conn) *connection {
	c := &connection{Conn: conn, of: l}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	var replaced *connection
	if l.open >= l.most {
		oldest := l.strangers.Front()
		if oldest == nil {
			l.mu.Unlock()
			return nil
		}
		replaced = oldest.Value.(*connection)
		l.remove(replaced)
	}
	l.open++
	c.place = l.strangers.PushBack(c)
	l.mu.Unlock()
	if replaced != nil {
		_ = replaced.Conn.Close() // its transport notices
	}
	return c
}

// remove no longer counts a connection. The caller holds mu.
func (l *connections) remove(c *connection) {
	if c.removed {
		return
	}
	c.removed = true
	l.open--
	if c.place != nil {
		l.strangers.Remove(c.place)
	}
}

// connection is a counted connection.
type connection struct {
	net.Conn
	of       *connections
	admitted atomic.Bool
	// place is in strangers, nil once a call was admitted. The mutex of the connections guards it, as removed.
	place   *list.Element
	removed bool
}

// admit records that a call of the connection was admitted.
func (c *connection) admit() {
	if c.admitted.Load() || c.admitted.Swap(true) {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.removed {
		c.of.strangers.Remove(c.place)
	}
	c.place = nil
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// counted are credentials that tell each call on which connection it came. They refuse what does not speak HTTP/2.
type counted struct {
	credentials.TransportCredentials
	// secure is nil without TLS.
	secure *tls.Config
}

// countedInfo is what counted adds to the peer of a call.
type countedInfo struct {
	credentials.AuthInfo
	connection *connection
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.handshake(raw)
	if err != nil {
		return nil, nil, err
	}
	from, _ := raw.(*connection) // every connection of the listener is one
	return conn, countedInfo{info, from}, nil
}

// handshake makes the TLS handshake, which grpc refuses to clients that do not ask for HTTP/2.
func (c counted) handshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.secure == nil {
		conn, err := onlyHTTP2(raw)
		if err != nil {
			return nil, nil, err
		}
		return c.TransportCredentials.ServerHandshake(conn)
	}
	secured := tls.Server(raw, c.secure)
	if err := secured.Handshake(); err != nil {
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	if info.State.NegotiatedProtocol == protocolHTTP2 {
		return &checkedConn{Conn: secured}, info, nil
	}
	conn, err := onlyHTTP2(secured)
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.secure.Clone()}
}

// connectionOf returns the connection of a call, nil if it is not counted.
func connectionOf(ctx context.Context) *connection {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := from.AuthInfo.(countedInfo)
	return info.connection
}

// recoverPanic is deferred by what serves a call. A panic becomes the error of that call, and is
// logged; a write that it interrupted may have been done.
func (n *Node) recoverPanic(method string, err *error) {
	if r := recover(); r != nil {
		n.log.Error("event store call panicked", "method", method, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the event store failed; see its log")
	}
}

// recoverStream is the outermost interceptor of all calls.
func (n *Node) recoverStream(
	server any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) (err error) {
	defer n.recoverPanic(info.FullMethod, &err)
	return handle(server, call)
}
