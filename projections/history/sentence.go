package history

import (
	"encoding/json"
	"strconv"
	"strings"
)

// stream is the path of the id in the name of the stream.
const streamID = "@"

// pathForm splits "path|form". A value without a form is shown as it is.
func pathForm(text string) (path, form string) {
	path, form, _ = strings.Cut(text, "|")
	return path, form
}

// part is a piece of a sentence: a text, or the value at a path in a form.
type part struct{ text, path, form string }

// by is the path of who caused an event.
const by = "by"

// partsOf cuts a sentence at its values.
func partsOf(text string) (parts []part) {
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if before != "" {
			parts = append(parts, part{text: before})
		}
		if !found {
			return parts
		}
		value, after, _ := strings.Cut(rest, "}")
		path, form := pathForm(value)
		parts = append(parts, part{path: path, form: form})
		text = after
	}
	return parts
}

// textFor is the sentence of an event by its payload.
func (e Entry) textFor(payload any) string {
	for _, c := range e.Cases {
		if plain(valueAt(payload, c.Path)) == c.Is {
			return c.Text
		}
	}
	return e.Text
}

// valueAt returns the value at a path of names, nil for none.
func valueAt(payload any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := payload.(map[string]any)
		payload = object[name]
	}
	return payload
}

// plain is a value as a text: "" for none.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	case bool:
		return strconv.FormatBool(value)
	default:
		return ""
	}
}
