package docs

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

//go:embed reference.gotmpl
var referenceTemplate string

// The pages of the reference have names of files that no tree has, so that links between them are those of others.
const (
	referenceFile  = "readapi/openapi.yaml"
	referenceGroup = "API reference"
	shared         = "shared"
)

type object = map[string]any

// reference makes pages of an OpenAPI document: one for each tag, with its operations and the schemas that they alone
// use, and one with the schemas that several use.
type reference struct {
	document object
	homes    map[string]string // schema → its page
}

// newReference reads a document. url becomes the address of the API in it.
func newReference(document []byte, url string) (*reference, error) {
	r := &reference{homes: map[string]string{}}
	if err := yaml.Unmarshal(document, &r.document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	r.document["servers"] = []object{{"url": url}}
	for _, tag := range under[[]any](r.document, "tags") {
		name := under[string](tag, "name")
		for _, op := range r.operations(name) {
			r.settle(op.Of, name)
		}
	}
	return r, nil
}

// under is what a path of names leads to, the zero value if nothing of its type is there.
func under[T any](from any, names ...string) (value T) {
	for _, name := range names {
		o, _ := from.(object)
		from = o[name]
	}
	value, _ = from.(T)
	return value
}

// operation is a method of a route.
type operation struct {
	Method, Path, Anchor string
	Credentials          []string
	Of                   object
}

func (r *reference) operations(tag string) (list []operation) {
	paths := under[object](r.document, "paths")
	for _, at := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			of := under[object](paths, at, method)
			if !slices.Contains(under[[]any](of, "tags"), any(tag)) {
				continue
			}
			op := operation{Method: strings.ToUpper(method), Path: at, Of: of}
			op.Anchor = (&anchors{}).name(op.Method + " " + at)
			for _, choice := range under[[]any](of, "security") {
				for name := range under[object](choice) {
					text := under[string](r.document, "components", "securitySchemes", name, "description")
					op.Credentials = append(op.Credentials, text)
				}
			}
			list = append(list, op)
		}
	}
	return list
}

// ref is what an object refers to, or the object.
func (r *reference) ref(o any) object {
	if to, ok := strings.CutPrefix(under[string](o, "$ref"), "#/"); ok {
		return under[object](r.document, strings.Split(to, "/")...)
	}
	return under[object](o)
}

// settle gives each schema that a value uses a home: the page of the tag that uses it, or of those that several use.
func (r *reference) settle(value any, tag string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			r.settle(item, tag)
		}
	case object:
		if name, ok := schemaOf(value); ok {
			switch r.homes[name] {
			case tag, shared:
				return
			case "":
				r.homes[name] = tag
			default:
				r.homes[name] = shared
			}
			tag = r.homes[name]
		}
		if _, ok := value["$ref"]; ok {
			r.settle(r.ref(value), tag)
			return
		}
		for _, member := range value {
			r.settle(member, tag)
		}
	}
}

func schemaOf(value object) (name string, ok bool) {
	return strings.CutPrefix(under[string](value, "$ref"), "#/components/schemas/")
}

// pages are those of the reference.
func (r *reference) pages() ([]Page, error) {
	made, err := template.New("").Funcs(template.FuncMap{
		"operations": r.operations, "ref": r.ref, "kind": r.kind, "json": example,
		"cell": func(value any) string {
			text, _ := value.(string)
			return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
		},
		"schemas": func(home string) object {
			list := maps.Clone(under[object](r.document, "components", "schemas"))
			maps.DeleteFunc(list, func(name string, _ any) bool { return r.homes[name] != home })
			return list
		},
		"parts": func(schema object) []any {
			return slices.DeleteFunc(append(slices.Clone(under[[]any](schema, "allOf")), schema), func(part any) bool {
				return len(under[object](part, "properties")) == 0
			})
		},
		"required": func(schema object, field string) bool {
			return slices.Contains(under[[]any](schema, "required"), any(field))
		},
	}).Option("missingkey=zero").Parse(referenceTemplate)
	if err != nil {
		return nil, fmt.Errorf("template of the reference: %w", err)
	}
	summary := "the rules of all calls, and every route"
	list := []Page{{ID: "reference", Title: referenceGroup, Summary: summary, File: referenceFile}}
	texts := []object{r.document}
	last := object{"name": shared, "description": "Objects that several groups of routes use."}
	for _, tag := range append(under[[]any](r.document, "tags"), last) {
		name := under[string](tag, "name")
		id := "reference/" + name
		summary = strings.TrimSuffix(under[string](tag, "description"), ".")
		file := path.Join(path.Dir(referenceFile), id+".md")
		list = append(list, Page{ID: id, Title: "API: " + name, Summary: summary, File: file})
		texts = append(texts, under[object](tag))
	}
	for i := range list {
		kind, text := "group", strings.Builder{}
		if i == 0 {
			kind = "index"
		}
		if err := made.ExecuteTemplate(&text, kind, texts[i]); err != nil {
			return nil, fmt.Errorf("page %s: %w", list[i].ID, err)
		}
		list[i].Group, list[i].Text = referenceGroup, strings.ReplaceAll(text.String(), "<no value>", "")
	}
	return list, nil
}

// bounds are what a schema sets of a value, and how a page words it.
var bounds = [][2]string{
	{"format", "%v"},
	{"minimum", "from %v"},
	{"maximum", "to %v"},
	{"default", "default %v"},
	{"minLength", "%v characters or more"},
	{"maxLength", "at most %v characters"},
	{"minItems", "%v items or more"},
	{"maxItems", "at most %v items"},
	{"enum", "one of `%v`"},
	{"x-extensible-enum", "one of `%v`"},
}

// kind is the type of a value, with its bounds.
func (r *reference) kind(value any) string {
	s := under[object](value)
	if name, ok := schemaOf(s); ok {
		return fmt.Sprintf("[%s](%s.md#schema-%s)", name, r.homes[name], strings.ToLower(name))
	}
	var kinds []string
	for _, choice := range slices.Concat(under[[]any](s, "anyOf"), under[[]any](s, "oneOf")) {
		kinds = append(kinds, r.kind(choice))
	}
	switch t := s["type"].(type) {
	case string:
		kinds = append(kinds, t)
	case []any:
		for _, one := range t {
			kinds = append(kinds, fmt.Sprint(one))
		}
	}
	text := strings.Join(kinds, " or ")
	for _, name := range []string{"items", "additionalProperties"} {
		if of, ok := s[name].(object); ok {
			text += " of " + r.kind(of)
		}
	}
	for _, all := range under[[]any](s, "allOf") {
		if _, ok := schemaOf(under[object](all)); ok {
			text += "all fields of " + r.kind(all) + ", and those below"
		}
	}
	for _, bound := range bounds {
		switch value := s[bound[0]].(type) {
		case nil:
		case []any:
			names := make([]string, 0, len(value))
			for _, one := range value {
				names = append(names, fmt.Sprint(one))
			}
			text += ", " + fmt.Sprintf(bound[1], strings.Join(names, "`, `"))
		default:
			text += ", " + fmt.Sprintf(bound[1], value)
		}
	}
	return text
}

// exampleKey is a key in full, which no page shows, not even one that was made up.
var exampleKey = regexp.MustCompile(`(svc_[a-z]+_)[0-9A-Za-z]{20,}`)

// example is that of a body, or the first of several.
func example(body object) (string, error) {
	value, ok := body["example"]
	examples := under[object](body, "examples")
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		if !ok {
			value, ok = under[any](examples, name, "value"), true
		}
	}
	if !ok {
		return "", nil
	}
	text, err := json.MarshalIndent(value, "", "  ")
	return exampleKey.ReplaceAllString(string(text), "$1…"), err
}
