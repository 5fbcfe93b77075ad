package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The most characters of a document of a recall that is shown as a whole, of an excerpt and of a value that the text
// shows.
const (
	maxDocument = 4_000
	maxExcerpt  = 600
	maxShown    = 300
)

// plain are values that the text shows as they are. All others are quoted, so that what customers wrote does not look
// like the words of the service.
var plain = regexp.MustCompile(`^[A-Za-z0-9:._+/#-]*$`)

// shown is a value on one line.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		if plain.MatchString(v) {
			return cut(v, maxShown)
		}
		return strconv.Quote(cut(v, maxShown))
	case json.Number:
		return v.String()
	case json.RawMessage:
		return shown(printed(v))
	case bool:
		return strconv.FormatBool(v)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return "" // it came from JSON, so this does not happen
		}
		return cut(string(text), maxShown)
	}
}

// quoted is a text of several lines in which each begins with a mark.
func quoted(text string, most int) string {
	lines := strings.FieldsFunc(cut(text, most), breaks)
	return "> " + strings.Join(lines, "\n> ") + "\n"
}

// breaks reports whether a character may begin another line.
func breaks(c rune) bool {
	return c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == '\u0085' || c == '\u2028' || c == '\u2029'
}

// text is the answer of a tool for reading. It completes what was left out.
func (u *use) text(ctx context.Context, answer object, o *omitted) (string, error) {
	w := &writer{ctx: ctx, use: u}
	if u.tool.write != nil {
		u.tool.write(w, answer)
	} else {
		w.outline(u.tool, answer, "")
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	text := w.String()
	if w.skipped > 0 {
		text += fmt.Sprintf("%d more are in the structured content only.\n", w.skipped)
	}
	if len(o.Counts) > 0 {
		o.Call, o.IDs = u.tool.more, o.IDs[:min(len(o.IDs), maxIDs)]
		if _, content := o.Counts[contentLeft]; !content || len(o.Counts) > 1 || len(u.parts) == 0 {
			text += o.String() // else each text has its own note
		}
	}
	return strings.TrimSpace(text), nil
}

// writer writes a text of at most maxText. Blocks that do not fit are counted.
type writer struct {
	strings.Builder

	ctx             context.Context //nolint:containedctx // of the one answer
	use             *use
	weight, skipped int
}

// more reports whether somebody still waits for the text.
func (w *writer) more() bool { return w.ctx.Err() == nil }

func (w *writer) block(text string) {
	n := weight(text)
	if w.skipped > 0 || w.weight+n > maxText-400 {
		w.skipped++
		return
	}
	w.write(text)
}

// write writes a text that is known to fit.
func (w *writer) write(text string) {
	w.weight += weight(text)
	w.WriteString(text)
}

// outline writes the values of an answer a line each, and the entries of its lists a line each.
func (w *writer) outline(t tool, answer object, path string) {
	var lists []string
	for _, name := range slices.Sorted(maps.Keys(answer)) {
		switch v := printed(answer[name]).(type) {
		case []any:
			lists = append(lists, name)
		case object:
			if _, lists := t.lists[path+name+".nodes"]; lists || len(v) > 0 && path == "" && name != "traits" {
				w.outline(t, v, path+name+".")
			} else if name != omittedName {
				w.block(path + name + ": " + shown(v) + "\n")
			}
		case string:
			if strings.ContainsRune(v, '\n') || len(v) > maxShown {
				w.block(path + name + ":\n" + quoted(v, maxString))
				continue
			}
			w.block(path + name + ": " + shown(v) + "\n")
		default:
			w.block(path + name + ": " + shown(v) + "\n")
		}
	}
	for _, name := range lists {
		entries, _ := answer[name].([]any)
		w.block(fmt.Sprintf("%s%s (%d):\n", path, name, len(entries)))
		for _, e := range entries {
			if !w.more() {
				return
			}
			w.block("- " + line(e, t.lists[path+name]) + "\n")
		}
	}
}

// line is an entry of a list with some of its fields.
func line(entry any, columns []string) string {
	e, ok := entry.(object)
	if !ok || columns == nil {
		return shown(entry)
	}
	var parts []string
	for _, name := range columns {
		if v := e[name]; v != nil {
			parts = append(parts, name+" "+shown(v))
		}
	}
	return strings.Join(parts, ", ")
}

// An answer has at most 25,000 tokens: what clients give to a model. All sizes are in quarters of a token, see weight.
// The structured part and the text have a share each; what was left out is named in both.
const (
	maxAnswer     = 4 * 25_000
	maxText       = 38_000
	maxStructured = maxAnswer - maxText - maxOmitted
	maxOmitted    = 4_000 // of both
)

// Parts of an entry that an answer shortens before it leaves entries out: a text, metadata or traits, and a list within
// an entry.
const (
	maxString  = 8_000
	maxValues  = 2_000
	maxEntries = 50
)

// maxIDs is how many entries that were left out are named.
const maxIDs = 40

const omittedName = "omitted"

// omittedSchema is the schema of what was left out.
var omittedSchema = object{
	"type": "object", "properties": object{
		"counts": object{"type": "object", "additionalProperties": object{"type": "integer"}},
		"ids":    object{"type": "array", "items": object{"type": "string"}},
		"call":   object{"type": "string"},
	},
}

// omitted is what did not fit: how much of what, and the call that gets it.
type omitted struct {
	Counts map[string]int `json:"counts"`
	IDs    []string       `json:"ids,omitempty"`
	Call   string         `json:"call,omitempty"`
}

// String is the last line of the text.
func (o omitted) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(o.Counts)) {
		parts = append(parts, fmt.Sprintf("%d of %s", o.Counts[name], name))
	}
	line := "Left out, since an answer has 25,000 tokens: " + strings.Join(parts, ", ") + "."
	if o.Call != "" {
		line += " To get it: " + o.Call + "."
	}
	if len(o.IDs) > 0 {
		line += " Ids: " + strings.Join(o.IDs, " ")
	}
	return line
}

// size is the weight of a value as it is sent.
func size(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return maxAnswer + 1 // it came from JSON, so this does not happen
	}
	return weight(string(text))
}

// weight is how many quarters of a token a text has, by script: four letters of ASCII are about a token, and two of the
// alphabets next to it. A character of Hebrew, Thai, Han, Kana, Hangul and all that follow is taken for one.
func weight(text string) (quarters int) {
	const alphabets = 0x590 // Latin, Greek, Cyrillic and Armenian are below
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			quarters++
		case r < alphabets:
			quarters += 2
		default:
			quarters += 4
		}
	}
	return quarters
}

// fit shortens an answer to maxStructured: first its long texts, then the ends of its lists. It adds what it
// left out to o, and returns how many entries are left of the lists that it or o cut.
func (o *omitted) fit(ctx context.Context, answer object) (left map[string]int, err error) {
	left = map[string]int{}
	if o.Counts == nil {
		o.Counts = map[string]int{}
	}
	lists := listsOf(answer, "")
	slices.SortFunc(lists, func(a, b *list) int { return cmp.Compare(a.path, b.path) })
	for _, l := range lists {
		if o.Counts[l.path] > 0 {
			left[l.path] = len(l.entries())
		}
	}
	if size(answer) <= maxStructured {
		return left, ctx.Err()
	}
	o.shorten(answer, false)
	for _, l := range lists {
		for _, e := range l.entries() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := size(e) + 1
			l.sizes, l.total = append(l.sizes, n), l.total+n
		}
	}
	for total := size(answer); total > maxStructured; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var largest *list
		for _, l := range lists {
			if l.total > 0 && (largest == nil || l.total > largest.total) {
				largest = l
			}
		}
		if largest == nil {
			break
		}
		entries := largest.entries()
		keep := len(entries)
		for ; total > maxStructured && keep > 0; keep-- {
			total -= largest.sizes[keep-1]
			largest.total -= largest.sizes[keep-1]
		}
		for _, e := range entries[keep:] {
			o.leaveOut(largest.path, e)
		}
		clear(entries[keep:]) // their memory is not held
		largest.in[largest.name] = entries[:keep]
		left[largest.path] = keep
	}
	return left, nil
}

// leaveOut counts an entry.
func (o *omitted) leaveOut(path string, entry any) {
	o.Counts[path]++
	e, _ := entry.(object)
	if id, ok := e["id"].(string); ok {
		o.IDs = append(o.IDs, id)
	}
}

// list is a list of an answer that is not within an entry of another one.
type list struct {
	in         object
	name, path string
	// sizes are those of its entries with what separates them, total the sum of those that are left.
	sizes []int
	total int
}

func (l *list) entries() []any {
	entries, _ := l.in[l.name].([]any)
	return entries
}

func listsOf(o object, path string) (lists []*list) {
	for name, v := range o {
		switch v := v.(type) {
		case []any:
			lists = append(lists, &list{in: o, name: name, path: path + name})
		case object:
			lists = append(lists, listsOf(v, path+name+".")...)
		}
	}
	return lists
}

// shorten cuts the texts of a value and the lists within the entries of a list, and drops long metadata and traits.
func (o *omitted) shorten(v any, inEntry bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			o.shorten(e, true)
		}
	case object:
		for name, e := range v {
			switch e := e.(type) {
			case string:
				if n := utf8.RuneCountInString(e); n > maxString {
					v[name] = cut(e, maxString)
					o.Counts["characters of "+name] += n - maxString
				}
			case []any:
				if inEntry && len(e) > maxEntries {
					v[name] = e[:maxEntries]
					o.Counts[name] += len(e) - maxEntries
				}
			case json.RawMessage:
				if size(e) > maxValues {
					v[name] = object{}
					o.Counts[name]++
				}
			}
			o.shorten(v[name], inEntry)
		}
	}
}

// cut is the beginning of a text.
func cut(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}
