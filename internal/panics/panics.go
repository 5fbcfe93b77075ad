// Package panics turns the panic of one call, item or page into its error, so that the process
// continues.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// Error is a recovered panic. Its text contains the value only: the stack is logged and never sent to
// a client.
type Error struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it was an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover is deferred directly by a function with a named error result. It sets that error to an *Error and logs the
// stack with msg and args. It re-panics with http.ErrAbortHandler, which net/http handles.
func Recover(ctx context.Context, logger *slog.Logger, err *error, msg string, args ...any) {
	v := recover()
	if v == nil {
		return
	}
	if abort, ok := v.(error); ok && errors.Is(abort, http.ErrAbortHandler) {
		panic(v)
	}
	p := &Error{Value: v, Stack: debug.Stack()}
	args = append(args, "panic", fmt.Sprint(v), "stack", string(p.Stack))
	logger.ErrorContext(ctx, msg, args...) //nolint:sloglint // the caller's message is constant
	*err = errors.Join(*err, p)
}

// Call runs fn and returns its error, or the *Error of its panic.
func Call(ctx context.Context, logger *slog.Logger, msg string, fn func() error, args ...any) (err error) {
	defer Recover(ctx, logger, &err, msg, args...)
	return fn()
}

// Go runs fn in a goroutine. A panic of fn ends that goroutine only, and is logged.
func Go(ctx context.Context, logger *slog.Logger, msg string, fn func()) {
	go func() {
		_ = Call(ctx, logger, msg, func() error { fn(); return nil })
	}()
}

// Each calls work with 0 to n-1, at most width at a time, and stops at the first error. A panic of a
// call is its error, and is logged.
func Each(ctx context.Context, logger *slog.Logger, width, n int, work func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(width)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			return Call(ctx, logger, "work on one item panicked", func() error { return work(ctx, i) }, "item", i)
		})
	}
	return g.Wait()
}
