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
)

// failed is an answer that is an error: a status, and the trailers that say which.
type failed struct {
	code     codes.Code
	message  string
	trailers metadata.MD
}

func (f *failed) Error() string { return f.message }

// GRPCStatus lets grpc answer the error with its status.
func (f *failed) GRPCStatus() *status.Status { return status.New(f.code, f.message) }

func errStreamDeleted(stream string) error {
	return &failed{
		codes.FailedPrecondition, fmt.Sprintf("Event stream '%s' is deleted.", stream),
		metadata.Pairs("exception", "stream-deleted", "stream-name", stream),
	}
}

// errWrongVersion refuses a deletion of either kind; an append says it in its answer.
func errWrongVersion(stream string, expected expectation, current int64) error {
	return &failed{
		codes.FailedPrecondition,
		fmt.Sprintf("Delete failed due to WrongExpectedVersion. Stream: %s, Expected version: %s, Actual version: %d", stream, expected, current),
		metadata.Pairs("exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected.String(), "actual-version", strconv.FormatInt(current, 10)),
	}
}

func errTooLarge(limit int) error {
	return &failed{
		codes.InvalidArgument, fmt.Sprintf("Maximum Append Size of %d Exceeded.", limit),
		metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(limit)),
	}
}

func errMissingProperty(name string) error {
	return &failed{
		codes.InvalidArgument, "Required Metadata Property '" + name + "' is missing",
		metadata.Pairs("exception", "missing-required-metadata-property", "required-metadata-properties", keyType+","+keyContentType),
	}
}

// errFull refuses an append for good: nothing of it is in the log.
func errFull() error {
	return &failed{
		codes.ResourceExhausted, "The disk of the event store is full: nothing was written.",
		metadata.Pairs("exception", "disk-full"),
	}
}

// errStalled leaves the outcome of a write open: it waits for space on the disk, and may be written yet.
func errStalled() error {
	return &failed{
		codes.Aborted, "Operation timed out: the disk of the event store is full, or no file descriptor is left; what waits may be written later.",
		metadata.Pairs("exception", "disk-stalled"),
	}
}

func errInvalid(message string) error {
	return &failed{code: codes.InvalidArgument, message: message}
}

// answered turns any error into the one that grpc answers. Errors of the storage are logged where they happen first.
func answered(err error) error {
	var f *failed
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.Is(err, errClosing):
		return status.Error(codes.Unavailable, "Server Is Not Ready")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline of the call passed")
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Internal, "the event store failed; its log says why")
}

// trailersOf returns what goes beside the status of an error. A stream may have any bytes as its name, a header may not.
func trailersOf(err error) metadata.MD {
	var f *failed
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

// fail answers a streaming call with an error and its trailers; nil stays nil.
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

// answer logs an error that is the node's own, since the client is not told what it was.
func (n *Node) answer(err error) error {
	out := answered(err)
	if status.Code(out) == codes.Internal {
		n.log.Error("event store call failed", "err", err)
	}
	return out
}
