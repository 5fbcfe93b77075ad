package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// transient reports whether a page may succeed when it comes again: the events did not cause the
// failure.
func transient(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed, eventstore.ErrUnavailable, eventstore.ErrUnknown, errTooLong,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if projections.IsTransient(err) {
		return true
	}
	if _, network := errors.AsType[net.Error](err); network {
		return true
	}
	if _, unconnected := errors.AsType[*pgconn.ConnectError](err); unconnected {
		return true
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return transientState(refused.Code)
	}
	return pgconn.SafeToRetry(err)
}

// transientState is transient for an SQLSTATE.
func transientState(code string) bool {
	for _, class := range []string{
		"08", // connection
		"25", // state of the transaction, such as idle for too long
		"40", // rolled back: deadlock, serialization
		"53", // out of memory, disk or connections
		"55", // object is locked or not ready
		"57", // operator intervenes: shutdown, cancel
		"58", // error of the system
		"F0", // configuration files
		"XX", // error of the server
	} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
