package esdb

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"

	"github.com/annals-project/annals/eventstore"
)

// deaf is a call whose server accepts everything and answers nothing.
type deaf struct {
	grpc.ClientStream
	ctx context.Context
}

func (d deaf) Send(*streams.BatchAppendReq) error { return nil }

func (d deaf) Recv() (*streams.BatchAppendResp, error) {
	<-d.ctx.Done()
	return nil, io.ErrUnexpectedEOF
}

func (d deaf) CloseSend() error { return nil }

// A call that does not answer an append in time is ended, and every append that waits on it
// returns.
func TestBatchCall_SilentServer(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	c := newBatchCall(ctx, fail, deaf{ctx: ctx})
	c.answerTimeout = time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := c.run()
		ended <- err
	}()
	if got := c.append(t.Context(), "a-1", eventstore.NoStream, nil); got != nil {
		t.Errorf("answered %v", got)
	}
	if err := <-ended; !errors.Is(err, errNoAnswer) {
		t.Errorf("ended for %v", err)
	}
	if len(c.waiting) != 0 {
		t.Errorf("%d wait still", len(c.waiting))
	}
}

// The pause before the next common call grows while the server ends each one.
func TestBatchAppender_PauseGrows(t *testing.T) {
	conf, err := driver.ParseConnectionString("esdb://127.0.0.1:1?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	both := newBatchAppender(conf, slog.New(slog.DiscardHandler))
	conn, err := grpc.NewClient(both.address, both.options...)
	if err != nil {
		t.Fatal(err)
	}
	both.conn = conn
	want := firstBatchPause
	for range 10 {
		if both.pause != want {
			t.Errorf("the next pause is %s, want %s", both.pause, want)
		}
		both.run(conn)
		want = min(2*want, longestBatchPause)
	}
	if both.pause != longestBatchPause {
		t.Errorf("the pause has come to %s", both.pause)
	}
	if err := both.close(); err != nil {
		t.Error(err)
	}
	if call := both.current(); call != nil {
		t.Error("a call after the close")
	}
}
