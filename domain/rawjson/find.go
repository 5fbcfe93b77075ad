package rawjson

import (
	"bytes"
	"encoding/json"
)

// Step is one step of a path: to a member of an object, or to an element of an array.
type Step struct {
	Name string
	// Index is that of the element, negative for a member.
	Index int
}

// Find returns the value that a path leads to, as part of the text, nil for none. Of a repeated name the
// last member counts. Each byte is read once. The text need not be UTF-8.
func Find(text []byte, path []Step) []byte {
	found, _ := find(text, skipSpace(text, 0), path)
	return found
}

// find is Find in the value that begins at i. It returns the index after that value, too.
func find(text []byte, i int, path []Step) (found []byte, end int) {
	switch {
	case len(path) == 0:
		end = skipValue(text, i)
		return text[i:end:end], end
	case text[i] == '{' && path[0].Index < 0:
		return findMember(text, i+1, path)
	case text[i] == '[' && path[0].Index >= 0:
		return findElement(text, i+1, path)
	default:
		return nil, skipValue(text, i)
	}
}

func findMember(text []byte, i int, path []Step) (found []byte, end int) {
	for {
		i = skipSpace(text, i)
		switch text[i] {
		case '}':
			return found, i + 1
		case ',':
			i++
			continue
		}
		end := skipString(text, i)
		is := isName(text[i:end], path[0].Name)
		i = skipSpace(text, skipSpace(text, end)+1) // after the colon
		if is {
			found, i = find(text, i, path[1:])
		} else {
			i = skipValue(text, i)
		}
	}
}

func findElement(text []byte, i int, path []Step) (found []byte, end int) {
	for n := 0; ; {
		i = skipSpace(text, i)
		switch text[i] {
		case ']':
			return found, i + 1
		case ',':
			i++
			continue
		}
		if n == path[0].Index {
			found, i = find(text, i, path[1:])
		} else {
			i = skipValue(text, i)
		}
		n++
	}
}

// longestEscape is how many bytes an escaped byte of a name may take.
const longestEscape = len(`\u0000`)

// isName reports whether a quoted name is name.
func isName(quoted []byte, name string) bool {
	inside := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside) == name
	}
	var text string
	return len(inside) <= longestEscape*len(name) && json.Unmarshal(quoted, &text) == nil && text == name
}
