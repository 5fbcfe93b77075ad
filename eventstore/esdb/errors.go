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

// errorKind is the meaning of an error of the driver.
type errorKind int

const (
	// unclear: the error proves nothing about the call, such as a connection that was lost during it.
	unclear errorKind = iota
	none
	// noServer: no server was found, so nothing was sent.
	noServer
	// neverSent: the client lost its connection and will not get another one.
	neverSent
	// notLeader: a follower refused the call. The driver switches to the leader by itself.
	notLeader
	// noLeader: a follower that does not know the leader refused the call.
	noLeader
	unreachable
	// closedHere: this side closed the connection during the call, since another call found that it
	// does not reach a leader.
	closedHere
	// leftServer: this side ended the call, since its server did not answer and another member leads.
	leftServer
	// cutOff: the server ended an append before it had received all of it. The driver does not report
	// why.
	cutOff
	// timedOut: the server did not learn in time whether the call was executed. An EventStoreDB
	// answers so to an append while an equal one is being committed.
	timedOut
	wrongRevision
	deleted
	missing
	oversize
	// badPosition: no event begins at the requested position.
	badPosition
	// full: the server has no space left and wrote nothing of the call.
	full
	// refused: the server understood the call and refuses it permanently.
	refused
)

// classify returns the kind of an error of the driver. The driver distinguishes only a few: it
// reads two of the server's trailers, and it wraps some of its own errors so that its FromError
// does not find them. So classify uses errors.As, and the gRPC status of the other errors.
func classify(err error) errorKind {
	if err == nil {
		return none
	}
	if errors.Is(err, errMaybeExecuted) {
		return unclear
	}
	if errors.Is(err, errClosed) {
		return refused
	}
	if errors.Is(err, errNotConnected) {
		return noServer
	}
	if errors.Is(err, errLeftServer) {
		return leftServer
	}
	if errors.Is(err, errTimedOut) {
		return timedOut
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
			// The error of the driver for an empty stream has no status. With a status, this code means a
			// follower without a leader.
			if _, remote := status.FromError(e.Err()); !remote {
				return missing
			}
		}
	}
	// After this error the client is unusable, whatever the reason of the failed discovery was.
	if strings.Contains(err.Error(), "maximum discovery attempt count reached") {
		return neverSent
	}
	if errors.Is(err, io.EOF) {
		return cutOff
	}
	return classifyStatus(st)
}

// classifyStatus returns the kind of a gRPC status that the driver passes on as it is.
func classifyStatus(st *status.Status) errorKind {
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
	case codes.Aborted:
		if isDiskStalled(st.Message()) {
			return unclear
		}
		return timedOut
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
		// gRPC uses this code also for a message that is too large, perhaps the response to a call that
		// was executed. The driver does not pass the trailer on.
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

// isDiskStalled reports whether a write timed out because it waits for space on the disk of the
// embedded node. Repeating it would be useless until an operator frees space.
func isDiskStalled(message string) bool {
	return strings.Contains(message, "the disk of the event store is full")
}

// nameRight adds to an error the right on a stream that the call needed, if the server denies it.
func nameRight(err error, right eventstore.Right, stream string) error {
	if classify(err) != refused || status.Code(err) != codes.PermissionDenied {
		return err
	}
	return eventstore.Denied(right, stream, err)
}

// readError returns the error of a failed read.
func readError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		if _, named := errors.AsType[*unreachedLeader](err); !named {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	switch classify(err) {
	case deleted:
		return fmt.Errorf("%s: %w", what, eventstore.ErrDeleted)
	case refused, badPosition:
		if status.Code(err) == codes.Unauthenticated {
			return fmt.Errorf("%s: %w: %w: %w", what, eventstore.ErrUnavailable, ErrCredentials, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnavailable, err)
	}
}

// writeError returns the error of a failed append or deletion: a definite error, or ErrUnknown. An
// unreachable server is both ErrUnknown and ErrUnavailable, so that callers that repeat unknown
// writes need only one rule. A server without space is only ErrUnavailable: repeating the write is
// useless until an operator frees space.
func writeError(ctx context.Context, what string, err error) error {
	switch classify(err) {
	case wrongRevision:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrConflict, err)
	case deleted:
		return fmt.Errorf("%s: %w", what, eventstore.ErrDeleted)
	case oversize:
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrTooLarge, err)
	case refused:
		if status.Code(err) == codes.Unauthenticated { // nothing was written
			return fmt.Errorf("%s: %w: %w: %w", what, eventstore.ErrUnavailable, ErrCredentials, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	case full:
		return fmt.Errorf("%s: %w: %w", what, errors.Join(eventstore.ErrUnavailable, eventstore.ErrFull), err)
	case noServer, neverSent, notLeader, noLeader, unreachable, leftServer:
		return fmt.Errorf("%s: %w: %w: %w", what, eventstore.ErrUnknown, eventstore.ErrUnavailable, err)
	default:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %w", what, eventstore.ErrUnknown, err)
	}
}
