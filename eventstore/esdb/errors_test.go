package esdb

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
