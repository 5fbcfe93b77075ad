package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
)

// errorKind is what an error of the driver means.
type errorKind int

const (
	// unclear is every error that proves nothing about the call, such as a connection that was lost
	// during it.
	unclear errorKind = iota
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
	// closedHere: our side closed the connection during the call, since another call learned that it
	// leads to no leader.
	closedHere
	// cutOff: the server ended an append before it had all of it. The driver does not know why.
	cutOff
	wrongRevision
	deleted
	missing
	oversize
	// badPosition: no event begins at the position that was asked for.
	badPosition
	// full: the server has no space left, and wrote nothing of what was asked.
	full
	// refused: the server understood, and will not do it however often it is asked.
	refused
)

// classify returns the kind of a driver's error. The driver itself distinguishes few: it reads two
// of the server's trailers, and wraps some of its own errors so that its FromError does not find
// them. classify therefore uses errors.As, and the gRPC status for the other errors.
func classify(err error) errorKind {
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
	if e, ok := errors.AsType[*driver.Error](err); ok {
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
			// The driver's word for an empty stream has no status; a status of this code is a follower
			// without a leader.
			if _, remote := status.FromError(e.Err()); !remote {
				return missing
			}
		}
	}
	// After this the client is dead, whatever the reason was that discovery failed for.
	if strings.Contains(err.Error(), "maximum discovery attempt count reached") {
		return neverSent
	}
	if errors.Is(err, io.EOF) {
		return cutOff
	}
	switch st.Code() {
	case codes.Unavailable:
		return unreachable
	case codes.Canceled:
		if strings.Contains(st.Message(), "connection is closing") {
			return closedHere
		}
		return unclear
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
			return badPosition
		}
		return refused
	case codes.ResourceExhausted:
		// gRPC itself answers so where a message is too large, perhaps the answer to what was done;
		// the driver keeps the trailer to itself.
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

// readError returns the error of a failed read.
func readError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	switch classify(err) {
	case deleted:
		return fmt.Errorf("%s: %w", what, eventstore.ErrDeleted)
	case refused, badPosition:
		return fmt.Errorf("%s: %w", what, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnavailable, err)
	}
}

// writeError returns the error of a failed append or deletion: a definite one if there is one, or
// ErrUnknown. A server that was never reached is both ErrUnknown and ErrUnavailable, so that a
// caller that repeats unknown writes needs no second rule. A server without space is only
// ErrUnavailable: repeating the write is useless until somebody makes space.
func writeError(ctx context.Context, what string, err error) error {
	switch classify(err) {
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
