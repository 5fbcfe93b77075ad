package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

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
