package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections"
)

// causedByEvent reports whether an error of a page of one event is caused by that event: what the projector made of
// it, or a value that the database refuses. Any other failure is repeated until its cause is gone; the event cannot
// be set aside for it.
func causedByEvent(err error) bool {
	_, ofApply := errors.AsType[*causeError](err)
	return ofApply && !transient(err)
}

// transient reports whether an error has a cause outside the data, so that the same call may succeed later.
func transient(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed, eventstore.ErrUnavailable, eventstore.ErrUnknown, errTooLong, pgx.ErrTxClosed,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if projections.IsTransient(err) {
		return true
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !pg.CausedByData(refused)
	}
	if _, network := errors.AsType[net.Error](err); network {
		return true
	}
	if _, unconnected := errors.AsType[*pgconn.ConnectError](err); unconnected {
		return true
	}
	if _, system := errors.AsType[syscall.Errno](err); system {
		return true
	}
	if _, file := errors.AsType[*fs.PathError](err); file {
		return true
	}
	return pgconn.SafeToRetry(err)
}
