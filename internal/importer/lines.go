// Package importer sends a file of data points, one JSON object a line, in batches: several in
// flight, in order for each source id, and able to go on after a stop.
package importer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
)

// MaxLine is the longest line that is read: 16 MiB of content with every byte escaped, and some metadata.
const MaxLine = 104 << 20

// LineError is a line that is no data point.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// point is one line that was read.
type point struct {
	line int
	// id is the source id, as sent or as the server makes it where none is.
	id string
	// raw is the object as written, content the size of its content.
	raw     json.RawMessage
	content int
	// end is the offset after the line, and sum the SHA-256 of the input up to it.
	end int64
	sum string
	// skipped counts the lines before it that were skipped, from the beginning of this run.
	skipped int
}

// lines reads points from an input. It begins with an empty hash: what is skipped has to be read through it.
type lines struct {
	in     *bufio.Reader
	line   int
	offset int64
	hash   hash.Hash
	// skipped counts lines that an export writes besides data points.
	skipped int
}

func newLines(in io.Reader) *lines {
	return &lines{in: bufio.NewReaderSize(in, 1<<20), hash: sha256.New()}
}

func (l *lines) sum() string { return hex.EncodeToString(l.hash.Sum(nil)) }

// next returns the next data point; io.EOF at the end. Blank lines and the memories of an export are skipped.
func (l *lines) next() (point, error) {
	for {
		text, err := l.read()
		if err != nil {
			return point{}, err
		}
		trimmed := bytes.TrimSpace(text)
		if l.line == 1 {
			trimmed = bytes.TrimPrefix(trimmed, []byte("\xef\xbb\xbf"))
		}
		if len(trimmed) == 0 {
			continue
		}
		id, content, err := check(trimmed)
		if err != nil && isMemory(trimmed) {
			l.skipped++
			continue
		}
		if err != nil {
			return point{}, &LineError{l.line, err}
		}
		return point{
			line: l.line, id: id, raw: trimmed, content: content, end: l.offset, sum: l.sum(), skipped: l.skipped,
		}, nil
	}
}

// read returns one line, which may lack its newline at the end of the input.
func (l *lines) read() ([]byte, error) {
	var text []byte
	for {
		part, err := l.in.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > MaxLine {
			return nil, &LineError{l.line + 1, fmt.Errorf("is longer than %d MiB", MaxLine>>20)}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read input: %w", err)
		}
		if len(text) == 0 {
			return nil, io.EOF
		}
		l.line++
		l.offset += int64(len(text))
		_, _ = l.hash.Write(text) // a hash takes everything
		return text, nil
	}
}

// skip reads on to an offset, without looking at what it passes.
func (l *lines) skip(offset int64) error {
	for l.offset < offset {
		if _, err := l.read(); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the input is shorter than what was sent of it")
			}
			return err
		}
	}
	return nil
}

// check returns the source id of a line and the size of its content, or why the line is not a data point. The server
// checks again; here the number of the line is known.
func check(line []byte) (id string, content int, err error) {
	if !utf8.Valid(line) {
		return "", 0, errors.New("is not UTF-8")
	}
	// Pointers tell what is omitted from what is empty.
	var p struct {
		Content   *string         `json:"content"`
		ID        *string         `json:"id"`
		Label     *string         `json:"label"`
		Timestamp *string         `json:"timestamp"`
		Metadata  json.RawMessage `json:"metadata"`
		Audience  *string         `json:"audience"`
		Identity  *string         `json:"identity"`
		Private   *bool           `json:"private"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return "", 0, fmt.Errorf("is no data point: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", 0, errors.New("holds more than one JSON value")
	}
	switch {
	case p.Content == nil || strings.TrimSpace(*p.Content) == "":
		return "", 0, errors.New("has no content")
	case len(*p.Content) > limit.ContentBytes:
		return "", 0, fmt.Errorf("has more than %d MiB of content", limit.ContentBytes>>20)
	case p.ID != nil && *p.ID != "":
		return *p.ID, len(*p.Content), nil
	case p.ID != nil:
		return "", 0, errors.New("has an empty id: leave it out, or give one")
	default:
		return DefaultID(*p.Content), len(*p.Content), nil
	}
}

// isMemory reports whether a line is what an export writes of a memory: the service derives it again.
func isMemory(line []byte) bool {
	var l struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(line, &l) == nil && l.Type == "memory"
}

// DefaultID returns the source id of a data point that is sent without one.
func DefaultID(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Line writes a data point as one line of an input.
func Line(p client.DataPoint) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encode data point: %w", err)
	}
	return b.Bytes(), nil
}

// Count is the size of an input: data points, bytes, and what they cost in tenths of a credit if each is new.
type Count struct {
	Points       int
	Bytes        int64
	CreditTenths int64
}

// Check reads an input to its end. The first line that is not a data point is a *LineError.
func Check(in io.Reader) (c Count, err error) {
	l := newLines(in)
	for ; ; c.Points++ {
		p, err := l.next()
		if errors.Is(err, io.EOF) {
			c.Bytes = l.offset
			return c, nil
		}
		if err != nil {
			return Count{}, err
		}
		c.CreditTenths += metering.IngestTenths(int64(p.content))
	}
}
