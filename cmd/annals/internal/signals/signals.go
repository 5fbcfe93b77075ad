// Package signals has a process stop in order when the system asks it to.
package signals

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilStop returns a context that the first SIGINT, SIGTERM or SIGHUP ends, which requests an orderly stop. After
// that, SIGINT or SIGTERM ends the process at once. SIGHUP does not: when a terminal is closed, both the shell and the
// system send it. Under nohup it is ignored, and stays so.
func UntilStop() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	context.AfterFunc(ctx, stop)
	return ctx
}

// OutliveOutput has writes to a standard output or error that nobody reads any more fail, as after its terminal was
// closed. By default they end the process at once.
func OutliveOutput() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
