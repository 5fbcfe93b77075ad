package esdb_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"github.com/annals-project/annals/eventstore"
)

// Another writer always changes the metadata first: the truncation pauses between its tries and
// ends with its context.
func TestTruncate_AlwaysConflicts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries atomic.Int64
	f := &fake{
		onRead: func(req *streams.ReadReq, out streams.Streams_ReadServer) error {
			name := string(req.GetOptions().GetStream().GetStreamIdentifier().GetStreamName())
			if strings.HasPrefix(name, "$$") {
				return out.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
					StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)}},
				}})
			}
			return out.Send(event(name, "thing.done.v1", 5, 7))
		},
		onAppend: func(_ []*streams.AppendReq, in streams.Streams_AppendServer) error {
			if tries.Add(1) == 4 {
				cancel()
			}
			return in.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{
				WrongExpectedVersion: &streams.AppendResp_WrongExpectedVersion{
					CurrentRevisionOption:  &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: 3},
					ExpectedRevisionOption: &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &shared.Empty{}},
				},
			}})
		},
	}
	addr, _ := f.serve(t, "127.0.0.1:0")
	store := insecure(t, addr)
	began := time.Now()
	err := store.Truncate(ctx, "identity-1", 3)
	if errors.Is(err, eventstore.ErrConflict) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	// Three pauses lie between four tries: of at least 5, 10 and 20 ms.
	if took := time.Since(began); took < 35*time.Millisecond || tries.Load() != 4 {
		t.Errorf("%d tries in %s", tries.Load(), took)
	}
}
