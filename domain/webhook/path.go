package webhook

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
)

// Path leads to one value in the body of an event.
type Path struct {
	text  string
	steps []rawjson.Step
}

// String returns the path as it was written.
func (p Path) String() string { return p.text }

// ParsePath reads a path: $, then any number of .name, ['name'] and [index]. A name after a full stop has
// letters, digits and _, and does not begin with a digit; between quotes, \' and \\ are escapes. The error
// is for the person who wrote the path.
func ParsePath(text string) (Path, error) {
	p, rest, err := readPath(text)
	if err == nil && rest != "" {
		err = fmt.Errorf("unexpected %.20q at character %d", rest, 1+utf8.RuneCountInString(p.text))
	}
	if err != nil {
		return Path{}, err
	}
	return p, nil
}

// readPath reads the path that a text begins with.
func readPath(text string) (p Path, rest string, err error) {
	if !strings.HasPrefix(text, "$") {
		return p, "", fmt.Errorf("a path begins with $, as in $.issue.title")
	}
	for rest = text[1:]; rest != ""; {
		var step rawjson.Step
		at := 1 + utf8.RuneCountInString(text[:len(text)-len(rest)])
		switch {
		case rest[0] == '.':
			step, rest, err = readName(rest[1:])
		case rest[0] == '[':
			step, rest, err = readBracket(rest[1:])
		default:
			return p.end(text, rest)
		}
		if err != nil {
			return p, "", fmt.Errorf("%w, at character %d", err, at)
		}
		p.steps = append(p.steps, step)
	}
	return p.end(text, rest)
}

// end completes a path that ends before rest.
func (p Path) end(text, rest string) (Path, string, error) {
	p.text = text[:len(text)-len(rest)]
	if n := utf8.RuneCountInString(p.text); n > limit.WebhookPath {
		return p, "", fmt.Errorf("it has %d characters: want at most %d", n, limit.WebhookPath)
	}
	return p, rest, nil
}

// readName reads the name after a full stop.
func readName(text string) (rawjson.Step, string, error) {
	n := 0
	for n < len(text) && (text[n] == '_' || isLetter(text[n]) || n > 0 && isDigit(text[n])) {
		n++
	}
	switch {
	case n > 0:
		return rawjson.Step{Name: text[:n], Index: -1}, text[n:], nil
	case strings.HasPrefix(text, "."):
		return rawjson.Step{}, "", fmt.Errorf(`".." is not supported: write each step`)
	case strings.HasPrefix(text, "*"):
		return rawjson.Step{}, "", errWildcard
	default:
		return rawjson.Step{}, "", fmt.Errorf(
			"a name after a full stop has letters, digits and _, and does not begin with a digit: write others as ['name']")
	}
}

var errWildcard = fmt.Errorf("wildcards are not supported: a path leads to one value")

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// readBracket reads what follows an opening bracket.
func readBracket(text string) (step rawjson.Step, rest string, err error) {
	switch {
	case strings.HasPrefix(text, "'"):
		step.Index = -1
		step.Name, rest, err = readQuoted(text[1:])
	case text != "" && isDigit(text[0]):
		n := 1
		for n < len(text) && isDigit(text[n]) {
			n++
		}
		if step.Index, err = strconv.Atoi(text[:n]); err != nil {
			step.Index, err = math.MaxInt, nil // no array has so many elements
		}
		rest = text[n:]
	case strings.HasPrefix(text, "*"):
		err = errWildcard
	case strings.HasPrefix(text, "?"), strings.HasPrefix(text, "("):
		err = fmt.Errorf("filter expressions are not supported: use the filters of the webhook")
	case strings.HasPrefix(text, "-"):
		err = fmt.Errorf("an index counts from 0: negative ones are not supported")
	case strings.HasPrefix(text, `"`):
		err = fmt.Errorf("a name in brackets has single quotes, as in ['name']")
	default:
		err = fmt.Errorf("brackets hold an index or a name, as in [0] or ['name']")
	}
	switch {
	case err != nil:
	case strings.HasPrefix(rest, "]"):
		return step, rest[1:], nil
	case strings.HasPrefix(rest, ","):
		err = fmt.Errorf("unions are not supported: a path leads to one value")
	case strings.HasPrefix(rest, ":"):
		err = fmt.Errorf("slices are not supported: a path leads to one value")
	default:
		err = fmt.Errorf("the bracket is not closed")
	}
	return rawjson.Step{}, "", err
}

// readQuoted reads the rest of a name in single quotes.
func readQuoted(text string) (name, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\'':
			return b.String(), text[i+1:], nil
		case '\\':
			if i++; i == len(text) || text[i] != '\'' && text[i] != '\\' {
				return "", "", fmt.Errorf(`in quotes a backslash comes before ' or \ only`)
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("the quote is not closed")
}

// value is what a path leads to.
type value struct {
	kind rawjson.Kind
	raw  []byte
	// whole is true for the whole body, which is text as it is.
	whole bool
}

// find returns the value in a body that is JSON. ok is false for nothing and for null. The path $ leads to
// the whole body as text.
func (p Path) find(body []byte) (v value, ok bool) {
	if len(p.steps) == 0 {
		return value{rawjson.String, body, true}, true
	}
	raw := rawjson.Find(body, p.steps)
	if raw == nil {
		return value{}, false
	}
	v = valueOf(raw)
	return v, v.kind != rawjson.Null
}

func valueOf(raw []byte) value { return value{kind: rawjson.KindOf(raw), raw: raw} }

// text returns that of a string, and the JSON text as written of anything else.
func (v value) text() string {
	if v.kind == rawjson.String && !v.whole {
		text, _ := rawjson.Text(v.raw)
		return strings.ToValidUTF8(text, "\ufffd")
	}
	return textOf(v.raw)
}

// equals compares a string exactly, and a number or boolean by its JSON text. Nothing else equals a text.
func (v value) equals(text string) bool {
	switch v.kind {
	case rawjson.Number, rawjson.Boolean:
		return string(v.raw) == text
	case rawjson.String:
		// Most elements of a long array are not decoded: a byte of the text takes up to six as an escape,
		// and a wrong one becomes three.
		if n := len(v.raw) - len(`""`); !v.whole && (n > 6*len(text) || 3*n < len(text)) {
			return false
		}
		return v.text() == text
	default:
		return false
	}
}

// textOf returns a text in UTF-8.
func textOf(raw []byte) string { return strings.ToValidUTF8(string(raw), "\ufffd") }
