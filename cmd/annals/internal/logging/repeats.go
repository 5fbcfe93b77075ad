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

// withoutRepeats returns a handler that counts lines of a message instead of repeating them, those of each level apart,
// so that refused calls do not hide a failure. It writes the counts at the end of each window. At level Debug nothing
// is left out.
func withoutRepeats(h slog.Handler) slog.Handler {
	if h.Enabled(context.Background(), slog.LevelDebug) {
		return h
	}
	return repeats{h, &window{root: h, shown: map[line]int{}}}
}

type repeats struct {
	slog.Handler
	window *window
}

// Handle implements slog.Handler.
func (r repeats) Handle(ctx context.Context, record slog.Record) error {
	if !r.window.admit(line{record.Level, record.Message}) {
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

// line is what lines that repeat each other have in common.
type line struct {
	level   slog.Level
	message string
}

// window counts the lines of each message for a while. Messages are constant, so there are few.
type window struct {
	root slog.Handler

	mu    sync.Mutex
	shown map[line]int
}

// admit counts a line. The first one of a window begins it.
func (w *window) admit(of line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shown) == 0 {
		time.AfterFunc(repeatsWindow, w.end)
	}
	w.shown[of]++
	return w.shown[of] <= repeatsShown
}

// end writes what was left out, and ends the window.
func (w *window) end() {
	w.mu.Lock()
	counts := w.shown
	w.shown = map[line]int{}
	w.mu.Unlock()
	logger := slog.New(w.root)
	for of, n := range counts {
		if n > repeatsShown {
			logger.Warn("lines of a message were counted instead of written", "message", of.message, "count", n-repeatsShown,
				"within", repeatsWindow.String())
		}
	}
}
