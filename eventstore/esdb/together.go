package esdb

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
)

const (
	// togetherBytes is the largest append that goes with others: a bigger one would hold them up.
	togetherBytes = 64 << 10
	// togetherPause is how long appends go each by a call of its own after the common one was lost; it doubles up to
	// togetherRest while calls end without having done anything.
	togetherPause = time.Second
	togetherRest  = time.Minute
)

// together sends appends over one call of BatchAppend, of which the driver has none: an append of its own call costs several
// times what is in it. It is a short cut and no more: what it cannot send, and what it has no success to report of, is
// appended by the driver, under the same ids, and so is done once and told with the right error.
type together struct {
	address string
	options []grpc.DialOption
	log     *slog.Logger
	done    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	conn *grpc.ClientConn
	// call is nil while there is none; next is when one may be made.
	call *batchCall
	next time.Time
	// pause follows a call that did nothing.
	pause time.Duration
	// lacking says that the server takes none.
	lacking bool
}

// newTogether is nil where the server is to be discovered first: the driver alone knows how.
func newTogether(conf *driver.Configuration, log *slog.Logger) *together {
	if conf.Address == "" || conf.DnsDiscover || len(conf.GossipSeeds) > 0 || conf.UserCertFile != "" {
		return nil
	}
	transport := insecure.NewCredentials()
	var options []grpc.DialOption
	if !conf.DisableTLS {
		transport = credentials.NewTLS(&tls.Config{
			RootCAs: conf.RootCAs, InsecureSkipVerify: conf.SkipCertificateVerification, //nolint:gosec // the connection string asks for it
		})
		if conf.Username != "" {
			options = append(options, grpc.WithPerRPCCredentials(password("Basic "+base64.StdEncoding.EncodeToString([]byte(conf.Username+":"+conf.Password)))))
		}
	}
	if conf.KeepAliveInterval >= 0 { // as the driver does: else a server that vanished is noticed by nobody
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: conf.KeepAliveInterval, Timeout: conf.KeepAliveTimeout, PermitWithoutStream: true,
		}))
	}
	t := &together{address: conf.Address, options: append(options, grpc.WithTransportCredentials(transport)), log: log, pause: togetherPause}
	t.done, t.end = context.WithCancel(toLeader(context.Background()))
	return t
}

// password is sent with every call, over TLS only.
type password string

func (p password) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(p)}, nil
}

func (password) RequireTransportSecurity() bool { return true }

// known is what the common call knows of an append.
type known int

const (
	// nothing: it was not sent.
	nothing known = iota
	// notDone: it was sent, and no success came back. It may have been done all the same.
	notDone
	success
)

// append appends events of that size altogether, in bytes.
func (t *together) append(ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed, size int) (eventstore.Appended, known) {
	var done eventstore.Appended
	if size > togetherBytes {
		return done, nothing
	}
	call := t.current()
	if call == nil {
		return done, nothing
	}
	answer := call.ask(ctx, stream, expected, events).GetSuccess()
	if _, is := answer.GetCurrentRevisionOption().(*streams.BatchAppendResp_Success_CurrentRevision); !is {
		return done, notDone
	}
	done.Revision = eventstore.Revision(answer.GetCurrentRevision())
	done.Position = eventstore.Position(answer.GetPosition().GetCommitPosition())
	if done.Position == 0 || uint64(done.Position) == noPosition {
		return done, notDone
	}
	return done, success
}

// current is the call that stands, nil for none; then one is begun, for those who come later.
func (t *together) current() *batchCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call != nil || t.lacking || t.done.Err() != nil || time.Now().Before(t.next) {
		return t.call
	}
	t.next = time.Now().Add(t.pause)
	if t.conn == nil {
		conn, err := grpc.NewClient(t.address, t.options...)
		if err != nil {
			t.log.Warn("appends go one by one", "err", err)
			t.lacking = true
			return nil
		}
		t.conn = conn
	}
	conn := t.conn
	t.running.Go(func() { t.run(conn) })
	return nil
}

// run makes a call and keeps it until it ends.
func (t *together) run(conn *grpc.ClientConn) {
	ctx, fail := context.WithCancelCause(t.done)
	defer fail(nil)
	requests, err := streams.NewStreamsClient(conn).BatchAppend(ctx)
	useful := false
	if err == nil {
		call := newBatchCall(ctx, fail, requests)
		t.mu.Lock()
		t.call = call
		t.mu.Unlock()
		useful, err = call.run()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if useful {
		t.pause = togetherPause
	}
	t.call, t.next = nil, time.Now().Add(t.pause)
	if !useful {
		t.pause = min(2*t.pause, togetherRest)
	}
	switch {
	case t.done.Err() != nil:
	case status.Code(err) == codes.Unimplemented:
		t.lacking = true
		t.log.Info("the event store takes no appends together, they go one by one")
	default:
		t.log.Warn("the common call of appends was lost, they go one by one for a moment", "err", err)
	}
}

func (t *together) close() error {
	t.mu.Lock()
	t.end() // no call is begun from here on
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn = nil
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the connection of appends: %w", err)
	}
	return nil
}
