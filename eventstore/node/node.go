// Package node is an event store of its own inside the process: a log on disk that speaks the EventStoreDB protocol
// to the callers it knows.
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

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxMessage is the largest message that is taken: one event may be larger than the limit that refuses it.
	maxMessage = 17 << 20
	// clientPing is the least distance of a client's keepalive pings; the official client sends one every 10 s.
	clientPing = 5 * time.Second
	// bufferSize is what a connection gathers before it writes.
	bufferSize = 256 << 10
	// streamWindow and connectionWindow are how much a client may send unasked. Fixed windows spare the pings by which grpc would measure
	// what is good for the line: two writes for each append.
	streamWindow     = 2 * maxAppend
	connectionWindow = 8 << 20
	// streamWorkers are the goroutines that calls reuse: a new one would have to grow its stack for every call.
	streamWorkers = 64
	// drainTime bounds how long Close waits for calls that are under way.
	drainTime = 5 * time.Second
)

// Config says where the node keeps its log and where it listens.
type Config struct {
	// Dir is the folder of the log; it is made if it does not exist.
	Dir string
	// FS is the file system that holds Dir: nil is the disk.
	FS vfs.FS
	// Addr is where the node listens: 127.0.0.1:0 if empty, a free port of the loopback.
	Addr string
	// Certificate is what the node shows to clients; nil makes one, which clients find in Connection.
	Certificate *tls.Certificate
	// Password is that of the user "admin"; empty draws one, which clients find in Connection.
	Password string
	// Insecure serves everybody, without TLS and without a password; it is refused on an address that is not of the loopback.
	Insecure bool
	// Logger hears of failures; nil discards them.
	Logger *slog.Logger
	// CacheBytes bounds the cache of blocks read from the disk: 64 MiB if 0.
	CacheBytes int64
	// SystemStream begins a new log with metadata of a system stream, as a server does: clients of
	// other languages expect a log to hold events of its server.
	SystemStream bool
	// reserve is the space on the disk that appends leave free: defaultReserve if 0. memtable is what is held in memory before it
	// goes to a table, in bytes: memtableBytes if 0. now is the clock: that of the machine if nil. Tests set them.
	reserve, memtable uint64
	now               func() time.Time
	// asleep removes nothing before Scavenge is called.
	asleep bool
}

// Node is a running event store.
type Node struct {
	log        *slog.Logger
	store      *store
	views      *views
	tail       *tail
	writer     *writer
	scavenger  *scavenger
	stats      counters
	now        func() time.Time
	server     *grpc.Server
	connection Connection

	closing   chan struct{} // closed when subscriptions are to end
	served    chan error
	closeOnce sync.Once
	closed    error
}

// Stats counts what the node wrote since it started.
type Stats struct {
	// Appends are the appends that wrote events, Events the events written, system events included.
	Appends, Events uint64
	// Fsyncs are the group commits.
	Fsyncs uint64
}

// Start opens the log and serves it; the node is reachable when it returns. The context bounds the start only: the
// node runs until Close. A folder that another process uses is an error that says so.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	st, err := openStore(cfg)
	if err != nil {
		return nil, err
	}
	n, err := start(ctx, cfg, st)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return n, nil
}

func start(ctx context.Context, cfg Config, st *store) (*Node, error) {
	head, err := st.head()
	if err != nil {
		return nil, err
	}
	if err := st.before.checkHead(cfg.Dir, head); err != nil {
		return nil, err
	}
	if err := st.writeMark(head); err != nil {
		return nil, unopened(cfg.Dir, err)
	}
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
		log: cfg.Logger, store: st, views: &views{db: st.db}, tail: newTail(head),
		connection: id.connection, closing: make(chan struct{}), served: make(chan error, 1),
	}
	if err := n.views.publish(head); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	n.scavenger = newScavenger(st, n.views, cfg.Logger)
	n.writer = newWriter(st.db, n.views, n.tail, &n.stats, head, n.scavenger.wake)
	n.now, n.writer.now, n.scavenger.now, n.scavenger.asleep = cfg.now, cfg.now, cfg.now, cfg.asleep
	n.writer.broken, n.writer.stall = st.failure, st.disk.space.stall
	n.writer.short = func() bool { return st.disk.short(cmp.Or(cfg.reserve, defaultReserve)) }
	n.scavenger.removed, n.scavenger.renewed = n.writer.renew, n.writer.renewed
	n.server = grpc.NewServer(append(id.options(),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.WriteBufferSize(bufferSize), grpc.ReadBufferSize(bufferSize),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)...)
	streams.RegisterStreamsServer(n.server, newService(n))
	serverfeatures.RegisterServerFeaturesServer(n.server, features{})
	gossip.RegisterGossipServer(n.server, members)
	go n.writer.run()
	go n.scavenger.run()
	if cfg.SystemStream && head == 0 {
		err = n.writeSystemStream(ctx)
	}
	// Serve even if the start fails: stop is the only way to end what runs.
	go n.serve(listener)
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

// writeSystemStream writes the first event of a log: how long servers keep the history of their
// scavenges. The node keeps no such history, so the stream stays otherwise empty. On a full disk
// the event is left out, and the node starts all the same.
func (n *Node) writeSystemStream(ctx context.Context) error {
	name := metaPrefix + "$scavenges"
	first := propose(name, uuid.New(), metadataType, true, []byte(`{"$maxAge":2592000}`), nil)
	d, err := n.writer.do(ctx, &request{
		kind: kindAppend, stream: name, expected: expectation{revision: noStream}, events: []proposed{first},
	})
	if err == nil && d.verdict != write {
		err = errors.New("the log was not empty")
	}
	if refused := (*failed)(nil); errors.As(err, &refused) {
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
		n.log.Error("event store stopped listening", "err", err)
	}
	n.served <- err
}

// Connection says how a client of this process reaches the node.
func (n *Node) Connection() Connection { return n.connection }

// Stats returns the counts so far.
func (n *Node) Stats() Stats {
	return Stats{Appends: n.stats.appends.Load(), Events: n.stats.events.Load(), Fsyncs: n.stats.fsyncs.Load()}
}

// Close ends the subscriptions, lets other calls finish for a few seconds, and releases the folder. It may be called more than once.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closed = n.close() })
	return n.closed
}

func (n *Node) close() error {
	stopped := n.stop()
	return errors.Join(stopped, n.store.closeAt(n.writer.head))
}

// stop ends everything that runs and leaves the log open.
func (n *Node) stop() error {
	close(n.closing)
	force := time.AfterFunc(drainTime, n.server.Stop)
	n.server.GracefulStop()
	force.Stop()
	served := <-n.served
	n.store.disk.space.giveUp()
	written := n.writer.close()
	n.scavenger.close()
	return errors.Join(served, written, n.views.close())
}
