package runtest

import (
	"context"
	"log/slog"
	"sync"
)

// repeatsShown is how often Warnings writes one message. What failed must not drown in what is retried.
const repeatsShown = 3

// Warnings writes warnings and errors to the output of the test, the first ones of each message.
func Warnings(t T) *slog.Logger {
	text := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	return slog.New(&firstOnes{text, &tally{seen: map[string]int{}}})
}

// firstOnes is a handler that drops the repeats of a message.
type firstOnes struct {
	slog.Handler
	messages *tally
}

// tally counts messages.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (t *tally) add(message string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[message]++
	return t.seen[message]
}

// Handle implements slog.Handler.
func (f *firstOnes) Handle(ctx context.Context, r slog.Record) error {
	n := f.messages.add(r.Message)
	if n > repeatsShown {
		return nil
	}
	if n == repeatsShown {
		r.AddAttrs(slog.String("repeats", "not shown"))
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (f *firstOnes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &firstOnes{f.Handler.WithAttrs(attrs), f.messages}
}

// WithGroup implements slog.Handler.
func (f *firstOnes) WithGroup(name string) slog.Handler {
	return &firstOnes{f.Handler.WithGroup(name), f.messages}
}
