package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
)

// callError is the error of a call: a status, and the trailers that identify it.
type callError struct {
	code     codes.Code
	message  string
	trailers metadata.MD
}

func (f *callError) Error() string { return f.message }

// GRPCStatus returns the status that grpc sends.
func (f *callError) GRPCStatus() *status.Status { return status.New(f.code, f.message) }

func errStreamDeleted(stream string) error {
	return &callError{
		codes.FailedPrecondition, fmt.Sprintf("Event stream '%s' is deleted.", stream),
		metadata.Pairs("exception", "stream-deleted", "stream-name", stream),
	}
}

// errWrongVersion refuses a deletion or a tombstone; the answer of an append contains the conflict.
func errWrongVersion(stream string, expected storage.Expectation, current int64) error {
	return &callError{
		codes.FailedPrecondition,
		fmt.Sprintf("Delete failed due to WrongExpectedVersion. Stream: %s, Expected version: %s, Actual version: %d", stream,
			expected, current),
		metadata.Pairs("exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected.String(),
			"actual-version", strconv.FormatInt(current, 10)),
	}
}

func errTooLarge(limit int) error {
	return &callError{
		codes.InvalidArgument, fmt.Sprintf("Maximum Append Size of %d Exceeded.", limit),
		metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(limit)),
	}
}

func errMissingProperty(name string) error {
	return &callError{
		codes.InvalidArgument, "Required Metadata Property '" + name + "' is missing",
		metadata.Pairs("exception", "missing-required-metadata-property", "required-metadata-properties",
			wire.KeyType+","+wire.KeyContentType),
	}
}

// errFull refuses an append: nothing of it is in the log.
func errFull() error {
	return &callError{
		codes.ResourceExhausted, "The disk of the event store is full: nothing was written.",
		metadata.Pairs("exception", "disk-full"),
	}
}

// errStalled leaves the outcome of a write unknown: it waits for space on the disk, and may still
// happen.
func errStalled() error {
	return &callError{
		codes.Aborted,
		"Operation timed out: the disk of the event store is full, or no file descriptor is left; " +
			"what waits may be written later.",
		metadata.Pairs("exception", "disk-stalled"),
	}
}

// errLongMessage refuses a message over the limit of the transport.
func errLongMessage() error {
	return &callError{
		code: codes.ResourceExhausted, message: "Received message exceeds the maximum configured message size.",
	}
}

func errInvalid(message string) error {
	return &callError{code: codes.InvalidArgument, message: message}
}

// errAccessDenied refuses a caller without credentials. Clients recognize it by its trailer.
func errAccessDenied() error {
	return &callError{
		codes.PermissionDenied, "Access Denied: the event store requires its user and password",
		metadata.Pairs("exception", "access-denied"),
	}
}

// errWrongPassword refuses a caller with other credentials.
func errWrongPassword() error {
	return &callError{code: codes.Unauthenticated, message: "the event store requires its user and password"}
}

// notServed is the text of a refusal of what a server of the protocol has beyond streams, over gRPC and HTTP/1.
func notServed(what string) string {
	return "the event store serves streams only: it has no persistent subscriptions, projections, users, operations or " +
		"statistics, and does not serve " + what
}

// answered converts any error to the one that grpc sends. Errors of the storage are logged first.
func answered(err error) error {
	var f *callError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.Is(err, storage.ErrFull):
		return errFull()
	case errors.Is(err, storage.ErrStalled):
		return errStalled()
	case errors.Is(err, storage.ErrClosing):
		return status.Error(codes.Unavailable, "Server Is Not Ready")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline of the call passed")
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Internal, "the event store failed; see its log")
}

// trailersOf returns the trailers of an error. A stream name may contain any bytes, a header may
// not.
func trailersOf(err error) metadata.MD {
	var f *callError
	if !errors.As(err, &f) {
		return nil
	}
	for _, values := range f.trailers {
		for i, value := range values {
			values[i] = strings.Map(printable, value)
		}
	}
	return f.trailers
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}

// fail ends a streaming call with an error and its trailers; nil stays nil.
func (n *Node) fail(call grpc.ServerStream, err error) error {
	if md := trailersOf(err); md != nil {
		call.SetTrailer(md)
	}
	return n.answer(err)
}

// failUnary is fail for a unary call.
func (n *Node) failUnary(ctx context.Context, err error) error {
	if md := trailersOf(err); md != nil {
		if failure := grpc.SetTrailer(ctx, md); failure != nil {
			n.log.Error("trailer of an answer was not set", "err", failure)
		}
	}
	return n.answer(err)
}

// answer logs internal errors, since the client does not receive their cause.
func (n *Node) answer(err error) error {
	out := answered(err)
	if status.Code(out) == codes.Internal {
		n.log.Error("event store call failed", "err", err)
	}
	return out
}
