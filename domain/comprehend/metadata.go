package comprehend

import (
	"bytes"
	"encoding/json"
	"strings"
)

// field is one string or number of the metadata with its place.
type field struct {
	path   []string // keys from the outermost, in words: "favouriteEditor" is "favourite editor"
	value  string
	number bool
	object int // the JSON object that holds it, from 0 for the outermost
}

// maxFields is the most fields of the metadata that are read, and maxDepth their greatest depth.
const (
	maxFields = 2000
	maxDepth  = 12
)

// readMetadata derives what the metadata states in a known shape; see factRules. It reads texts in
// it like sentences.
func readMetadata(d *document, out *collector, a *allowance) {
	fields := fieldsOf(d.metadata)
	objects := map[int][]field{}
	for _, f := range fields {
		objects[f.object] = append(objects[f.object], f)
	}
	s := &sentence{fromMetadata: true}
	for _, f := range fields {
		for _, read := range factRules {
			if found := read(d, f, objects[f.object]); len(found) > 0 {
				out.add(s, found, a)
				break
			}
		}
		if strings.Count(f.value, " ") >= 2 {
			d.sentencesOf(f.value, func(s *sentence) { out.add(s, readSentence(d, s), a) })
		}
	}
}

// level is an array or object that the walk is in.
type level struct {
	object int
	key    string // the key of the next value, "" in arrays
	inKey  bool   // the next string is a key
	array  bool
}

// fieldsOf lists the fields of metadata in the order written. Metadata that is not JSON has none.
func fieldsOf(raw []byte) []field {
	if len(raw) == 0 || !json.Valid(raw) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var fields []field
	var stack []level
	objects := 0
	// done ends a value: inside an object, the next string is a key.
	done := func() {
		if n := len(stack); n > 0 && !stack[n-1].array {
			stack[n-1].inKey = true
		}
	}
	for len(fields) < maxFields {
		tok, err := dec.Token()
		if err != nil {
			return fields // the end: it was valid JSON
		}
		switch v := tok.(type) {
		case json.Delim:
			switch v {
			case '{':
				stack = append(stack, level{object: objects, inKey: true})
				objects++
			case '[':
				holder := 0
				if n := len(stack); n > 0 {
					holder = stack[n-1].object
				}
				stack = append(stack, level{object: holder, array: true})
			default:
				stack = stack[:len(stack)-1]
				done()
			}
			continue
		case string:
			n := len(stack)
			if n > 0 && stack[n-1].inKey {
				stack[n-1].key, stack[n-1].inKey = v, false
				continue
			}
			if n > 0 && n <= maxDepth {
				fields = append(fields, field{path: pathOf(stack), value: flat(v), object: stack[n-1].object})
			}
		case json.Number:
			if n := len(stack); n > 0 && n <= maxDepth {
				fields = append(fields, field{path: pathOf(stack), value: v.String(), number: true, object: stack[n-1].object})
			}
		}
		done()
	}
	return fields
}

// pathOf returns the keys on the path to a value.
func pathOf(stack []level) []string {
	var path []string
	for _, l := range stack {
		if l.key != "" {
			path = append(path, keyWords(l.key))
		}
	}
	return path
}

// keyWords returns the words of a key in lower case: "favouriteEditor", "favourite_editor" and
// "Favourite Editor" are "favourite editor".
func keyWords(key string) string {
	if len(key) > 100 {
		return ""
	}
	var b strings.Builder
	lower := false
	for _, r := range flat(key) {
		switch {
		case r == '_' || r == '-' || r == '.':
			b.WriteByte(' ')
			lower = false
		case r >= 'A' && r <= 'Z':
			if lower {
				b.WriteByte(' ')
			}
			b.WriteRune(r)
			lower = false
		default:
			b.WriteRune(r)
			lower = true
		}
	}
	return strings.Join(strings.Fields(strings.ToLower(b.String())), " ")
}
