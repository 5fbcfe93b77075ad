package mcp

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
)

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
