package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// maxTries is how often a call is made that certainly was not executed.
const maxTries = 3

// do makes one call. It returns when the context ends, even if the driver does not. It repeats the
// call if the error proves that it was not executed; again reports which other errors allow a
// repeat.
func do[T any](
	ctx context.Context, p *pool, again func(errorKind) bool, call func(context.Context, *driver.Client) (T, error),
) (T, error) {
	var zero T
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return zero, p.nameLeader(ctx, err)
		}
		value, err := once(ctx, p, call)
		if err == nil {
			return value, nil
		}
		if why := classify(err); try == maxTries || !isNotExecuted(why) && !again(why) {
			return zero, p.nameLeader(ctx, err)
		}
	}
}

// unreachedLeader is the error of a call that its server left to a leader that could not be reached.
type unreachedLeader struct {
	address string
	err     error
}

func (e *unreachedLeader) Error() string {
	return fmt.Sprintf("%v: the server is not the leader, and the leader that it names, %s, cannot be reached",
		e.err, e.address)
}

func (e *unreachedLeader) Unwrap() error { return e.err }

// nameLeader adds the address of the leader to the error of a call that did not reach it.
func (p *pool) nameLeader(ctx context.Context, err error) error {
	leader := p.namedLeader.Load()
	if leader == nil {
		return err
	}
	switch classify(err) {
	case notLeader, noServer, neverSent, unreachable:
		return &unreachedLeader{*leader, err}
	default:
		if ctx.Err() != nil {
			return &unreachedLeader{*leader, err}
		}
		return err
	}
}

// isNotExecuted reports whether a call was not executed, so that another server or another
// connection may execute it.
func isNotExecuted(why errorKind) bool {
	return why == neverSent || why == notLeader || why == noLeader
}

func once[T any](ctx context.Context, p *pool, call func(context.Context, *driver.Client) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var zero T
	l, err := p.acquire(ctx)
	if err != nil {
		return zero, err
	}
	if p.leader == nil && !p.redirected.Load() {
		// A connected client ends its calls with their contexts.
		defer p.release(l)
		value, err := callOn(ctx, l, call)
		p.handleError(l, err)
		return value, err
	}
	defer p.watch(l)()
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() { answers <- a }()
		defer recoverPanic(&a.err)
		defer p.release(l)
		a.value, a.err = callOn(ctx, l, call)
		p.handleError(l, a.err)
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

// recoverPanic must be deferred directly. It adds a panic to the error.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = errors.Join(*err, fmt.Errorf("event store client panicked: %v", v))
	}
}

// enteringContext is the context of a call that is entering a client. The driver reads the
// deadline of its caller right after it has obtained the connection, before it uses it.
type enteringContext struct {
	context.Context
	link    *link
	arrived atomic.Bool
}

// Deadline implements context.Context.
func (e *enteringContext) Deadline() (time.Time, bool) {
	e.arrive()
	return e.Context.Deadline()
}

func (e *enteringContext) arrive() {
	if !e.arrived.Swap(true) {
		e.link.entering.Done()
	}
}

// callOn makes a call on a client that was acquired.
func callOn[T any](
	ctx context.Context, l *link, call func(context.Context, *driver.Client) (T, error),
) (value T, err error) {
	e := &enteringContext{Context: ctx, link: l}
	defer e.arrive() // also if the driver returned before it read the deadline
	// The driver panics on unexpected responses, and if it is closed during a call.
	defer recoverPanic(&err)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.left, func() { cancel(context.Cause(l.left)) })()
	e.Context = toLeader(ctx)
	value, err = call(e, l.client)
	if why := classify(err); l.left.Err() != nil && (why == unclear || why == cutOff) {
		err = fmt.Errorf("%w: %w", context.Cause(l.left), err)
	}
	return value, err
}

const (
	// repeatLimit is how long an append is repeated before it fails with ErrUnknown.
	repeatLimit = 30 * time.Second
	// firstRepeatPause is short, since the usual reason is an equal append that is being committed.
	firstRepeatPause   = 50 * time.Millisecond
	longestRepeatPause = 2 * time.Second
)

var (
	// errTimedOut reports an append over the shared call that timed out on the server.
	errTimedOut = errors.New("the append timed out on the server")
	// errMaybeExecuted is in the error of an append of which an earlier try may have been executed.
	errMaybeExecuted = errors.New("an earlier try may have been executed")
)

// repeat makes an append, and makes it again after a pause while isRepeatable. An append is
// idempotent: once a try was executed, each later one returns its outcome. repeat gives up after
// repeatLimit, when the context ends, and when the store is closed.
func repeat[T any](
	ctx context.Context, closed <-chan struct{}, appendOnce func(context.Context) (T, error),
) (T, error) {
	began := time.Now()
	value, err := appendOnce(ctx)
	if !isRepeatable(classify(err)) {
		return value, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(repeatLimit))
	defer cancel()
	for pause := (backoff.Backoff{First: firstRepeatPause, Longest: longestRepeatPause}); ; {
		if backoff.Pause(ctx, pause.Next(), closed) != nil {
			return value, err
		}
		select {
		case <-closed:
			return value, err
		default:
		}
		value, err = appendOnce(ctx)
		switch why := classify(err); {
		case isRepeatable(why):
		case why == refused || why == full:
			// Nothing was written by this try, but perhaps by an earlier one.
			return value, fmt.Errorf("%w: %w", errMaybeExecuted, err)
		default:
			return value, err
		}
	}
}

// isRepeatable reports whether an append has an unknown outcome although a server can be reached. A
// deletion or a tombstone is never repeated for that: if the first try was executed, the second
// returns a conflict or a deleted stream, as if another writer had been first.
func isRepeatable(why errorKind) bool { return why == timedOut || why == leftServer }

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
