package model

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

var errNoMemories = errors.New("the message has no list of memories")

const (
	// maxEntities bounds the entities of one memory.
	maxEntities = 16
	// maxName bounds the bytes of an entity, a subject and an attribute.
	maxName = 200
)

// reading collects the memories of one revision.
type reading struct {
	in       comprehend.Input
	memories []memory.Memory
	lines    map[string]struct{}
}

func newReading(in comprehend.Input) *reading {
	return &reading{in: in, lines: make(map[string]struct{})}
}

// add adds a statement about a part if it is valid: its kind is known, its content is one readable
// line, and its excerpt is in the part.
func (r *reading) add(stated statement, part span) {
	line := oneLine(stated.Content)
	kind, known := memory.KindOf(stated.Kind)
	if !known || line == "" || utf8.RuneCountInString(line) > comprehend.MaxLine {
		return
	}
	if len(r.memories) >= comprehend.MaxMemories {
		return
	}
	start, end, ok := find(r.in.Content[part.start:part.end], stated.Excerpt)
	if !ok {
		return
	}
	key := stated.Kind + "\x00" + strings.ToLower(line)
	if _, twice := r.lines[key]; twice {
		return
	}
	r.lines[key] = struct{}{}
	start, end = start+part.start, end+part.start
	m := memory.Memory{
		ID: memory.ID(r.in.DataPoint, r.in.Revision, len(r.memories)), Kind: stated.Kind, Content: line,
		Excerpt: r.in.Content[start:end], Start: start, End: end, Inputs: []uuid.UUID{sourceOf(r.in)},
	}
	m.Entities = entities(stated.Entities)
	switch {
	case kind.HasSubject:
		subject, attribute := comprehend.Subject(stated.Subject), comprehend.Attribute(stated.Attribute)
		if subject != "" && attribute != "" && len(subject) <= maxName && len(attribute) <= maxName {
			m.Subject, m.Attribute = subject, attribute
		}
	case kind.ResolvesDates:
		from, to, ok := days(stated.From, stated.To)
		if !ok {
			return
		}
		m.ResolvedFrom, m.ResolvedTo = from, to
	}
	r.memories = append(r.memories, m)
}

// entities returns the distinct, readable names of a list.
func entities(names []string) (list []string) {
	for _, name := range names {
		name = oneLine(name)
		if name != "" && len(name) <= maxName && len(list) < maxEntities && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// oneLine returns a text in one line, without control characters.
func oneLine(text string) string {
	if !utf8.ValidString(text) {
		return ""
	}
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// find returns the span of an excerpt in a text, in bytes: of the exact words, otherwise with any white
// space between the words.
func find(text, excerpt string) (start, end int, ok bool) {
	excerpt = strings.TrimSpace(excerpt)
	if excerpt == "" {
		return 0, 0, false
	}
	if i := strings.Index(text, excerpt); i >= 0 {
		return i, i + len(excerpt), true
	}
	words := strings.Fields(excerpt)
	for from := 0; from < len(text); {
		i := strings.Index(text[from:], words[0])
		if i < 0 {
			return 0, 0, false
		}
		start = from + i
		if end, ok = follow(text, start+len(words[0]), words[1:]); ok {
			return start, end, true
		}
		from = start + len(words[0])
	}
	return 0, 0, false
}

// follow returns the end of words that follow a place of a text, with white space between them.
func follow(text string, at int, words []string) (end int, ok bool) {
	for _, w := range words {
		rest := strings.TrimLeftFunc(text[at:], unicode.IsSpace)
		if len(rest) == len(text[at:]) || !strings.HasPrefix(rest, w) {
			return 0, false
		}
		at = len(text) - len(rest) + len(w)
	}
	return at, true
}

// days parses the first and the last day of a date expression to a half-open span of time.
func days(first, last string) (from, to time.Time, ok bool) {
	from, err := time.Parse(time.DateOnly, first)
	if err != nil {
		return from, to, false
	}
	to = from
	if last != "" {
		if to, err = time.Parse(time.DateOnly, last); err != nil || to.Before(from) {
			return from, to, false
		}
	}
	to = to.AddDate(0, 0, 1)
	return from, to, from.Year() >= 1 && to.Year() <= 9999
}
