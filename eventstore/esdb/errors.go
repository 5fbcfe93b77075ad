package esdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
)

// kind is what an error of the driver means.
type kind int

const (
	// unclear is everything that says nothing certain, among it a lost connection in the middle of a call.
	unclear kind = iota
	none
	// noServer: none was found, so nothing was sent.
	noServer
	// neverSent: the client lost its connection and will never have one again.
	neverSent
	// notLeader: refused by a follower; the driver goes over to the leader by itself.
	notLeader
	// noLeader: refused by a follower that does not know the leader.
	noLeader
	unreachable
	wrongRevision
	deleted
	missing
	oversize
	// noPlace: no event begins at the position that was asked for.
	noPlace
	// full: the server has no space left, and wrote nothing of what was asked.
	full
	// refused: the server understood, and will not do it however often it is asked.
	refused
)

// refusal reads an error of the driver. The driver itself tells few apart: it looks at two of the server's trailers, and wraps
// some of its own errors so that its FromError no longer finds them; hence errors.As here, and the gRPC status for the rest.
func refusal(err error) kind {
	if err == nil {
		return none
	}
	if errors.Is(err, errClosed) {
		return refused
	}
	if errors.Is(err, errNotConnected) {
		return noServer
	}
	st, _ := status.FromError(err)
	var e *driver.Error
	if errors.As(err, &e) {
		switch e.Code() {
		case driver.ErrorCodeConnectionClosed:
			return neverSent
		case driver.ErrorCodeWrongExpectedVersion:
			return wrongRevision
		case driver.ErrorCodeStreamDeleted:
			return deleted
		case driver.ErrorCodeNotLeader:
			return notLeader
		case driver.ErrorCodeResourceNotFound:
			// The driver's word for an empty stream has no status; a status of this code is a follower without a leader.
			if _, remote := status.FromError(e.Err()); !remote {
				return missing
			}
		}
	}
	// After this the client is dead, whatever the reason was that discovery failed for.
	if strings.Contains(err.Error(), "maximum discovery attempt count reached") {
		return neverSent
	}
	switch st.Code() {
	case codes.Unavailable:
		return unreachable
	case codes.NotFound:
		return noLeader
	case codes.FailedPrecondition:
		if strings.Contains(st.Message(), "is deleted") {
			return deleted
		}
		if strings.Contains(st.Message(), "WrongExpectedVersion") {
			return wrongRevision
		}
		return refused
	case codes.InvalidArgument:
		if strings.Contains(st.Message(), "Maximum Append") {
			return oversize
		}
		if strings.Contains(st.Message(), "invalid position") {
			return noPlace
		}
		return refused
	case codes.ResourceExhausted:
		// gRPC itself answers so where a message is too large, perhaps the answer to what was done; the driver keeps the trailer to itself.
		if strings.Contains(st.Message(), "disk of the event store is full: nothing was written") {
			return full
		}
		return unclear
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return refused
	default:
		return unclear
	}
}

// readError is how the failure of a read is told.
func readError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	switch refusal(err) {
	case deleted:
		return fmt.Errorf("%s: %w", what, eventstore.ErrDeleted)
	case refused, noPlace:
		return fmt.Errorf("%s: %w", what, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnavailable, err)
	}
}

// writeError is how the failure of an append or a deletion is told: with a definite answer where there is one, as
// ErrUnknown where there is none. A server that was never reached is both unknown and ErrUnavailable, so that a caller who
// repeats what is unknown needs no second rule. A server without space is ErrUnavailable alone: nothing is to be repeated before
// somebody made space.
func writeError(ctx context.Context, what string, err error) error {
	switch refusal(err) {
	case wrongRevision:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrConflict, err)
	case deleted:
		return fmt.Errorf("%s: %w", what, eventstore.ErrDeleted)
	case oversize:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrTooLarge, err)
	case refused:
		return fmt.Errorf("%s: %w", what, err)
	case full:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnavailable, err)
	case noServer, neverSent, notLeader, noLeader, unreachable:
		return fmt.Errorf("%s: %w: %w: %w", what, eventstore.ErrUnknown, eventstore.ErrUnavailable, err)
	default:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnknown, err)
	}
}
