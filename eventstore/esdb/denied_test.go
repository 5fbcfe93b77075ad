package esdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"

	"github.com/annals-project/annals/eventstore"
)

// A call that an EventStoreDB denies names the right that is missing, and may be repeated.
func TestCalls_Denied(t *testing.T) {
	denied := failing{codes.PermissionDenied, "Access Denied", []string{"exception", "access-denied"}}
	readable := func(name string) bool { return name == "identity-1" }
	f := &fake{
		onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
			if name := string(req.GetOptions().GetStream().GetStreamIdentifier().GetStreamName()); readable(name) {
				return out.Send(event(name, "thing.done.v1", 5, 7))
			}
			return denied.on(out.Context())
		},
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error { return denied.on(in.Context()) },
		onDelete: func(ctx context.Context) (*streams.DeleteResp, error) { return nil, denied.on(ctx) },
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store, ctx := insecure(t, addr), within(t, hangLimit)
	for _, c := range []struct {
		name   string
		right  eventstore.Right
		stream string
		call   func() error
	}{
		{"read", eventstore.MayRead, "a-1", func() error { _, _, err := store.ReadLast(ctx, "a-1"); return err }},
		{"head", eventstore.MayRead, "$all", func() error { _, err := store.Head(ctx); return err }},
		{"subscribe", eventstore.MayRead, "$all", func() error { _, err := store.Subscribe(ctx, 0); return err }},
		{"append", eventstore.MayWrite, "a-1", func() error {
			_, err := store.Append(ctx, "a-1", eventstore.NoStream, oneEvent())
			return err
		}},
		{"delete", eventstore.MayDelete, "a-1", func() error { _, err := store.Delete(ctx, "a-1", 3); return err }},
		{"tombstone", eventstore.MayDelete, "a-1", func() error { _, err := store.Tombstone(ctx, "a-1", 3); return err }},
		{
			"truncate, metadata not to be read", eventstore.MayReadMetadata, "identity-1",
			func() error { return store.Truncate(ctx, "identity-1", 3) },
		},
		{
			"append to metadata", eventstore.MayWriteMetadata, "identity-1",
			func() error {
				_, err := store.Append(ctx, "$$identity-1", eventstore.NoStream, oneEvent())
				return err
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			named, is := errors.AsType[*eventstore.DeniedError](err)
			if !is || named.Right != c.right || named.Stream != c.stream {
				t.Fatalf("got %v, want the right %s of %s", err, c.right, c.stream)
			}
			if !errors.Is(err, eventstore.ErrDenied) || !errors.Is(err, eventstore.ErrUnavailable) ||
				errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("it is %v", err)
			}
			if !strings.Contains(err.Error(), `the right "`+string(c.right)+`" in the $acl of `+c.stream) {
				t.Errorf("it reads %v", err)
			}
		})
	}
}
