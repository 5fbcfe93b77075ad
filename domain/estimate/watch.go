package estimate

import (
	"context"
	"io"
	"strings"
)

// checkBytes is how much is read or written between two checks of the context.
const checkBytes = 32 << 10

// watch checks the context of a cut as the work proceeds. Loops count their work by over, and end when it
// reports so. Cut returns the error, so that loops need none.
type watch struct {
	ctx context.Context
	// unchecked is the work since the last check.
	unchecked int
	ended     error
}

// over counts n bytes of work. It reports whether the context has ended.
func (w *watch) over(n int) bool {
	if w.unchecked += n; w.unchecked >= checkBytes && w.ended == nil {
		w.unchecked, w.ended = 0, w.ctx.Err()
	}
	return w.ended != nil
}

// line splits a text at its first line end. Both parts are "" once the context has ended.
func (w *watch) line(text string) (line, rest string) {
	for at := 0; at < len(text); {
		end := min(at+checkBytes, len(text))
		if i := strings.IndexByte(text[at:end], '\n'); i >= 0 {
			if w.over(i + 1) {
				return "", ""
			}
			return text[:at+i], text[at+i+1:]
		}
		if w.over(end - at) {
			return "", ""
		}
		at = end
	}
	return text, ""
}

// reader returns a reader for a parser. Its error is that of the context.
func (w *watch) reader(from io.Reader) io.Reader { return &watchedReader{w, from} }

type watchedReader struct {
	watch *watch
	from  io.Reader
}

func (r *watchedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b[:min(len(b), checkBytes)])
	if r.watch.over(n) {
		return 0, r.watch.ended
	}
	return n, err
}

// normalize removes a byte order mark, and ends each line with \n.
func (w *watch) normalize(text string) string {
	return w.lineEnds(strings.ToValidUTF8(strings.TrimPrefix(text, byteOrderMark), "\ufffd"))
}

// lineEnds ends each line with \n.
func (w *watch) lineEnds(text string) string {
	if strings.IndexByte(text, '\r') < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for text != "" && !w.over(min(len(text), checkBytes)) {
		end := min(checkBytes, len(text))
		if end < len(text) && text[end-1] == '\r' && text[end] == '\n' {
			end++
		}
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(text[:end], "\r\n", "\n"), "\r", "\n"))
		text = text[end:]
	}
	return b.String()
}
