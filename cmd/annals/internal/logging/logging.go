// Package logging makes the log of the service: lines that people read at a terminal, JSON elsewhere.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/pg"
)

// Format is the form of the lines.
type Format string

// The formats. Auto is Text if the output is a terminal, else JSON.
const (
	Auto Format = "auto"
	Text Format = "text"
	JSON Format = "json"
)

// Parse reads a format. An empty text is Auto.
func Parse(text string) (Format, error) {
	if text == "" {
		return Auto, nil
	}
	if f := Format(text); slices.Contains([]Format{Auto, Text, JSON}, f) {
		return f, nil
	}
	return "", fmt.Errorf("is %q: want auto, text or json", text)
}

// For returns the format on an output, Text or JSON.
func (f Format) For(out io.Writer) Format {
	switch {
	case f == Text, f == Auto && terminal.Is(out):
		return Text
	default:
		return JSON
	}
}

// New makes a logger that counts what is repeated very often. A line of Text begins with the time of the day and the
// level.
func New(out io.Writer, format Format, level slog.Leveler) *slog.Logger {
	if format.For(out) == JSON {
		return slog.New(withoutRepeats(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: plain})))
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: shorten}
	return slog.New(withoutRepeats(slog.NewTextHandler(&lines{out}, options)))
}

const clock = "15:04:05.000"

// shorten cuts the time to that of the day.
func shorten(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format(clock))
	}
	return plain(groups, a)
}

// plain has the cause of a connection that was not made once, where the driver lists every try.
func plain(_ []string, a slog.Attr) slog.Attr {
	if err, is := a.Value.Any().(error); is && pg.IsUnconnected(err) {
		a.Value = slog.StringValue(pg.Plain(err))
	}
	return a
}

// lines is a writer for slog.TextHandler, which writes each record by one call. It takes away the names of the three
// attributes that every record begins with.
type lines struct{ to io.Writer }

// Write implements io.Writer.
func (l *lines) Write(record []byte) (int, error) {
	text := string(record)
	for _, name := range []string{"time=", "level=", "msg="} {
		text = strings.Replace(text, name, "", 1)
	}
	if _, err := io.WriteString(l.to, text); err != nil {
		return 0, err
	}
	return len(record), nil
}

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
