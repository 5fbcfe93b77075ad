package estimate

import (
	"context"
	"io"
	"strings"
)

// lookBytes is how much is read or written between two looks at the context.
const lookBytes = 32 << 10

// looker ends work whose context has ended. The loops of this package count what they do, so that they need
// no error of their own: a loop that is told to end ends, and who called it asks for the reason.
type looker struct {
	ctx context.Context
	// unseen is the work since the last look.
	unseen int
	ended  error
}

// over counts n bytes of work. It reports whether the context has ended.
func (l *looker) over(n int) bool {
	if l.unseen += n; l.unseen >= lookBytes && l.ended == nil {
		l.unseen, l.ended = 0, l.ctx.Err()
	}
	return l.ended != nil
}

// line splits a text at its first line end. Both parts are "" once the context has ended.
func (l *looker) line(text string) (line, rest string) {
	for at := 0; at < len(text); {
		end := min(at+lookBytes, len(text))
		if i := strings.IndexByte(text[at:end], '\n'); i >= 0 {
			if l.over(i + 1) {
				return "", ""
			}
			return text[:at+i], text[at+i+1:]
		}
		if l.over(end - at) {
			return "", ""
		}
		at = end
	}
	return text, ""
}

// reader returns a reader for a parser. Its error is that of the context.
func (l *looker) reader(from io.Reader) io.Reader { return &lookingReader{l, from} }

type lookingReader struct {
	look *looker
	from io.Reader
}

func (r *lookingReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b[:min(len(b), lookBytes)])
	if r.look.over(n) {
		return 0, r.look.ended
	}
	return n, err
}

// normalize removes a byte order mark, and ends each line with \n.
func (l *looker) normalize(text string) string {
	text = strings.ToValidUTF8(strings.TrimPrefix(text, byteOrderMark), "\ufffd")
	if strings.IndexByte(text, '\r') < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for text != "" && !l.over(min(len(text), lookBytes)) {
		end := min(lookBytes, len(text))
		if end < len(text) && text[end-1] == '\r' && text[end] == '\n' {
			end++
		}
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(text[:end], "\r\n", "\n"), "\r", "\n"))
		text = text[end:]
	}
	return b.String()
}
