package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatsShown is how many lines of one message are written within repeatsWindow. The others are counted: while
	// a server is away, each call and each projection logs the same.
	repeatsShown  = 20
	repeatsWindow = 10 * time.Second
)

// withoutRepeats returns a handler that counts lines of a message instead of repeating them. It writes the counts at
// the end of each window. At level Debug nothing is left out.
func withoutRepeats(h slog.Handler) slog.Handler {
	if h.Enabled(context.Background(), slog.LevelDebug) {
		return h
	}
	return repeats{h, &window{root: h, shown: map[string]int{}}}
}

type repeats struct {
	slog.Handler
	window *window
}

// Handle implements slog.Handler.
func (r repeats) Handle(ctx context.Context, record slog.Record) error {
	if !r.window.admit(record.Message) {
		return nil
	}
	return r.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (r repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return repeats{r.Handler.WithAttrs(attrs), r.window}
}

// WithGroup implements slog.Handler.
func (r repeats) WithGroup(name string) slog.Handler {
	return repeats{r.Handler.WithGroup(name), r.window}
}

// window counts the lines of each message for a while. Messages are constant, so there are few.
type window struct {
	root slog.Handler

	mu    sync.Mutex
	shown map[string]int
}

// admit counts a line. The first one of a window begins it.
func (w *window) admit(message string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shown) == 0 {
		time.AfterFunc(repeatsWindow, w.end)
	}
	w.shown[message]++
	return w.shown[message] <= repeatsShown
}

// end writes what was left out, and ends the window.
func (w *window) end() {
	w.mu.Lock()
	counts := w.shown
	w.shown = map[string]int{}
	w.mu.Unlock()
	logger := slog.New(w.root)
	for message, n := range counts {
		if n > repeatsShown {
			logger.Warn("lines of a message were counted instead of written", "message", message, "count", n-repeatsShown,
				"within", repeatsWindow.String())
		}
	}
}
