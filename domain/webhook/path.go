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

// event is a body that is JSON, and what the paths of a mapping lead to in it.
type event struct {
	body  []byte
	found rawjson.Found
	// texts are those that were decoded, by the number of their value: several filters may read a long one.
	texts map[int]string
}

// whole is the number of the whole body, which is text as it is.
const whole = -1

// value returns a value by its number. ok is false for nothing and for null.
func (e *event) value(number int) (v value, ok bool) {
	if number == whole {
		return value{e, whole, rawjson.String, e.body}, true
	}
	raw := e.found.Values[number]
	if raw == nil {
		return value{}, false
	}
	v = value{e, number, rawjson.KindOf(raw), raw}
	return v, v.kind != rawjson.Null
}

// value is what a path leads to.
type value struct {
	of     *event
	number int
	kind   rawjson.Kind
	raw    []byte
}

// text returns that of a string, and the JSON text as written of anything else.
func (v value) text() string {
	text, known := v.of.texts[v.number]
	if known {
		return text
	}
	if v.kind == rawjson.String && v.number != whole {
		text, _ = rawjson.Text(v.raw)
		text = strings.ToValidUTF8(text, "\ufffd")
	} else {
		text = textOf(v.raw)
	}
	if v.of.texts == nil {
		v.of.texts = map[int]string{}
	}
	v.of.texts[v.number] = text
	return text
}

// equals compares a string exactly, and a number or boolean by its JSON text. Nothing else equals a text.
func (v value) equals(text string) bool {
	switch {
	case v.kind == rawjson.Number, v.kind == rawjson.Boolean:
		return string(v.raw) == text
	case v.number == whole:
		return v.text() == text
	case v.kind == rawjson.String:
		return rawjson.EqualText(v.raw, text)
	default:
		return false
	}
}

// textOf returns a text in UTF-8.
func textOf(raw []byte) string { return strings.ToValidUTF8(string(raw), "\ufffd") }
