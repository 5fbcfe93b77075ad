package projections

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
)

// transient says that a failure may be over when the page comes again: it says nothing about the events.
func transient(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, eventstore.ErrUnavailable, eventstore.ErrUnknown, errTooLong,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if _, marked := errors.AsType[*transientError](err); marked {
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

// transientState says it of a state of SQL.
func transientState(code string) bool {
	for _, class := range []string{
		"08", // connection
		"25", // state of the transaction, such as one that was idle for too long
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
