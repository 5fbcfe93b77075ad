package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/internal/shorten"
)

// arguments are those of a call of a tool, as they were sent.
type arguments map[string]json.RawMessage

// callTime is the most time that a call of a tool takes.
const callTime = 60 * time.Second

// maxContent is the most bytes of a text that a model sends in one piece.
const maxContent = 1 << 20

// string reads an argument that is a text.
func (a arguments) string(name string) (text string, err error) {
	if sent, ok := a[name]; ok {
		if json.Unmarshal(sent, &text) != nil {
			err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s must be a text", name)
		}
	}
	return text, err
}

// use is a call of a tool in a project.
type use struct {
	*Service

	tool   tool
	op     operation
	caller *caller
	p      auth.Principal
	args   arguments
	// identity is the one that the call acts as, "" if it names none.
	identity string
	// authors are those of the texts of a recall by source id, parts its long texts by their place in the results.
	authors map[string]string
	parts   map[int]parts
	// path is the one that was called.
	path string
	// placed is the audience that a text that was sent is in, nil if that is not known; readers names who can read it.
	placed  *uuid.UUID
	readers string
	// listsNewest reports that a recall lists the newest texts.
	listsNewest bool
	// read is what the call is shown, nil if that is not recorded. spans are the parts of the texts of a recall by their
	// place in the results, and of the text of a read.
	read  *readlog.Read
	spans map[int][]reads.Span
}

// run answers a call of a tool. What it refuses is an answer for the model.
func (s *Service) run(
	ctx context.Context, t tool, op operation, input object, sent json.RawMessage,
) *sdk.CallToolResult {
	from := callOf(ctx)
	defer from.reserved.use()()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	defer context.AfterFunc(from.request, cancel)() // the SDK goes on when the client has left
	u := &use{Service: s, tool: t, op: op, caller: from.caller, path: from.path}
	answered := false
	defer func() { u.read.End(answered) }()
	answer, o, err := u.answer(ctx, input, sent)
	if err != nil {
		return refused(u.veiled(s.fault(ctx, t.name, err)), from.path)
	}
	text, err := u.text(ctx, answer, &o)
	if err != nil {
		return refused(s.fault(ctx, t.name, err), from.path)
	}
	if err := u.cutRead(ctx, answer); err != nil {
		return refused(s.fault(ctx, t.name, err), from.path)
	}
	answered = true
	if len(o.Counts) > 0 {
		answer[omittedName] = o
	}
	return &sdk.CallToolResult{StructuredContent: answer, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// answer finds the answer of a tool, and cuts it to what fits.
func (u *use) answer(ctx context.Context, input object, sent json.RawMessage) (answer object, o omitted, err error) {
	if u.args, err = u.tool.readArguments(input, sent); err != nil {
		return nil, o, err
	}
	if u.tool.own != nil {
		if answer, o, err = u.tool.own(ctx, u.Service, u.caller, u.args); err == nil {
			_, err = o.fit(ctx, answer)
		}
		return answer, o, err
	}
	slug, err := u.args.string(projectArgument)
	if err != nil {
		return nil, o, err
	}
	delete(u.args, projectArgument)
	if u.p, err = u.caller.in(slug, u.tool.scope); err != nil {
		return nil, o, err
	}
	if err = u.prepare(ctx); err != nil {
		return nil, o, err
	}
	if ctx, err = u.openRead(ctx); err != nil {
		return nil, o, err
	}
	if u.tool.act != nil {
		if answer, o, err = u.tool.act(ctx, u); err == nil {
			_, err = o.fit(ctx, answer)
		}
		return answer, o, err
	}
	answer, o, left, err := u.askToFit(ctx)
	if err != nil || u.tool.page == "" || len(left) == 0 {
		return answer, o, err
	}
	// A smaller page has a cursor that continues it.
	fits := slices.Min(slices.Collect(maps.Values(left)))
	u.args[u.tool.page], _ = json.Marshal(max(fits, 1)) // a number
	callOf(ctx).reserved.drop()
	answer, o, _, err = u.askToFit(ctx)
	return answer, o, err
}

// askToFit calls the API, and cuts the answer to what fits.
func (u *use) askToFit(ctx context.Context) (answer object, o omitted, left map[string]int, err error) {
	if answer, o, err = u.ask(ctx, httpx.InnerCall{}); err == nil {
		left, err = o.fit(ctx, answer)
	}
	return answer, o, left, err
}

// prepare checks and completes the arguments of a call.
func (u *use) prepare(ctx context.Context) error {
	for _, a := range u.tool.args {
		if _, ok := u.args[a.name]; !ok && a.otherwise != nil {
			u.args[a.name], _ = json.Marshal(a.otherwise) // a number
		}
	}
	content, err := u.args.string("content")
	if err != nil {
		return err
	}
	if len(content) > maxContent {
		return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"content has %d bytes in UTF-8: want at most %d; send it in parts, or by the API", len(content), maxContent)
	}
	return u.identify(ctx)
}

// identify finds the identity that a call acts as: that of the connection, the one that the call names, or the person.
func (u *use) identify(ctx context.Context) (err error) {
	takes := slices.ContainsFunc(u.tool.args, func(a argument) bool { return a.identity })
	_, names := u.args[identityArgument]
	switch {
	case u.caller.bound != "":
		u.identity = u.caller.bound
	case takes && names:
		u.identity, err = u.args.string(identityArgument)
		return err
	case !u.caller.isKey():
		u.identity = u.caller.person.Email
	}
	if !takes || u.identity == "" {
		return nil
	}
	u.args[identityArgument], _ = json.Marshal(u.identity) // a text
	if u.caller.isKey() {
		return nil
	}
	return u.ensureIdentity(ctx, u.caller, u.p)
}

// own bounds a call of a bound connection to what its identity wrote.
func (u *use) own() *string {
	if u.caller.bound == "" {
		return nil
	}
	return &u.caller.bound
}

// ask calls the API in the process, with what else the call has.
func (u *use) ask(ctx context.Context, with httpx.InnerCall) (answer object, o omitted, err error) {
	call, err := u.tool.call(u.op, u.args)
	if err != nil {
		return nil, o, err
	}
	call.Tool, call.Own, call.KeepAudience = u.tool.name, with.Own, with.KeepAudience
	call.Private, call.PrivateIfNew, call.Placed = with.Private, with.PrivateIfNew, with.Placed
	return u.do(ctx, u.p, call)
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
	case f.schema["format"] == "uuid" && !isUUID(id):
		return "", notUUID(a.name)
	case utf8.RuneCountInString(id) > maxID:
		return "", fault.New(fault.NotFound, fault.CodeNotFound, "%s has more than %d characters", a.name, maxID)
	}
	return id, nil
}

// isUUID reports whether a text is a UUID in its usual form.
func isUUID(text string) bool {
	const usual = 36
	return len(text) == usual && uuid.Validate(text) == nil
}

func notUUID(name string) error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", name)
}

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

// refused is the answer to a call at a path that was refused, with what to do next.
func refused(f *fault.Error, path string) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: cut(f.Code+": "+f.Msg+next(f, path), maxString)}},
	}
}

// usageCodes are the codes of refusals that name what all of a project or organization used.
var usageCodes = []string{fault.CodeProjectCapReached, fault.CodeSpendCapReached, fault.CodeOutOfCredits}

// veiled is a fault as a bound identity sees it: without what others used.
func (u *use) veiled(f *fault.Error) *fault.Error {
	if u.caller.bound == "" || !slices.Contains(usageCodes, f.Code) {
		return f
	}
	return &fault.Error{Kind: f.Kind, Code: f.Code, Msg: "the project takes no more for now: tell the person who runs it"}
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

const (
	// maxAsked is the most bytes of an answer of the API that a tool holds.
	maxAsked = 1 << 20
	// certain is a number of bytes of which an answer is never shown whole: a character has at most four.
	certain = 4 * maxStructured
	// decodedBytes is the most memory of a byte of JSON once it is decoded: "{}," becomes a map of 64 bytes.
	decodedBytes = 24
)

// limits are those of fit, which shortens what has more than certain bytes.
var limits = shorten.Limits{
	Whole: certain, Most: maxAsked, Text: maxString, Value: maxValues, Entries: maxEntries,
}

// reservations are those of one request. They are released once its answer is written and its tool has ended, which may
// be after the caller has left.
type reservations struct {
	mu    sync.Mutex
	users int
	holds []*allowance.Hold
}

// use keeps the reservations until done is called.
func (r *reservations) use() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.users--; r.users == 0 {
			r.release()
		}
	}
}

func (r *reservations) release() {
	for _, h := range r.holds {
		h.Release()
	}
	r.holds = nil
}

// drop releases them for an answer that takes the place of the one before.
func (r *reservations) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
}

func (r *reservations) add(h *allowance.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, h)
}

// do calls the API, and decodes what a tool can show of the answer. Its memory is reserved until the request ends.
func (s *Service) do(
	ctx context.Context, p auth.Principal, call httpx.InnerCall,
) (answer object, o omitted, err error) {
	text := shorten.New(ctx, limits)
	call.As, call.To, call.Values = p, text, httpx.Values{Total: certain, Each: 4 * maxValues}
	answered, err := s.API.Do(ctx, call)
	if err != nil {
		return nil, o, err
	}
	o.Counts = map[string]int{}
	for _, counts := range []map[string]int{answered.LeftOut, text.LeftOut()} {
		for name, n := range counts {
			o.Counts[name] += n
		}
	}
	body := text.Bytes()
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, o, nil
	}
	hold, err := s.API.Reserve(ctx, p, decodedBytes*int64(len(body)))
	callOf(ctx).reserved.add(hold)
	if err != nil {
		return nil, o, err
	}
	answer, err = decode(ctx, body)
	return answer, o, err
}

// decode reads an answer of the API. Numbers stay as they are written, and metadata and traits as their JSON.
func decode(ctx context.Context, body []byte) (object, error) {
	r := reader{ctx: ctx, Decoder: json.NewDecoder(bytes.NewReader(body))}
	r.UseNumber()
	v, err := r.value("")
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("the answer of the API is no object")
	}
	return o, nil
}

// reader decodes an answer while its context lasts.
type reader struct {
	*json.Decoder

	ctx    context.Context //nolint:containedctx // of the one answer
	values int
}

// value reads the value of a member, or of an entry, whose name is "".
func (r *reader) value(name string) (any, error) {
	const between = 256 // looks at the context
	if r.values++; r.values%between == 0 && r.ctx.Err() != nil {
		return nil, r.ctx.Err()
	}
	if shorten.IsValue(name) {
		var raw json.RawMessage
		if err := r.Decode(&raw); err != nil || string(raw) == "null" {
			return nil, err
		}
		return raw, nil
	}
	token, err := r.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for r.More() {
			member, err := r.Token()
			if err != nil {
				return nil, err
			}
			name, _ := member.(string)
			if o[name], err = r.value(name); err != nil {
				return nil, err
			}
		}
		_, err = r.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for r.More() {
			entry, err := r.value("")
			if err != nil {
				return nil, err
			}
			list = append(list, entry)
		}
		_, err = r.Token()
		return list, err
	}
	return token, nil
}

// printed is a value as the text shows it: metadata and traits are decoded now, and fit left no long ones.
func printed(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return string(raw) // it came from JSON, so this does not happen
	}
	return value
}
