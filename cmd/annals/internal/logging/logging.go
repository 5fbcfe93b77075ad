// Package logging makes the log of the service: lines that people read at a terminal, JSON elsewhere.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

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
