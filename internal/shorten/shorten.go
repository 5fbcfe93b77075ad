// Package shorten shortens an answer of the API while it is written: what its reader would not show is dropped unread,
// and counted. So a reader holds the bytes that it shows, however long the answer is.
package shorten

import (
	"context"
	"errors"
	"slices"
)

// Limits are what a reader shows of an answer.
type Limits struct {
	// Whole is the most bytes of an answer that stays as it is. A longer one is shortened.
	Whole int
	// Most is the most bytes of a shortened answer: entries beyond it are left out.
	Most int
	// Text is the most characters of a text, Value those of metadata or traits, which are left out as a whole, and Entries
	// the most entries of a list within an entry.
	Text, Value, Entries int
}

// spare is for what follows the entries of a full answer.
const spare = 64 << 10

// ErrLong is the error of an answer that has too many bytes outside of its lists.
var ErrLong = errors.New("the answer is too long")

// errJSON is of an answer that is no JSON.
var errJSON = errors.New("the answer is no JSON")

// Values are the names of members with a value of customers. Their readers show them whole or not at all.
var Values = []string{"metadata", "traits"}

// IsValue reports whether a member has a value of customers.
func IsValue(name string) bool { return slices.Contains(Values, name) }

// Writer takes an answer in parts, which is one JSON value.
type Writer struct {
	ctx     context.Context //nolint:containedctx // of the one answer
	limits  Limits
	whole   []byte
	scanner *scanner
}

// New returns a writer. It takes no more once the context has ended.
func New(ctx context.Context, limits Limits) *Writer { return &Writer{ctx: ctx, limits: limits} }

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.scanner == nil && len(w.whole)+len(b) <= w.limits.Whole {
		w.whole = append(w.whole, b...)
		return len(b), nil
	}
	if w.scanner == nil {
		w.scanner = &scanner{limits: w.limits, left: map[string]int{}, entry: -1}
		if err := w.scanner.read(w.whole); err != nil {
			return 0, err
		}
		w.whole = nil
	}
	const part = 64 << 10 // between two looks at the context
	for rest := b; len(rest) > 0; rest = rest[min(len(rest), part):] {
		if err := w.ctx.Err(); err != nil {
			return 0, err
		}
		if err := w.scanner.read(rest[:min(len(rest), part)]); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Bytes returns the answer.
func (w *Writer) Bytes() []byte {
	if w.scanner == nil {
		return w.whole
	}
	return w.scanner.out
}

// LeftOut counts what was left out by its name. That of a list is its path, as "sources.nodes".
func (w *Writer) LeftOut() map[string]int {
	if w.scanner == nil {
		return nil
	}
	return w.scanner.left
}
