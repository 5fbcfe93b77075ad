package esdb_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/runtest"
)

// hangLimit bounds a test that hangs; it is far beyond what a slow machine needs.
const hangLimit = 3 * time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCalls_RequireLeader(t *testing.T) {
	f := &fake{
		onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
			if req.GetOptions().GetSubscription() == nil {
				return nil
			}
			err := out.Send(confirmation())
			<-out.Context().Done() // a server that ends the subscription here may be seen to drop it
			return err
		},
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
			return in.SendAndClose(appended(0, 7))
		},
		onDelete: func(context.Context) (*streams.DeleteResp, error) {
			return &streams.DeleteResp{
				PositionOption: &streams.DeleteResp_Position_{Position: &streams.DeleteResp_Position{CommitPosition: 8}},
			}, nil
		},
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	calls := []func() error{
		func() error { _, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent()); return err },
		func() error { _, err := store.Read(ctx, "a-1", 0, eventstore.Forwards, 1); return err },
		func() error { _, err := store.ReadAll(ctx, 0, 1); return err },
		func() error { _, err := store.Head(ctx); return err },
		func() error { _, err := store.Delete(ctx, "a-1", 0); return err },
		func() error { _, err := store.Tombstone(ctx, "a-1", 0); return err },
		func() error {
			sub, err := store.Subscribe(ctx, 0)
			if err != nil {
				return err
			}
			return sub.Close()
		},
	}
	for i, call := range calls {
		if err := call(); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := f.count(); n != len(calls) {
		t.Fatalf("%d calls reached the server, want %d", n, len(calls))
	}
	for i, md := range f.calls {
		if got := md.Get("requires-leader"); len(got) != 1 || got[0] != "true" {
			t.Errorf("call %d: requires-leader is %q", i, got)
		}
	}
}

func TestAppend_Failures(t *testing.T) {
	for _, c := range []struct {
		name string
		with failing
		want error
	}{
		{"stalled disk", failing{codes.Aborted, stalledDisk, nil}, eventstore.ErrUnknown},
		{"failed within", failing{codes.Internal, "oops", nil}, eventstore.ErrUnknown},
		{"failed somehow", failing{codes.Unknown, "oops", nil}, eventstore.ErrUnknown},
		{"not ready", failing{codes.Unavailable, "Server Is Not Ready", nil}, eventstore.ErrUnknown},
		{"not ready, as unavailable", failing{codes.Unavailable, "Server Is Not Ready", nil}, eventstore.ErrUnavailable},
		{"past the deadline", failing{codes.DeadlineExceeded, "late", nil}, eventstore.ErrUnknown},
		{"cancelled", failing{codes.Canceled, "going down", nil}, eventstore.ErrUnknown},
		{"nobody leads", failing{codes.NotFound, "Leader info available", []string{"exception", "not-leader"}}, eventstore.ErrUnavailable},
		{"deleted", failing{codes.FailedPrecondition, "Event stream 'a-1' is deleted.", []string{"exception", "stream-deleted", "stream-name", "a-1"}}, eventstore.ErrDeleted},
		{"deleted, but a trailer is missing", failing{codes.FailedPrecondition, "Event stream 'a-1' is deleted.", []string{"exception", "stream-deleted"}}, eventstore.ErrUnknown},
		{
			"too large",
			failing{codes.InvalidArgument, "Maximum Append Size of 1024 Exceeded.", []string{"exception", "maximum-append-size-exceeded"}},
			eventstore.ErrTooLarge,
		},
		{"not allowed", failing{codes.PermissionDenied, "Access Denied", []string{"exception", "access-denied"}}, nil},
		{"not known", failing{codes.Unauthenticated, "who?", nil}, esdb.ErrCredentials},
		{"not known, for callers", failing{codes.Unauthenticated, "who?", nil}, eventstore.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{
				onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error { return c.with.on(in.Context()) },
			}
			addr, _ := f.serve(t, "127.0.0.1:0")
			_, err := insecure(t, addr).Append(within(t, hangLimit), "a-1", eventstore.NoStream, oneEvent())
			// A write that may have been done is never repeated without the caller. A write that a
			// follower refused may be.
			if n := f.count(); n != 1 && c.name != "nobody leads" {
				t.Errorf("it was sent %d times", n)
			}
			known := []error{eventstore.ErrUnknown, eventstore.ErrDeleted, eventstore.ErrTooLarge, eventstore.ErrConflict}
			switch {
			case err == nil:
				t.Error("it succeeded")
			case c.want != nil && !errors.Is(err, c.want):
				t.Errorf("got %v, want %v", err, c.want)
			case c.want == nil:
				for _, k := range known {
					if errors.Is(err, k) {
						t.Errorf("got %v, which is %v", err, k)
					}
				}
			}
		})
	}
}

func TestDelete_Failures(t *testing.T) {
	for _, c := range []struct {
		name string
		with failing
		want error
	}{
		{
			"at another revision",
			failing{
				codes.FailedPrecondition, "Append failed due to WrongExpectedVersion. Stream: a-1, Expected version: 3, Actual version: 5",
				[]string{"exception", "wrong-expected-version", "stream-name", "a-1", "expected-version", "3", "actual-version", "5"},
			},
			eventstore.ErrConflict,
		},
		{"deleted", failing{codes.FailedPrecondition, "Event stream 'a-1' is deleted.", []string{"exception", "stream-deleted", "stream-name", "a-1"}}, eventstore.ErrDeleted},
		{"timed out", failing{codes.Aborted, "Operation timed out", nil}, eventstore.ErrUnknown},
		{"not ready", failing{codes.Unavailable, "Server Too Busy", nil}, eventstore.ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{onDelete: func(ctx context.Context) (*streams.DeleteResp, error) { return nil, c.with.on(ctx) }}
			addr, _ := f.serve(t, "127.0.0.1:0")
			store, ctx := insecure(t, addr), within(t, hangLimit)
			if _, err := store.Delete(ctx, "a-1", 3); !errors.Is(err, c.want) || f.count() != 1 {
				t.Errorf("delete: %v, want %v", err, c.want)
			}
			wantError(t, "tombstone", errorOf(store.Tombstone(ctx, "a-1", 3)), c.want)
		})
	}
}

func TestRead_FollowerWithoutLeader(t *testing.T) {
	f := &fake{onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return failing{codes.NotFound, "Leader info available", []string{"exception", "not-leader"}}.on(out.Context())
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	wantError(t, "read", errorOf(store.Read(ctx, "a-1", 0, eventstore.Forwards, 1)), eventstore.ErrUnavailable)
	if last, ok, err := store.ReadLast(ctx, "a-1"); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("last: %v, %t, %v", last, ok, err)
	}
	wantError(t, "subscribe", errorOf(store.Subscribe(ctx, 0)), eventstore.ErrUnavailable)
}

// A user whose password was changed is named as the cause, and calls may be repeated.
func TestRead_CredentialsRefused(t *testing.T) {
	f := &fake{onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return failing{codes.Unauthenticated, "Authentication Failed", nil}.on(out.Context())
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	_, err := insecure(t, addr).Head(within(t, hangLimit))
	wantError(t, "head", err, esdb.ErrCredentials, eventstore.ErrUnavailable)
}

func TestCalls_MoveToLeader(t *testing.T) {
	leader := &fake{onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
		return in.SendAndClose(appended(4, 7))
	}, onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return out.Send(event("a-1", "thing.done.v1", 4, 7))
	}}
	at, _ := leader.serve(t, "127.0.0.1:0")
	host, port, err := net.SplitHostPort(at)
	runtest.Must(t, err)
	elsewhere := failing{
		codes.NotFound,
		"Leader info available",
		[]string{"exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port},
	}
	follower := &fake{
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error { return elsewhere.on(in.Context()) },
		onRead:   func(_ *streams.ReadReq, out streams.Streams_ReadServer) error { return elsewhere.on(out.Context()) },
	}
	addr, _ := follower.serve(t, "127.0.0.1:0")
	for what, call := range map[string]func(context.Context, *esdb.Store) error{
		"append": func(ctx context.Context, s *esdb.Store) error {
			done, err := s.Append(ctx, "a-1", 3, oneEvent())
			if done.Revision != 4 {
				t.Errorf("answered %+v", done)
			}
			return err
		},
		"read": func(ctx context.Context, s *esdb.Store) error {
			events, err := s.Read(ctx, "a-1", 4, eventstore.Forwards, 1)
			if len(events) != 1 {
				t.Errorf("read %d events", len(events))
			}
			return err
		},
	} {
		before, store := follower.count(), insecure(t, addr)
		if err := call(within(t, hangLimit), store); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		// If the leader cannot be reached, the error names it, too.
		lost := store.ErrorOfCall(t.Context(), status.Error(codes.Unavailable, "connection refused"))
		if status.Code(lost) != codes.Unavailable || !strings.Contains(lost.Error(), "the leader that it names, "+at) {
			t.Errorf("%s: got %v, want %s in it", what, lost, at)
		}
		if n := follower.count() - before; n != 1 {
			t.Errorf("%s: %d calls to the follower", what, n)
		}
	}
}

func TestCalls_UnexpectedAnswers(t *testing.T) {
	f := &fake{onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return out.Send(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: 3}})
	}, onDelete: func(context.Context) (*streams.DeleteResp, error) {
		return &streams.DeleteResp{PositionOption: &streams.DeleteResp_NoPosition{NoPosition: &shared.Empty{}}}, nil
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	wantError(t, "read", errorOf(store.Read(ctx, "a-1", 0, eventstore.Forwards, 1)), eventstore.ErrUnavailable)
	wantError(t, "delete", errorOf(store.Delete(ctx, "a-1", 0)), eventstore.ErrUnknown)
}

func TestAppend_RepeatWithoutPosition(t *testing.T) {
	f := &fake{
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
			return in.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
				CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: 5},
				PositionOption:        &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}},
			}}})
		},
		onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
			return out.Send(event("a-1", "thing.done.v1", 5, 77))
		},
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	done, err := insecure(t, addr).Append(within(t, hangLimit), "a-1", 4, oneEvent())
	if want := (eventstore.Appended{Revision: 5, Position: 77}); err != nil || done != want {
		t.Errorf("got %+v, %v; want %+v", done, err, want)
	}
}

func TestAppend_AboveLimit(t *testing.T) {
	f := &fake{onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
		return in.SendAndClose(appended(0, 7))
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	big := oneEvent()
	big[0].Data = make([]byte, eventstore.MaxAppend)
	_, err := insecure(t, addr).Append(within(t, hangLimit), "a-1", eventstore.NoStream, big)
	wantError(t, "the error", err, eventstore.ErrTooLarge)
	if n := f.count(); n != 0 {
		t.Errorf("%d appends were sent", n)
	}
}

func TestReadAt_InvalidPosition(t *testing.T) {
	f := &fake{onRead: func(_ *streams.ReadReq, out streams.Streams_ReadServer) error {
		return failing{codes.InvalidArgument, "Trying to read from an invalid position.", nil}.on(out.Context())
	}}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	if r, ok, err := store.ReadAt(ctx, 41); ok || !errors.Is(err, eventstore.ErrNoEvent) {
		t.Errorf("at: %+v, %t, %v", r, ok, err)
	}
	if events, err := store.ReadAll(ctx, 41, 1); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("all: %v, %v", events, err)
	}
}

func TestOpen_ErrorWithoutConnectionString(t *testing.T) {
	for _, s := range []string{"", "http://admin:secret@localhost", "esdb://admin:secret@%zz", "esdb://admin:secret@host:port"} {
		_, err := esdb.Open(esdb.Config{ConnectionString: s, Logger: quiet()})
		if err == nil {
			t.Errorf("%q was taken", s)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
	if _, err := esdb.Open(esdb.Config{ConnectionString: "esdb://localhost"}); err == nil {
		t.Error("no logger is needed")
	}
}
