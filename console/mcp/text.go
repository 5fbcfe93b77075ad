package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
