package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
)

// contract is the document of the API. Tools take the shapes of their arguments and answers from it, so that both
// interfaces always agree.
type contract struct{ doc map[string]any }

// object is a JSON schema.
type object = map[string]any

// operation is a route of the API.
type operation struct {
	method, path string
	fields       map[string]field
	// answer is the schema of the answer, nil for one without a body.
	answer object
}

// field is a parameter of the path or the query of a route, or a field of its body.
type field struct {
	in     string
	schema object
}

// route is the path of the operation as the table of routes has it.
func (o operation) route() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(o.path)
}

const inPath, inBody = "path", "body"

func newContract(document []byte) (c contract, err error) {
	if err = yaml.Unmarshal(document, &c.doc); err != nil {
		return c, fmt.Errorf("read the document of the API: %w", err)
	}
	return c, nil
}

// operation finds a route by its method and path.
func (c contract) operation(route string) (operation, error) {
	method, path, _ := strings.Cut(route, " ")
	op := operation{method: method, path: path, fields: map[string]field{}}
	found := at(c.doc, "paths", path, strings.ToLower(method))
	if found == nil {
		return op, fmt.Errorf("the API has no route %s", route)
	}
	parameters, _ := found["parameters"].([]any)
	for _, p := range parameters {
		parameter, _ := c.resolve(p).(object)
		schema, _ := parameter["schema"].(object)
		name, _ := parameter["name"].(string)
		in, _ := parameter["in"].(string)
		op.fields[name] = field{in, described(schema, parameter["description"])}
	}
	body, _ := c.resolve(at(found, "requestBody", "content", "application/json")["schema"]).(object)
	for name, schema := range at(body, "properties") {
		op.fields[name] = field{inBody, present(schema.(object))} //nolint:forcetypeassert // a schema is an object
	}
	for _, status := range []string{"200", "201", "202"} {
		content := at(found, "responses", status, "content", "application/json")
		if schema, ok := c.resolve(content["schema"]).(object); ok && op.answer == nil {
			op.answer = bare(schema).(object) //nolint:forcetypeassert // bare keeps what a value is
			op.answer["type"] = "object"      // clients want it at the root, also above oneOf
		}
	}
	return op, nil
}

// at walks down objects. It is nil where there is none.
func at(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

// resolve copies a value and puts what references name in their place. The document has no circle of references.
func (c contract) resolve(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = c.resolve(e)
		}
		return list
	case object:
		if ref, ok := v["$ref"].(string); ok {
			return c.resolve(at(c.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
		}
		o := object{}
		for name, e := range v {
			if name != "example" && !strings.HasPrefix(name, "x-") {
				o[name] = c.resolve(e)
			}
		}
		return joined(o)
	default:
		return v
	}
}

// joined puts the properties of allOf into one object.
func joined(o object) object {
	parts, ok := o["allOf"].([]any)
	if !ok {
		return o
	}
	properties := object{}
	for _, part := range parts {
		maps.Copy(properties, at(part.(object), "properties")) //nolint:forcetypeassert // a schema is an object
	}
	return object{"type": "object", "properties": properties}
}

// present is the schema of an argument that is there: null would mean the same as leaving it out, and some clients read
// no list of types.
func present(schema object) object {
	schema = maps.Clone(schema)
	if types, ok := schema["type"].([]any); ok && len(types) == 2 && types[1] == "null" {
		schema["type"] = types[0]
	}
	if either, ok := schema["anyOf"].([]any); ok && len(either) == 2 {
		delete(schema, "anyOf")
		description := schema["description"]
		maps.Copy(schema, either[0].(object)) //nolint:forcetypeassert // a schema is an object
		schema = described(schema, description)
	}
	return schema
}

// described is a schema with a description, if there is one.
func described(schema object, description any) object {
	schema = maps.Clone(schema)
	if description != nil {
		schema["description"] = description
	}
	return schema
}

// bare is the schema of an answer without descriptions, which models would have to read in each list of tools, and
// without least lengths, since an answer may be cut.
func bare(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = bare(e)
		}
		return list
	case object:
		o := object{}
		for name, e := range v {
			if _, text := e.(string); name == "description" && text || name == "minItems" || name == "minLength" {
				continue
			}
			o[name] = bare(e)
		}
		return o
	default:
		return v
	}
}

// input is the schema of the arguments of a tool in a view.
func (t tool) input(op operation, v view) (object, error) {
	properties, required := object{}, []string{}
	for _, arg := range t.args {
		if !v.hasArgument(arg) {
			continue
		}
		f, ok := op.fields[arg.field()]
		if !ok && arg.schema == nil {
			return nil, fmt.Errorf("tool %s: %s %s has no field %s", t.name, op.method, op.path, arg.field())
		}
		schema := described(f.schema, nil)
		if arg.schema != nil {
			schema = described(arg.schema, nil)
		}
		if _, typed := schema["type"].(string); !typed {
			return nil, fmt.Errorf("tool %s: the argument %s has no single type", t.name, arg.name)
		}
		switch {
		case arg.identity:
			schema["description"] = v.identityText(arg.text)
		case arg.name == audienceArgument && t.name == rememberName:
			schema["description"] = v.audienceText()
		case arg.text != "":
			schema["description"] = arg.text
		}
		if arg.otherwise != nil {
			schema["default"] = arg.otherwise
		}
		properties[arg.name] = schema
		if arg.required || f.in == inPath {
			required = append(required, arg.name)
		}
	}
	if t.inProject() {
		properties[projectArgument] = object{"type": "string", "description": v.projectText()}
	}
	slices.Sort(required)
	return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}, nil
}

// output is the schema of what a tool answers.
func (t tool) output(op operation) object {
	schema := maps.Clone(op.answer)
	if t.shape != nil {
		schema = maps.Clone(t.shape)
	}
	if _, either := schema["oneOf"]; !either {
		properties := maps.Clone(at(schema, "properties"))
		properties[omittedName] = omittedSchema
		schema["properties"] = properties
	}
	return schema
}

// readArguments reads arguments by their schema. What the API does not know it ignores, but a model that invents an
// argument must learn that it does nothing.
func (t tool) readArguments(input object, sent json.RawMessage) (arguments, error) {
	args := arguments{}
	if len(sent) > 0 && string(sent) != "null" {
		if err := json.Unmarshal(sent, &args); err != nil {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the arguments are no JSON object")
		}
	}
	properties := at(input, "properties")
	known := []string{}
	for _, a := range append(slices.Clone(t.args), argument{name: projectArgument}) {
		schema := at(properties, a.name)
		if schema == nil {
			continue
		}
		known = append(known, a.name)
		v, ok := args[a.name]
		if !ok {
			continue
		}
		v = typed(v, schema)
		args[a.name] = v
		switch text := string(bytes.TrimSpace(v)); {
		case text == `""` && a.name == audienceArgument:
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
				"audience is empty: name one, or leave it out")
		case text == "null" && a.name != "metadata", text == `""` && !a.required:
			delete(args, a.name)
		}
	}
	for _, a := range t.args {
		if _, ok := args[a.name]; !ok && a.required {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s needs the argument %s", t.name, a.name)
		}
	}
	for name := range args {
		if !slices.Contains(known, name) {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s has no argument %q: it has %s",
				t.name, cut(name, maxShown), strings.Join(known, ", "))
		}
	}
	return args, nil
}

// whole is an integer as JSON has it.
var whole = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// typed is a value in the type that its schema wants, if it arrived as the text of one: models and hosts write "5" for
// 5.
func typed(v json.RawMessage, schema object) json.RawMessage {
	var text string
	if json.Unmarshal(v, &text) != nil || string(bytes.TrimSpace(v)) == "null" {
		return v
	}
	text = strings.TrimSpace(text)
	is := false
	switch schema["type"] {
	case "integer":
		is = whole.MatchString(text)
	case "number":
		var n json.Number
		is = json.Unmarshal([]byte(text), &n) == nil && !strings.HasPrefix(text, `"`) && text != "null"
	case "boolean":
		is = text == "true" || text == "false"
	case "object":
		is = strings.HasPrefix(text, "{") && json.Valid([]byte(text))
	case "array":
		is = strings.HasPrefix(text, "[") && json.Valid([]byte(text))
	}
	if is {
		return json.RawMessage(text)
	}
	return v
}

// next is what a model does after a refusal at a path, "" if the refusal names it.
func next(f *fault.Error, path string) string {
	operator := path == auth.MCPOperatorPath
	switch {
	case f.Code == fault.CodeIdentityRequired:
		return ". Name as identity who asks."
	case f.Code == fault.CodeDataPointDeleted:
		return ". Take another id."
	case f.Code == fault.CodeAudienceUnknown && operator:
		return ". list_audiences names those that there are."
	case f.Code == fault.CodeAudienceUnknown:
		return ". Ask the user which one is meant, or name me (the identity alone) or project (everybody)."
	case strings.HasSuffix(f.Msg, " is not a UUID") && operator:
		return ". A source id such as note-1 goes to read, or to search_memory_trace, which returns ids."
	case strings.HasSuffix(f.Msg, " is not a UUID"):
		return ". A source id such as note-1 goes to read and to forget, as sourceId."
	case strings.Contains(f.Msg, "ISO 8601"):
		return ". Write it as 2026-11-28T09:00:00Z, or leave it out."
	case f.Code == fault.CodeDataPointNotFound:
		return ". Source ids are in the brackets of what recall returns."
	case f.Code == codeRateLimited, f.Code == fault.CodeServiceUnavailable:
		return ". Try again in some seconds."
	}
	return ""
}
