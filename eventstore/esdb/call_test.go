package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// TestClassify_Refusals covers the errors that a test cannot provoke in a server.
func TestClassify_Refusals(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want errorKind
	}{
		{"no error", nil, none},
		{"a search that failed for whatever reason", fmt.Errorf("maximum discovery attempt count reached: 10. Last Error: %w", status.Error(codes.Unauthenticated, "who?")), neverSent},
		{"no server, though the search failed for a refusal", fmt.Errorf("%w: %w", errNotConnected, status.Error(codes.PermissionDenied, "no")), noServer},
		{"an append that was cut off", fmt.Errorf("could not send append request. Reason: %w", io.EOF), cutOff},
		{"a status within a dropped subscription", errors.Join(errDropped, status.Error(codes.Unavailable, "gone")), unreachable},
		{"a precondition of another kind", status.Error(codes.FailedPrecondition, "something else"), refused},
		{"an argument of another kind", status.Error(codes.InvalidArgument, "something else"), refused},
		{"a full disk", status.Error(codes.ResourceExhausted, "The disk of the event store is full: nothing was written."), full},
		{"an answer too large for gRPC", status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)"), unclear},
		{"a closed store", fmt.Errorf("read: %w", errClosed), refused},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

var errCommitTimeout = status.Error(codes.Aborted, "Operation timed out: Commit phase timeout.")

// An append that times out is made again with growing pauses, for 30 s in all.
func TestRepeat_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []time.Time
		_, err := repeat(t.Context(), nil, func(context.Context) (int, error) {
			made = append(made, time.Now())
			return 0, errCommitTimeout
		})
		if !errors.Is(err, errCommitTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(made[0]); took != repeatLimit {
			t.Errorf("it gave up after %s", took)
		}
		for i := 1; i < len(made); i++ {
			pause, longest := made[i].Sub(made[i-1]), min(firstRepeatPause<<(i-1), longestRepeatPause)
			if pause > longest || pause < longest/2 {
				t.Errorf("pause %d was %s, want up to %s", i, pause, longest)
			}
		}
		if len(made) < 15 {
			t.Errorf("it was made %d times", len(made))
		}
	})
}

// A try that hangs ends with the limit, and the outcome stays unknown.
func TestRepeat_LastTryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		_, err := repeat(t.Context(), nil, func(ctx context.Context) (int, error) {
			if tries++; tries == 1 {
				return 0, errCommitTimeout
			}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		if classify(err) != unclear || time.Since(began) != repeatLimit || tries != 2 {
			t.Errorf("%d tries in %s: %v", tries, time.Since(began), err)
		}
	})
}

// The first try has all the time of its caller.
func TestRepeat_FirstTryIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, err := repeat(t.Context(), nil, func(ctx context.Context) (int, error) {
			<-time.After(2 * repeatLimit)
			return 7, ctx.Err()
		})
		if value != 7 || err != nil {
			t.Errorf("%d, %v", value, err)
		}
	})
}

// A pause ends at once with the context of the caller and with the store.
func TestRepeat_PauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		closed := make(chan struct{})
		for name, end := range map[string]func(){"context": cancel, "store": func() { close(closed) }} {
			var tries []time.Time
			own, stop := ctx, closed
			if name == "store" {
				own = t.Context()
			} else {
				stop = nil
			}
			ended := make(chan error)
			go func() {
				_, err := repeat(own, stop, func(context.Context) (int, error) {
					tries = append(tries, time.Now())
					return 0, errCommitTimeout
				})
				ended <- err
			}()
			synctest.Wait() // the first pause
			end()
			if err := <-ended; !errors.Is(err, errCommitTimeout) {
				t.Errorf("%s: %v", name, err)
			}
			if len(tries) != 1 || time.Since(tries[0]) != 0 {
				t.Errorf("%s: %d tries in %s", name, len(tries), time.Since(tries[0]))
			}
		}
	})
}

// What follows a try with an unknown outcome is definite only if it depends on what is stored.
func TestRepeat_LaterAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want errorKind
	}{
		{"success", nil, none},
		{"a conflict", status.Error(codes.FailedPrecondition, "WrongExpectedVersion"), wrongRevision},
		{"a deleted stream", status.Error(codes.FailedPrecondition, "Event stream 'a-1' is deleted."), deleted},
		{"a full disk", status.Error(codes.ResourceExhausted, "The disk of the event store is full: nothing was written."), unclear},
		{"access denied", status.Error(codes.PermissionDenied, "Access Denied"), unclear},
		{"a closed store", errClosed, unclear},
		{"an unreachable server", status.Error(codes.Unavailable, "Server Is Not Ready"), unreachable},
		{"no server", errNotConnected, noServer},
		{"something else", status.Error(codes.Internal, "oops"), unclear},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			_, err := repeat(t.Context(), nil, func(context.Context) (int, error) {
				if tries++; tries == 1 {
					return 0, errTimedOut
				}
				return 0, c.err
			})
			if got := classify(err); got != c.want || tries != 2 || !errors.Is(err, c.err) {
				t.Errorf("%s: %v (%d, want %d) after %d tries", c.name, err, got, c.want, tries)
			}
		})
	}
}

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
	runtest.Must(t, err)
	both := newBatchAppender(conf, slog.New(slog.DiscardHandler))
	conn, err := grpc.NewClient(both.address, both.options...)
	runtest.Must(t, err)
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
