package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// arguments are those of a call of a tool, as they were sent.
type arguments map[string]json.RawMessage

// callTime is the most time that a call of a tool takes.
const callTime = 60 * time.Second

// maxContent is the most bytes of a text that a model sends in one piece.
const maxContent = 1 << 20

// readArguments reads arguments. What the API does not know it ignores, but a model that invents an argument must learn
// that it does nothing.
func (t tool) readArguments(sent json.RawMessage) (arguments, error) {
	args := arguments{}
	if len(sent) > 0 {
		if err := json.Unmarshal(sent, &args); err != nil {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "the arguments are no JSON object")
		}
	}
	maps.DeleteFunc(args, func(name string, v json.RawMessage) bool { return string(v) == "null" && name != "metadata" })
	known := []string{}
	for _, a := range t.args {
		known = append(known, a.name)
		if _, ok := args[a.name]; !ok && a.required {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s needs the argument %s", t.name, a.name)
		}
	}
	if t.inProject() {
		known = append(known, projectArgument)
	}
	for name := range args {
		if !slices.Contains(known, name) {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s has no argument %q: it has %s",
				t.name, cut(name, maxShown), strings.Join(known, ", "))
		}
	}
	return args, nil
}

// string reads an argument that is a text.
func (a arguments) string(name string) (text string, err error) {
	if sent, ok := a[name]; ok {
		if json.Unmarshal(sent, &text) != nil {
			err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s must be a text", name)
		}
	}
	return text, err
}

// run answers a call of a tool. What it refuses is an answer for the model.
func (s *Service) run(ctx context.Context, t tool, op operation, sent json.RawMessage) *sdk.CallToolResult {
	from := callOf(ctx)
	defer from.reserved.use()()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	defer context.AfterFunc(from.request, cancel)() // the SDK goes on when the client has left
	answer, o, p, err := s.answer(ctx, t, op, sent)
	if err != nil {
		return refused(s.fault(ctx, t.name, err))
	}
	var authors map[string]string
	if t.name == "recall" {
		if authors, err = s.Authors(ctx, p.Project, sourcesOf(answer)); err != nil {
			return refused(s.fault(ctx, t.name, err))
		}
	}
	text, err := t.text(ctx, answer, authors, &o)
	if err != nil {
		return refused(s.fault(ctx, t.name, err))
	}
	if len(o.Counts) > 0 {
		answer[omittedName] = o
	}
	return &sdk.CallToolResult{StructuredContent: answer, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// answer finds the answer of a tool, and cuts it to what fits.
func (s *Service) answer(
	ctx context.Context, t tool, op operation, sent json.RawMessage,
) (answer object, o omitted, p auth.Principal, err error) {
	c := callOf(ctx).caller
	args, err := t.readArguments(sent)
	if err != nil {
		return nil, o, p, err
	}
	if t.own != nil {
		if answer, o, err = t.own(ctx, s, c, args); err == nil {
			_, err = o.fit(ctx, answer)
		}
		return answer, o, p, err
	}
	slug, err := args.string(projectArgument)
	if err != nil {
		return nil, o, p, err
	}
	delete(args, projectArgument)
	if p, err = c.in(slug, t.scope); err != nil {
		return nil, o, p, err
	}
	if err = s.prepare(ctx, t, c, p, args); err != nil {
		return nil, o, p, err
	}
	answer, o, left, err := s.askToFit(ctx, t, op, p, args)
	if err != nil || t.page == "" || len(left) == 0 {
		return answer, o, p, err
	}
	// A smaller page has a cursor that continues it.
	fits := slices.Min(slices.Collect(maps.Values(left)))
	args[t.page], _ = json.Marshal(max(fits, 1)) // a number
	callOf(ctx).reserved.drop()
	answer, o, _, err = s.askToFit(ctx, t, op, p, args)
	return answer, o, p, err
}

// askToFit calls the API, and cuts the answer to what fits.
func (s *Service) askToFit(
	ctx context.Context, t tool, op operation, p auth.Principal, args arguments,
) (answer object, o omitted, left map[string]int, err error) {
	if answer, o, err = s.ask(ctx, t, op, p, args); err == nil {
		left, err = o.fit(ctx, answer)
	}
	return answer, o, left, err
}

// prepare checks and completes the arguments of a call.
func (s *Service) prepare(ctx context.Context, t tool, c *caller, p auth.Principal, args arguments) error {
	for _, a := range t.args {
		if _, ok := args[a.name]; !ok && a.otherwise != nil {
			args[a.name], _ = json.Marshal(a.otherwise) // a number
		}
	}
	content, err := args.string("content")
	if err != nil {
		return err
	}
	if len(content) > maxContent {
		return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"content has %d bytes in UTF-8: want at most %d; send it in parts, or by the API", len(content), maxContent)
	}
	if _, named := args["identity"]; named || !t.asIdentity || c.isKey() {
		return nil
	}
	args["identity"], _ = json.Marshal(c.person.Email) // a text
	return s.ensureIdentity(ctx, c, p)
}

// ask calls the API in the process.
func (s *Service) ask(
	ctx context.Context, t tool, op operation, p auth.Principal, args arguments,
) (answer object, o omitted, err error) {
	call, err := t.call(op, args)
	if err != nil {
		return nil, o, err
	}
	call.Tool = t.name
	if answer, o, err = s.do(ctx, p, call); err != nil || t.shape == nil {
		return answer, o, err
	}
	id, err := args.string("ingestionId")
	return object{"ingestionId": id, "status": "deleted"}, o, err
}

// call is the call of the API with the arguments where its route has them.
func (t tool) call(op operation, args arguments) (call httpx.InnerCall, err error) {
	path, query, body := op.path, url.Values{}, map[string]json.RawMessage{}
	for _, a := range t.args {
		value, sent := args[a.name]
		f := op.fields[a.field()]
		if !sent && f.in != inPath {
			continue
		}
		switch f.in {
		case inBody:
			body[a.field()] = value
		case inPath:
			id, err := t.id(a, f, args)
			if err != nil {
				return call, err
			}
			path = strings.ReplaceAll(path, "{"+a.field()+"}", url.PathEscape(id))
		default:
			if err := addQuery(query, a, value); err != nil {
				return call, err
			}
		}
	}
	call.Method, call.Path, call.Route = op.method, path, op.route()
	if len(query) > 0 {
		call.Path += "?" + query.Encode()
	}
	if len(body) > 0 {
		call.ContentType = "application/json"
		call.Body, err = json.Marshal(body)
	}
	return call, err
}

// maxID is the most characters of an id in a path.
const maxID = 1000

// id reads an argument that is a part of the path of a route. What can be no id is refused before the API is called.
func (t tool) id(a argument, f field, args arguments) (string, error) {
	id, err := args.string(a.name)
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s needs the argument %s", t.name, a.name)
	case strings.ContainsRune(id, 0):
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is not text without U+0000", a.name)
	case f.schema["format"] == "uuid" && (len(id) != uuidLength || uuid.Validate(id) != nil):
		return "", fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", a.name)
	case utf8.RuneCountInString(id) > maxID:
		return "", fault.New(fault.NotFound, fault.CodeNotFound, "%s has more than %d characters", a.name, maxID)
	}
	return id, nil
}

// uuidLength is the length of a UUID in its usual form.
const uuidLength = 36

// addQuery adds an argument to a query, each entry of a list by itself.
func addQuery(query url.Values, a argument, value json.RawMessage) error {
	var list []any
	if !bytes.HasPrefix(bytes.TrimSpace(value), []byte("[")) {
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is no JSON", a.name)
	}
	for _, e := range list {
		switch e := e.(type) {
		case string:
			query.Add(a.field(), e)
		case json.Number:
			query.Add(a.field(), e.String())
		case bool:
			query.Add(a.field(), shown(e))
		default:
			return fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s must be a text, a number or a list of them", a.name)
		}
	}
	return nil
}

// sourcesOf are the source ids that a recall found.
func sourcesOf(answer object) (ids []string) {
	results, _ := answer["results"].([]any)
	for _, r := range results {
		result, _ := r.(object)
		sources, _ := result["sources"].([]any)
		for _, s := range sources {
			source, _ := s.(object)
			if id, ok := source["sourceId"].(string); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// refused is the answer to a call that was refused.
func refused(f *fault.Error) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: cut(f.Code+": "+f.Msg, maxString)}},
	}
}

// fault is what an error shows to a model. What only an operator may see is logged.
func (s *Service) fault(ctx context.Context, at string, err error) *fault.Error {
	f := httpx.Fault(err)
	if f.Code == "" && f.Kind == fault.LimitReached {
		f = &fault.Error{Kind: f.Kind, Code: codeRateLimited, Msg: f.Msg}
	}
	if known, _ := errors.AsType[*fault.Error](err); known == nil && !errors.Is(err, context.Canceled) {
		s.Logger.ErrorContext(ctx, "mcp failed", "at", at, "err", err)
	}
	return f
}

// httpStatus is the status of a refusal of a whole request.
func httpStatus(f *fault.Error) int {
	return cmp.Or(httpx.Status(f.Kind), http.StatusInternalServerError)
}
