package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// TestProtocol_FilterWithoutCheckpointInterval: a filtered read of the whole log is served with a checkpoint interval
// of 0. A subscription is refused: the real server ends the call with Unknown, the node with InvalidArgument.
func TestProtocol_FilterWithoutCheckpointInterval(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	stream := unused("filtered")
	c.append(stream, none, newEvents(3)...)
	uncheckpointed := func() *filterOptions {
		f := every(byStream(expression("", stream)), 500)
		f.CheckpointIntervalMultiplier = 0
		return f
	}
	for _, tt := range []struct {
		name string
		read *readOptions
		want []uint64
	}{
		{"forwards", filtered(ofAll(), uncheckpointed()), []uint64{0, 1, 2}},
		{"backwards", filtered(backwards(atEnd(ofAll())), uncheckpointed()), []uint64{2, 1, 0}},
		{"limited", limited(filtered(ofAll(), uncheckpointed()), 2), []uint64{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, revisions(c.read(tt.read))); diff != "" {
				t.Error(diff)
			}
		})
	}
	call, err := c.Read(runtest.Context(t), readOf(subscribed(filtered(ofAll(), uncheckpointed()))))
	for err == nil {
		_, err = call.Recv()
	}
	want := codes.Unknown
	if s.own != nil {
		want = codes.InvalidArgument
	}
	if status.Code(err) != want {
		t.Errorf("subscription: %v, want %v", err, want)
	}
}
