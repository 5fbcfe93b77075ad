package feed

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// recoverPanic runs fn and returns its panic, which it logs with its stack, as an error.
func recoverPanic(ctx context.Context, log *slog.Logger, fn func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.ErrorContext(ctx, "feed panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	fn()
	return nil
}
