package estimate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
)

const (
	// maxRecordLines and maxRecordDepth bound how a record is written as lines: it is walked once for each
	// level.
	maxRecordLines = 5000
	maxRecordDepth = 8
)

// cutRecords cuts a JSON array, JSON Lines, or one JSON object: one data point for each element.
func cutRecords(c *cut) error {
	switch {
	case isCalendar(c.text):
		return cutCalendar(c)
	case isVCard(c.text):
		return cutVCards(c)
	}
	text := strings.TrimSpace(c.text)
	if err := c.nesting(Records, text); err != nil {
		return err
	}
	r := &records{cut: c, names: newNames(), plain: map[string]string{}, monthFirst: c.learnOrder()}
	if strings.HasPrefix(text, "[") {
		return r.array(strings.NewReader(text))
	}
	dec := json.NewDecoder(c.reader(strings.NewReader(text)))
	var element json.RawMessage // its memory is used again
	for n := 1; ; n++ {
		err := dec.Decode(&element)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unparseable(Records, "value %d: %v", n, err)
		}
		if n == 1 && !dec.More() {
			// One object may hold the list of records in its only array.
			if list := onlyList(element); list != nil {
				return r.array(bytes.NewReader(list))
			}
		}
		if err := r.add(element); err != nil {
			return err
		}
	}
}

// array cuts the elements of a JSON array, which is all of the text.
func (r *records) array(text io.Reader) error {
	dec := json.NewDecoder(r.cut.reader(text))
	var element json.RawMessage
	_, err := dec.Token()
	for err == nil && dec.More() {
		if err = dec.Decode(&element); err != nil {
			break
		}
		if err := r.add(element); err != nil {
			return err
		}
	}
	if err == nil {
		_, err = dec.Token()
	}
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the array")
		}
	}
	if err != nil {
		return unparseable(Records, "%v", err)
	}
	return nil
}

// onlyList returns the array of objects in an object that has one such array, nil for anything else.
func onlyList(object json.RawMessage) (list json.RawMessage) {
	lists := 0
	for _, value := range rawjson.Each(object) {
		if value[0] == '[' && bytes.HasPrefix(trimSpace(value[1:]), []byte("{")) {
			list = value
			lists++
		}
	}
	if lists != 1 {
		return nil
	}
	return list
}

// member is a member of a record. Its name is as plainName returns it.
type member struct {
	name  string
	value json.RawMessage
}

// records is a list of records while it is cut.
type records struct {
	cut   *cut
	names names
	// plain are the plain names of fields.
	plain map[string]string
	// fields are those of the record at hand.
	fields []member
	// number counts the elements.
	number int
	// monthFirst is the order of dates with slashes.
	monthFirst bool
}

// maxPlain is how many names of fields are kept.
const maxPlain = 1000

func (r *records) plainName(name string) string {
	plain, ok := r.plain[name]
	if !ok {
		if plain = plainName(name); len(r.plain) < maxPlain {
			r.plain[name] = plain
		}
	}
	return plain
}

// field returns the first field that has one of the names as text, "" for none.
func (r *records) field(names ...string) string {
	for _, name := range names {
		for _, m := range r.fields {
			if m.name == name {
				if text := scalar(m.value); text != "" {
					return text
				}
			}
		}
	}
	return ""
}

// add makes the data point of an element. A record that has a text as content, as a data point has, is
// that text; of any other each field is a line.
func (r *records) add(element json.RawMessage) error {
	r.fields = r.fields[:0]
	for name, value := range rawjson.Each(element) {
		r.fields = append(r.fields, member{r.plainName(name), value})
		if len(r.fields) > maxRecordLines {
			return unparseable(Records, "a record has more than %d fields", maxRecordLines)
		}
		if r.cut.over(len(value)) {
			break
		}
	}
	if r.field("private") == "true" && r.field("identity") != "" && r.field("content") != "" {
		return skip("has data points that are private to their identities: import it as data points, which keeps them so")
	}
	content := r.content(element)
	if r.number++; strings.TrimSpace(content) == "" {
		r.cut.remarks.add(NoWords, "element "+strconv.Itoa(r.number))
		return nil
	}
	p := Point{
		Content: content, Label: r.field(labelNames...), Identity: r.field(authorNames...), Metadata: r.cut.metadata(),
	}
	if slug := r.field(audienceNames...); limit.IsAudienceSlug(slug) {
		p.Audience = slug
	}
	for _, name := range timeNames {
		text := r.field(name)
		if text == "" {
			continue
		}
		if at, ok := timeOf(text, r.cut.zone, r.monthFirst); ok {
			p.At = at
			break
		}
	}
	p.Label = cmp.Or(p.Label, r.cut.base)
	p.ID = r.cut.id(r.names.unique(r.field(idNames...), p.Content))
	return r.cut.emit(p)
}

func (r *records) content(element json.RawMessage) string {
	for _, m := range r.fields {
		if m.name == "content" && m.value[0] == '"' {
			if text, _ := rawjson.Text(m.value); strings.TrimSpace(text) != "" {
				return text
			}
		}
	}
	w := recordLines{cut: r.cut}
	w.write("", element, 0)
	return w.b.String()
}

// scalar returns a string, a number or a boolean as text; an object of a person as its name; else "".
func scalar(value json.RawMessage) (text string) {
	value = trimSpace(value)
	switch {
	case len(value) == 0 || value[0] == '[' || value[0] == 'n':
		return ""
	case value[0] == '{':
		if len(value) > 4096 {
			return ""
		}
		if text, ok := extended(value); ok {
			return text
		}
		for _, want := range []string{"name", "displayName", "login", "email", "id", "seconds", "_seconds"} {
			for name, member := range rawjson.Each(value) {
				if name != want || member[0] != '"' && !strings.HasSuffix(want, "seconds") {
					continue
				}
				if member[0] != '"' {
					return string(bytes.TrimSpace(member)) // a time of Firestore or of Protocol Buffers
				}
				text, _ = rawjson.Text(member)
				if text = strings.TrimSpace(text); text != "" {
					return text
				}
			}
		}
		return ""
	case value[0] == '"':
		text, _ = rawjson.Text(value)
		return strings.TrimSpace(text)
	default:
		return string(bytes.TrimSpace(value))
	}
}

// trimSpace removes the white space of JSON before a value.
func trimSpace(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// recordLines writes a JSON value as lines "name: value". Names of nested fields are joined by a dot.
type recordLines struct {
	cut   *cut
	b     strings.Builder
	lines int
}

func (w *recordLines) write(name string, value json.RawMessage, depth int) {
	if len(value) == 0 || w.lines >= maxRecordLines || w.cut.over(len(value)) {
		return
	}
	switch {
	case value[0] == 'n':
	case value[0] == '{' && isExtended(value) && scalar(value) != "":
		w.line(name, scalar(value))
	case value[0] == '{' && depth < maxRecordDepth:
		for inner, value := range rawjson.Each(value) {
			if w.write(join(name, inner), value, depth+1); w.lines >= maxRecordLines {
				break
			}
		}
	case value[0] == '[' && depth < maxRecordDepth:
		w.list(name, value, depth)
	case value[0] == '"':
		w.line(name, scalar(value))
	default:
		w.line(name, string(value))
	}
}

// list writes an array: one of plain values as one line, else each element with its number.
func (w *recordLines) list(name string, value json.RawMessage, depth int) {
	nested := false
	var plain strings.Builder
	for _, e := range rawjson.Elements(value) {
		if nested = e[0] == '{' || e[0] == '['; nested {
			break
		}
		if text := scalar(e); text != "" {
			if plain.Len() > 0 {
				plain.WriteString(", ")
			}
			plain.WriteString(text)
		}
		if w.cut.over(len(e)) {
			break
		}
	}
	if !nested {
		w.line(name, plain.String())
		return
	}
	for i, e := range rawjson.Elements(value) {
		if w.write(join(name, strconv.Itoa(i+1)), e, depth+1); w.lines >= maxRecordLines {
			break
		}
	}
}

func (w *recordLines) line(name, text string) {
	if text == "" {
		return
	}
	if w.lines++; w.lines > 1 {
		w.b.WriteByte('\n')
	}
	if name != "" {
		w.b.WriteString(name)
		w.b.WriteString(": ")
	}
	w.b.WriteString(text)
}

// join joins the names of nested fields; a long name keeps its end.
func join(outer, inner string) string {
	name := inner
	if outer != "" {
		name = outer + "." + inner
	}
	if len(name) > 2*maxColumnName {
		name = "…" + strings.ToValidUTF8(name[len(name)-maxColumnName:], "")
	}
	return name
}

// maxExtended is the longest value that is looked at for a type.
const maxExtended = 4096

// isExtended reports whether an object is a value with its type, as the exports of MongoDB write it.
func isExtended(object json.RawMessage) bool {
	return len(object) <= maxExtended && bytes.HasPrefix(trimSpace(object[1:]), []byte(`"$`))
}

// extendedParts are names within such values: of a time, of bytes, of an expression.
var extendedParts = map[string]bool{"t": true, "base64": true, "pattern": true}

// extended returns what such an object stands for: {"$oid": "…"}, {"$date": …}, {"$numberLong": "…"} and the like.
func extended(object json.RawMessage) (text string, ok bool) {
	if !isExtended(object) {
		return "", false
	}
	for range 4 {
		var name string // of the member that has the value
		var value json.RawMessage
		members := 0
		for n, v := range rawjson.Each(object) {
			// A reference and a time of the log have more members, of which one is what people mean.
			if members++; members == 1 || n == "$id" || n == "t" {
				name, value = n, v
			}
		}
		if !strings.HasPrefix(name, "$") && !extendedParts[name] || len(value) == 0 {
			return "", false
		}
		if value[0] != '{' {
			return scalar(value), value[0] != '['
		}
		object = value
	}
	return "", false
}

// The depth to which text nests that is read level by level. Other forms of nesting, such as quotations in
// quotations, lists in lists and elements of HTML, are read without a level of their own.
const (
	// maxJSONDepth is that of arrays and objects; a text that is deeper is skipped.
	maxJSONDepth = 1000
	// maxNesting is that of multiparts and attached messages; what is deeper is not read.
	maxNesting = 16
)

// nesting returns an error if a JSON text nests too deep. Whether it is JSON is for a parser to tell.
func (c *cut) nesting(kind Kind, text string) error {
	depth, quoted, escaped := 0, false, false
	for i := range len(text) {
		if i%checkBytes == 0 && c.over(min(checkBytes, len(text)-i)) {
			return c.ended
		}
		switch b := text[i]; {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = b == '\\', b != '"'
		case b == '"':
			quoted = true
		case b == '[' || b == '{':
			if depth++; depth > maxJSONDepth {
				return unparseable(kind, "it nests more than %d levels deep", maxJSONDepth)
			}
		case b == ']' || b == '}':
			depth--
		}
	}
	return nil
}
