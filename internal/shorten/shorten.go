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

// The modes of a scanner: between values, or within one.
const (
	between = iota
	inName
	inText
	inScalar
	inValue // metadata or traits, or what is left out
)

// scanner reads JSON and writes what stays of it.
type scanner struct {
	limits Limits
	out    []byte
	left   map[string]int
	mode   int
	frames []frame
	// name is that of the member at hand as it is written, and named is true until its value has ended.
	name  []byte
	named bool
	// entry is the place of the list among the frames whose entry is being read, -1 for none, and start where the entry
	// begins in out.
	entry, start int

	text  text
	value value
}

// frame is an object or a list that is being read.
type frame struct {
	list bool
	// name is that of the member whose value it is, path the path to it. Only what is in no entry has one.
	name, path string
	kept       int
	full       bool
}

// text is a text that is being read.
type text struct {
	name            string
	characters, end int
	escaped         bool
	digits          int
}

// value is a value that is being read without what is in it.
type value struct {
	name              string
	begin, characters int
	keep              bool
	depth             int
	quoted, escaped   bool
}

// read reads a part of the answer.
func (s *scanner) read(b []byte) error {
	for len(b) > 0 {
		n := 0
		switch s.mode {
		case inName:
			n = s.readName(b)
		case inText:
			n = s.readText(b)
		case inScalar:
			n = s.readScalar(b)
		case inValue:
			n = s.readValue(b)
		default:
			if n = s.structure(b[0]); n < 0 {
				return errJSON
			}
		}
		b = b[n:]
		most := s.limits.Most
		if s.entry < 0 {
			most += spare
		}
		if len(s.out) <= most {
			continue
		}
		if s.entry < 0 {
			return ErrLong
		}
		s.dropEntry()
	}
	return nil
}

// structure reads what is between values. It returns how many bytes it read.
func (s *scanner) structure(c byte) int {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':':
		return 1
	case '}', ']':
		if len(s.frames) == 0 {
			return -1
		}
		s.out = append(s.out, c)
		s.frames = s.frames[:len(s.frames)-1]
		s.end()
		return 1
	case '"':
		if n := len(s.frames); n > 0 && !s.frames[n-1].list && !s.named {
			s.mode, s.name = inName, append(s.name[:0], c)
			return 1
		}
	}
	return s.begin(c)
}

// begin begins a value, and decides what stays of it.
func (s *scanner) begin(c byte) int {
	name, path := "", ""
	if n := len(s.frames); n > 0 {
		f := &s.frames[n-1]
		if name, path = f.name, f.path; f.list {
			if f.full || s.entry >= 0 && f.kept >= s.limits.Entries {
				s.skip(f)
				return 0
			}
			if s.entry < 0 {
				s.entry, s.start = n-1, len(s.out)
			}
		} else {
			name = string(s.name[1 : len(s.name)-1])
			if path != "" {
				path += "."
			}
			path += name
		}
		if f.kept++; f.kept > 1 {
			s.out = append(s.out, ',')
		}
		if !f.list {
			s.out = append(append(s.out, s.name...), ':')
		}
	}
	if s.named && IsValue(name) {
		s.mode, s.value = inValue, value{name: name, begin: len(s.out), keep: true}
		return 0
	}
	switch c {
	case '"':
		s.mode, s.text = inText, text{name: name}
	case '{', '[':
		s.frames, s.named = append(s.frames, frame{list: c == '[', name: name, path: path}), false
	default:
		s.mode = inScalar
		return 0
	}
	s.out = append(s.out, c)
	return 1
}

// skip leaves out the entry of a list that begins.
func (s *scanner) skip(f *frame) {
	if s.entry < 0 {
		s.left[f.path]++
	} else {
		s.left[f.name]++
	}
	s.mode, s.value = inValue, value{}
}

// end ends a value.
func (s *scanner) end() {
	s.mode = between
	n := len(s.frames)
	s.named = false
	if n-1 == s.entry {
		s.entry = -1
	}
}

// dropEntry leaves out the entry at hand, for which there is no room, and all that follow it in the list.
func (s *scanner) dropEntry() {
	f := &s.frames[s.entry]
	s.out = s.out[:s.start]
	f.kept--
	f.full = true
	s.left[f.path]++
	if within := s.mode != between || len(s.frames)-1 > s.entry; within {
		v := value{depth: len(s.frames) - 1 - s.entry, quoted: s.mode == inText || s.mode == inName, escaped: s.text.escaped}
		if s.mode == inValue {
			v.depth, v.quoted, v.escaped = v.depth+s.value.depth, s.value.quoted, s.value.escaped
		}
		s.mode, s.value = inValue, v
	}
	s.frames, s.entry, s.named = s.frames[:s.entry+1], -1, false
}

func (s *scanner) readName(b []byte) int {
	for i, c := range b {
		s.name = append(s.name, c)
		switch {
		case s.text.escaped:
			s.text.escaped = false
		case c == '\\':
			s.text.escaped = true
		case c == '"':
			s.mode, s.named = between, true
			return i + 1
		}
	}
	return len(b)
}

// readText copies a text up to its most characters.
func (s *scanner) readText(b []byte) int {
	t := &s.text
	for i, c := range b {
		switch {
		case t.escaped:
			if t.escaped = false; c == 'u' {
				t.digits = 4
			}
		case t.digits > 0:
			t.digits--
		case c == '"':
			if over := t.characters - s.limits.Text; over > 0 {
				s.out = append(s.out, "…"...)
				s.left["characters of "+t.name] += over + 1
			}
			s.out = append(s.out, c)
			s.end()
			return i + 1
		case c&0xC0 != 0x80:
			t.escaped = c == '\\'
			switch t.characters++; t.characters {
			case s.limits.Text:
				t.end = len(s.out)
			case s.limits.Text + 1:
				s.out = s.out[:t.end]
			}
		}
		if t.characters <= s.limits.Text {
			s.out = append(s.out, c)
		}
		if len(s.out) > s.limits.Most+spare {
			return i + 1
		}
	}
	return len(b)
}

func (s *scanner) readScalar(b []byte) int {
	for i, c := range b {
		switch c {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			s.end()
			return i
		}
		s.out = append(s.out, c)
	}
	return len(b)
}

// readValue copies a value, or drops it once it has too many characters.
func (s *scanner) readValue(b []byte) int {
	v := &s.value
	for i, c := range b {
		last := false
		switch {
		case v.escaped:
			v.escaped = false
		case v.quoted:
			v.escaped, v.quoted = c == '\\', c != '"'
			last = c == '"' && v.depth == 0
		case c == '"':
			v.quoted = true
		case c == '{', c == '[':
			v.depth++
		case v.depth == 0 && (c == ',' || c == '}' || c == ']' || c <= ' '):
			s.end() // of a number, true, false or null
			return i
		case c == '}', c == ']':
			v.depth--
			last = v.depth == 0
		}
		if v.keep {
			s.keep(c)
		}
		if last {
			s.end()
			return i + 1
		}
	}
	return len(b)
}

// keep copies a byte of a value.
func (s *scanner) keep(c byte) {
	v := &s.value
	s.out = append(s.out, c)
	if c&0xC0 == 0x80 {
		return
	}
	if v.characters++; v.characters <= s.limits.Value {
		return
	}
	empty := "null"
	switch s.out[v.begin] {
	case '{':
		empty = "{}"
	case '[':
		empty = "[]"
	case '"':
		empty = `""`
	}
	s.out = append(s.out[:v.begin], empty...)
	v.keep = false
	s.left[v.name]++
}
