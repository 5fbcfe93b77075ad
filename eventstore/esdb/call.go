package esdb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
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
