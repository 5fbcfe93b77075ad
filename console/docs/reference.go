package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The pages of the API have the names of files that no tree has, so that links between them are those of others.
const (
	referenceFile  = "readapi/openapi.yaml"
	referenceGroup = "API reference"
	shared         = "shared"
)

// reference makes pages of an OpenAPI document: one of each tag with its operations and the schemas that they alone
// use, and one of the schemas that several use.
type reference struct {
	root  object
	homes map[string]string // schema → tag
}

// newReference reads a document.
func newReference(document []byte) (*reference, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(document, &doc); err != nil || len(doc.Content) == 0 {
		return nil, fmt.Errorf("read the OpenAPI document: %w", errors.Join(err, errors.ErrUnsupported))
	}
	r := &reference{root: object{doc.Content[0]}, homes: map[string]string{}}
	for _, op := range r.operations() {
		r.settle(op.of, op.tag)
	}
	return r, nil
}

// object is a node of the document. That of a name that is not there is empty.
type object struct{ *yaml.Node }

func (o object) get(name string) object {
	for key, value := range o.each {
		if key == name {
			return value
		}
	}
	return object{&yaml.Node{}}
}

// each yields the members of a mapping, or those of a list with "".
func (o object) each(yield func(string, object) bool) {
	switch o.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(o.Content); i += 2 {
			if !yield(o.Content[i].Value, object{o.Content[i+1]}) {
				return
			}
		}
	case yaml.SequenceNode:
		for _, item := range o.Content {
			if !yield("", object{item}) {
				return
			}
		}
	}
}

func (o object) has(text string) bool {
	for _, item := range o.each {
		if item.Value == text {
			return true
		}
	}
	return false
}

// ref is the part of the document that an object refers to, or the object.
func (r *reference) ref(o object) object {
	if to, ok := strings.CutPrefix(o.get("$ref").Value, "#/"); ok {
		o = r.root
		for name := range strings.SplitSeq(to, "/") {
			o = o.get(name)
		}
	}
	return o
}

// exampleKey is a key in full, which no page shows, not even one that was made up.
var exampleKey = regexp.MustCompile(`(svc_[a-z]+_)[0-9A-Za-z]{20,}`)

type operation struct {
	method, path, tag string
	of                object
}

func (r *reference) operations() (list []operation) {
	for at, methods := range r.root.get("paths").each {
		for method, of := range methods.each {
			tag := ""
			for _, t := range of.get("tags").each {
				tag = t.Value
			}
			list = append(list, operation{strings.ToUpper(method), at, tag, of})
		}
	}
	return list
}

// settle gives each schema that an object uses a home: the tag that uses it, or the page of those that several use.
func (r *reference) settle(o object, tag string) {
	for key, value := range o.each {
		if key != "$ref" {
			r.settle(value, tag)
			continue
		}
		if name, ok := strings.CutPrefix(value.Value, "#/components/schemas/"); ok {
			switch r.homes[name] {
			case tag, shared:
				continue
			case "":
				r.homes[name] = tag
			default:
				r.homes[name] = shared
			}
			r.settle(r.ref(o), r.homes[name])
			continue
		}
		r.settle(r.ref(o), tag)
	}
}

// pages are those of the reference.
func (r *reference) pages() []Page {
	info := r.root.get("info")
	var b strings.Builder
	fmt.Fprintf(&b, "# API reference\n\nVersion %s. The whole as one document: [JSON](/openapi.json).\n\n%s\n",
		info.get("version").Value, info.get("description").Value)
	first := Page{
		ID: "reference", Title: "API reference", Summary: "the rules of all calls, and every route", File: referenceFile,
	}
	list := []Page{}
	for _, tag := range r.root.get("tags").each {
		name, summary := tag.get("name").Value, tag.get("description").Value
		title := "API: " + name
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| route | |\n|---|---|\n", strings.ToUpper(name[:1])+name[1:], summary)
		var text strings.Builder
		fmt.Fprintf(&text, "# %s\n\n%s\n", title, summary)
		for _, op := range r.operations() {
			if op.tag == name {
				fmt.Fprintf(&b, "| [`%s %s`](reference/%s.md#%s) | %s |\n", op.method, op.path, name, op.anchor(), op.summary())
				r.describe(&text, op)
			}
		}
		r.schemas(&text, name)
		list = append(list, r.page(name, title, strings.TrimSuffix(summary, "."), text.String()))
	}
	text := strings.Builder{}
	text.WriteString("# API: shared schemas\n\nObjects that several groups of routes use.\n")
	r.schemas(&text, shared)
	fmt.Fprintf(&b, "\n[Schemas](reference/%s.md) that several of them use are on a page of their own.\n", shared)
	first.Text, first.Group = b.String(), referenceGroup
	last := r.page(shared, "API: shared schemas", "objects that several groups of routes use", text.String())
	return slices.Concat([]Page{first}, list, []Page{last})
}

func (r *reference) page(name, title, summary, text string) Page {
	id := "reference/" + name
	file := path.Join(path.Dir(referenceFile), id+".md")
	return Page{ID: id, Title: title, Group: referenceGroup, Summary: summary, Text: text, File: file}
}

func (op operation) summary() string { return op.of.get("summary").Value }

func (op operation) anchor() string { return (&anchors{}).name(op.method + " " + op.path) }

// describe writes what an operation takes and answers.
func (r *reference) describe(b *strings.Builder, op operation) {
	fmt.Fprintf(b, "\n## %s %s\n\n%s\n\n%s\n\n", op.method, op.path, op.summary(), op.of.get("description").Value)
	var credentials []string
	for _, choice := range op.of.get("security").each {
		for name := range choice.each {
			text := r.root.get("components").get("securitySchemes").get(name).get("description").Value
			credentials = append(credentials, strings.TrimSuffix(text, "."))
		}
	}
	if len(credentials) > 0 {
		fmt.Fprintf(b, "Credential: %s.\n\n", strings.Join(credentials, "; or "))
	}
	if parameters := op.of.get("parameters"); len(parameters.Content) > 0 {
		b.WriteString("| parameter | in | type | |\n|---|---|---|---|\n")
		for _, parameter := range parameters.each {
			p := r.ref(parameter)
			fmt.Fprintf(b, "| `%s`%s | %s | %s | %s |\n", p.get("name").Value, required(p.get("required").Value == "true"),
				p.get("in").Value, r.kind(p.get("schema")), cell(p.get("description").Value))
		}
		b.WriteString("\n")
	}
	for media, body := range op.of.get("requestBody").get("content").each {
		fmt.Fprintf(b, "Body: `%s`, %s.\n\n", media, r.kind(body.get("schema")))
		r.example(b, body)
	}
	b.WriteString("| answer | body | |\n|---|---|---|\n")
	var examples strings.Builder
	for status, response := range op.of.get("responses").each {
		answer, kind := r.ref(response), ""
		for _, body := range answer.get("content").each {
			kind = r.kind(body.get("schema"))
			if strings.HasPrefix(status, "2") {
				r.example(&examples, body)
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", status, kind, cell(answer.get("description").Value))
	}
	if examples.Len() > 0 {
		fmt.Fprintf(b, "\nAn answer:\n\n%s", examples.String())
	}
}

func (r *reference) example(b *strings.Builder, body object) {
	example := body.get("example")
	if example.Kind == 0 {
		for _, one := range body.get("examples").each {
			example = one.get("value")
			break
		}
	}
	if example.Kind != 0 {
		var out bytes.Buffer
		if json.Indent(&out, example.json(nil), "", "  ") == nil {
			fmt.Fprintf(b, "```json\n%s\n```\n\n", exampleKey.ReplaceAll(out.Bytes(), []byte("$1…")))
		}
	}
}

// schemas writes those whose home is a page.
func (r *reference) schemas(b *strings.Builder, home string) {
	for name, schema := range r.root.get("components").get("schemas").each {
		if r.homes[name] != home {
			continue
		}
		fmt.Fprintf(b, "\n### Schema %s\n\n", name)
		if text := schema.get("description").Value; text != "" {
			fmt.Fprintf(b, "%s\n\n", text)
		}
		if schema.get("type").Value != "object" {
			fmt.Fprintf(b, "%s.\n", r.kind(schema))
		}
		for _, of := range append([]object{schema}, schema.get("allOf").list()...) {
			if len(of.get("properties").Content) == 0 {
				continue
			}
			b.WriteString("\n| field | type | |\n|---|---|---|\n")
			for field, value := range of.get("properties").each {
				fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", field, required(of.get("required").has(field)), r.kind(value),
					cell(value.get("description").Value))
			}
		}
	}
}

func (o object) list() (list []object) {
	for _, item := range o.each {
		list = append(list, item)
	}
	return list
}

// kind is the type of a value, with its bounds.
func (r *reference) kind(s object) string {
	if name, ok := strings.CutPrefix(s.get("$ref").Value, "#/components/schemas/"); ok {
		return fmt.Sprintf("[%s](%s.md#schema-%s)", name, r.homes[name], strings.ToLower(name))
	}
	var kinds []string
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		for _, one := range s.get(name).each {
			if len(one.get("properties").Content) == 0 {
				kinds = append(kinds, r.kind(one))
			} else {
				kinds = append(kinds, "the fields below")
			}
		}
		if name == "allOf" && len(s.get(name).Content) > 0 {
			return strings.Join(kinds, " and ")
		}
	}
	if t := s.get("type"); t.Kind == yaml.SequenceNode {
		for _, one := range t.each {
			kinds = append(kinds, one.Value)
		}
	} else if t.Value != "" {
		kinds = append(kinds, t.Value)
	}
	text := strings.Join(kinds, " or ")
	if items := s.get("items"); items.Kind != 0 {
		text += " of " + r.kind(items)
	}
	if values := s.get("additionalProperties"); values.Kind == yaml.MappingNode {
		text += " of " + r.kind(values)
	}
	for _, bound := range [][2]string{
		{"format", "%s"}, {"minLength", "%s characters or more"}, {"maxLength", "at most %s characters"}, {"minimum", "from %s"},
		{"maximum", "to %s"}, {"minItems", "%s items or more"}, {"maxItems", "at most %s items"}, {"default", "default %s"},
	} {
		if value := s.get(bound[0]).Value; value != "" {
			text += ", " + fmt.Sprintf(bound[1], value)
		}
	}
	if values := append(s.get("enum").list(), s.get("x-extensible-enum").list()...); len(values) > 0 {
		names := make([]string, 0, len(values))
		for _, value := range values {
			names = append(names, "`"+value.Value+"`")
		}
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

func required(is bool) string {
	if is {
		return " (required)"
	}
	return ""
}

// cell is a text in a row of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// json appends the object in the order of the document.
func (o object) json(out []byte) []byte {
	switch o.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		marks := "[]"
		if o.Kind == yaml.MappingNode {
			marks = "{}"
		}
		out = append(out, marks[0])
		first := true
		for key, value := range o.each {
			if !first {
				out = append(out, ',')
			}
			if first = false; o.Kind == yaml.MappingNode {
				out = append(quote(out, key), ':')
			}
			out = value.json(out)
		}
		return append(out, marks[1])
	default:
		switch o.ShortTag() {
		case "!!int", "!!float", "!!bool", "!!null":
			var value any
			if o.Decode(&value) == nil {
				if text, err := json.Marshal(value); err == nil {
					return append(out, text...)
				}
			}
		}
		return quote(out, o.Value)
	}
}

func quote(out []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string always has a JSON form
	return append(out, quoted...)
}

// asJSON is the document as JSON, for clients of an address.
func (r *reference) asJSON(address string) []byte {
	for i := 0; i+1 < len(r.root.Content); i += 2 {
		if r.root.Content[i].Value == "servers" {
			var servers yaml.Node
			_ = servers.Encode([]map[string]string{{"url": address}}) // strings always have a YAML form
			r.root.Content[i+1] = &servers
		}
	}
	return r.root.json(nil)
}
