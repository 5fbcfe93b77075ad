package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// fixed is a service whose API answers as a test wants, with the routes that it has.
type fixed struct {
	*Service

	t        *testing.T
	answers  *allowance.Allowance
	contract contract
	// called are the routes that were reached.
	called []string
	// body is that of the last call.
	body []byte
	// bound is the identity that calls are bound to, "" for none.
	bound string
}

func newFixed(t *testing.T, answer func(c echo.Context) error) *fixed {
	t.Helper()
	f := &fixed{t: t, answers: admission.Answers.New()}
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	for _, r := range auth.Routes() {
		e.Add(r.Method, r.Path, func(c echo.Context) error {
			f.called = append(f.called, r.Method+" "+r.Path)
			var err error
			if f.body, err = io.ReadAll(c.Request().Body); err != nil {
				return err
			}
			return answer(c)
		})
	}
	document, err := os.ReadFile("../../readapi/openapi.yaml")
	runtest.Must(t, err)
	f.Service, err = New(Config{
		URLs: apitest.URLs, Version: "1", Document: document, API: httpx.Inner{API: e, Answers: f.answers}, Keys: apitest.Keys{},
		DataPoints: noPoints{}, Logger: runtest.Warnings(t),
	})
	runtest.Must(t, err)
	f.contract, err = newContract(document)
	runtest.Must(t, err)
	return f
}

// noPoints are data points without authors.
type noPoints struct{}

func (noPoints) Authors(context.Context, auth.Project, []string) (map[string]string, error) {
	return map[string]string{}, nil
}

func (noPoints) Brought(context.Context, auth.Project, uuid.UUID) ([]datapoints.Brought, bool, error) {
	return nil, false, nil
}

// call calls a tool at auth.MCPOperatorPath with a key, and returns what is reserved for its answer until done is
// called.
func (f *fixed) call(ctx context.Context, name string, args map[string]any) (r *sdk.CallToolResult, done func()) {
	f.t.Helper()
	return f.callAt(ctx, auth.MCPOperatorPath, name, args)
}

func (f *fixed) callAt(
	ctx context.Context, path, name string, args map[string]any,
) (r *sdk.CallToolResult, done func()) {
	f.t.Helper()
	reserved := &reservations{}
	done = reserved.use()
	sent, err := json.Marshal(args)
	runtest.Must(f.t, err)
	tool := f.tools[path][name]
	op := operation{fields: map[string]field{}}
	if tool.route != "" {
		op, err = f.contract.operation(tool.route)
		runtest.Must(f.t, err)
	}
	c := &caller{principal: apitest.Principal, scopes: []auth.Scope{auth.Read, auth.Write, auth.Operate}}
	c.principal.Kind, c.bound = auth.ProjectKey, f.bound
	from := incoming{caller: c, path: path, reserved: reserved, request: ctx}
	input, err := tool.input(op, from.view())
	runtest.Must(f.t, err)
	return f.run(context.WithValue(ctx, callKey{}, from), tool, op, input, sent), done
}

// worst is a value of about a megabyte that takes the most memory once it is decoded.
func worst(n int) string {
	element := []string{"1,", "[],", "{},"}[n%3]
	return `{"a":[` + strings.Repeat(element, (1<<20-64)/len(element)) + `0]}`
}

// writeResults answers a recall with so many results with the worst metadata.
func writeResults(c echo.Context, results int) error {
	c.Response().WriteHeader(http.StatusOK)
	if _, err := c.Response().Write([]byte(`{"asOf":"2026-01-01T00:00:00Z","usedEvidenceTokens":7,"results":[`)); err != nil {
		return err
	}
	for n := range results {
		separator := ","
		if n == 0 {
			separator = ""
		}
		if _, err := fmt.Fprintf(c.Response(), `%s{"id":%q,"rank":%d,"occurredAt":"2026-01-01T00:00:00Z","content":"text %d",`+
			`"artifact":{"id":"x","kind":"source","occurredAt":"2026-01-01T00:00:00Z"},"sources":[{"sourceId":"s%d",`+
			`"occurredAt":"2026-01-01T00:00:00Z","metadata":%s,"excerpts":[]}]}`,
			separator, uuid.New(), n+1, n, n, worst(n)); err != nil {
			return err
		}
	}
	_, err := c.Response().Write([]byte("]}"))
	return err
}

// A recall of the worst documents returns their texts and counts what it left out; its memory is that of what it
// shows.
func TestRun_WorstMetadata(t *testing.T) {
	const results = 18
	parts := []string{worst(0), worst(1), worst(2)} // made before the measurement
	f := newFixed(t, func(c echo.Context) error { return writeResults(c, results) })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, done := f.call(t.Context(), "recall", map[string]any{"query": "text", "identity": "ana", "limit": 200})
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(parts)
	if r.IsError {
		t.Fatal(r.Content[0].(*sdk.TextContent).Text)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	for n := range results {
		if !strings.Contains(text, fmt.Sprintf(": text %d [s%d]\n", n, n)) {
			t.Errorf("text %d is missing in\n%s", n, text)
		}
	}
	if want := fmt.Sprintf("Left out, since an answer has 25,000 tokens: %d of metadata.", results); !strings.Contains(text, want) {
		t.Errorf("%s\nhas no %q", text, want)
	}
	if n := r.StructuredContent.(object)[omittedName].(omitted).Counts["metadata"]; n != results {
		t.Errorf("%d of metadata are left out", n)
	}
	// The fixture itself makes each value and its text: up to four times what it writes.
	if made, most := after.TotalAlloc-before.TotalAlloc, uint64(results*6<<20); made > most {
		t.Errorf("%d bytes are made of %d MiB", made, results)
	}
	if held := f.answers.InUse(); held < 4000 || held > decodedBytes*maxAsked {
		t.Errorf("%d bytes are reserved until the answer is written", held)
	}
	if done(); f.answers.InUse() != 0 {
		t.Errorf("%d bytes stay reserved", f.answers.InUse())
	}
}

// The bound counts: what is decoded takes at most decodedBytes times its text.
func TestDecode_Memory(t *testing.T) {
	for name, body := range map[string]string{
		"numbers": `{"a":[` + strings.Repeat("1,", 100_000) + `1]}`, "lists": `{"a":[` + strings.Repeat("[],", 100_000) + `1]}`,
		"objects": `{"a":[` + strings.Repeat("{},", 100_000) + `1]}`, "texts": `{"a":[` + strings.Repeat(`"",`, 100_000) + `1]}`,
		"metadata": `{"metadata":[` + strings.Repeat("{},", 300_000) + `1]}`,
		"results":  `{"results":[` + strings.Repeat(`{"id":"x","rank":1,"sources":[{"sourceId":"s","excerpts":[]}]},`, 10_000) + `1]}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		answer, err := decode(t.Context(), []byte(body))
		runtime.GC()
		runtime.ReadMemStats(&after)
		live := int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // a few megabytes
		if err != nil || live > decodedBytes*int64(len(body)) {
			t.Errorf("%s: %d bytes of %d: %v", name, live, len(body), err)
		}
		if name == "metadata" && live > 4*int64(len(body)) {
			t.Errorf("metadata is decoded: %d bytes of %d", live, len(body))
		}
		runtime.KeepAlive(answer)
	}
}

// When the caller leaves, decoding, fitting and writing the text end.
func TestRun_CallerLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	written := 0
	f := newFixed(t, func(c echo.Context) error {
		leave()
		for ; written < 1000; written++ {
			if _, err := c.Response().Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return nil
	})
	r, done := f.call(ctx, "recall", map[string]any{"query": "text", "identity": "ana"})
	defer done()
	if !r.IsError || written > 0 {
		t.Errorf("%v after %d MiB", r.Content[0], written)
	}
	body := []byte(`{"a":[` + strings.Repeat("1,", 100_000) + `1]}`)
	answer, err := decode(t.Context(), body)
	runtest.Must(t, err)
	if _, err := decode(ctx, body); !errors.Is(err, context.Canceled) {
		t.Errorf("decode: %v", err)
	}
	if _, err := new(omitted).fit(ctx, answer); !errors.Is(err, context.Canceled) {
		t.Errorf("fit: %v", err)
	}
	if _, err := (&use{}).text(ctx, answer, &omitted{}); !errors.Is(err, context.Canceled) {
		t.Errorf("text: %v", err)
	}
}

// An answer whose memory finds no room is refused, and nothing stays reserved.
func TestRun_NoRoom(t *testing.T) {
	f := newFixed(t, func(c echo.Context) error { return writeResults(c, 1) })
	f.answers = allowance.New(allowance.Config{Total: 100, Share: 100, Refusal: "no room"})
	f.API.Answers = f.answers
	other := f.answers.Open(allowance.Owner{})
	runtest.Must(t, other.Reserve(t.Context(), 100))
	r, done := f.call(t.Context(), "recall", map[string]any{"query": "text", "identity": "ana"})
	done()
	if text := r.Content[0].(*sdk.TextContent).Text; text != fault.CodeServiceUnavailable+": no room. Try again in some seconds." || f.answers.InUse() != 100 {
		t.Errorf("%q, %d reserved", text, f.answers.InUse())
	}
}

// Small answers are what they were: metadata stays, at any length that fits.
func TestRun_SmallAnswers(t *testing.T) {
	metadata := `{"b":"` + strings.Repeat("x", 5000) + `","a":1.50}`
	f := newFixed(t, func(c echo.Context) error {
		return c.Blob(http.StatusOK, "application/json", []byte(`{"id":"n","content":"<text>","metadata":`+metadata+`}`))
	})
	r, done := f.call(t.Context(), "get_node", map[string]any{"id": uuid.NewString()})
	defer done()
	body, err := json.Marshal(r.StructuredContent)
	runtest.Must(t, err)
	text := r.Content[0].(*sdk.TextContent).Text
	if !strings.Contains(string(body), metadata) || strings.Contains(string(body), omittedName) ||
		!strings.Contains(text, "metadata.a: 1.50\n") {
		t.Errorf("%s\n%s", body, text)
	}
}

// A list that is longer than a tool holds is asked for again, in a page that fits and that its cursor continues.
func TestRun_LongList(t *testing.T) {
	var asked []int
	f := newFixed(t, func(c echo.Context) error {
		limit, err := strconv.Atoi(httpx.Query(c).Get("limit"))
		runtest.Must(t, err)
		asked = append(asked, limit)
		entry := `{"identity":"` + strings.Repeat("i", 7000) + `","traits":{"a":"` + strings.Repeat("t", 3000) + `"},"origin":"api"}`
		return c.Blob(http.StatusOK, "application/json", []byte(
			`{"identities":[`+strings.Repeat(entry+",", limit-1)+entry+fmt.Sprintf(`],"hasMore":true,"endCursor":"after %d"}`, limit)))
	})
	r, done := f.call(t.Context(), "list_identities", map[string]any{"limit": 200})
	defer done()
	if r.IsError || len(asked) != 2 || asked[0] != 200 || asked[1] < 2 {
		t.Fatalf("asked for %d: %v", asked, r.Content[0])
	}
	answer := r.StructuredContent.(object)
	if n := len(answer["identities"].([]any)); n != asked[1] || answer["endCursor"] != fmt.Sprintf("after %d", n) {
		t.Errorf("%d identities until %v, asked for %d", n, answer["endCursor"], asked)
	}
	if held := f.answers.InUse(); held > decodedBytes*maxAsked/2 {
		t.Errorf("%d bytes are reserved, those of the first answer too", held)
	}
}

// What does not fit of one value is left out, and counted.
func TestRun_LongIdentity(t *testing.T) {
	traits := object{}
	for i := range 100 {
		traits[fmt.Sprintf("trait-%d", i)] = strings.Repeat("<", 1500)
	}
	f := newFixed(t, func(c echo.Context) error {
		return c.JSON(http.StatusOK, object{"identity": "ana", "traits": traits, "origin": "api"})
	})
	r, done := f.call(t.Context(), "get_identity", map[string]any{"identity": "ana"})
	defer done()
	answer := r.StructuredContent.(object)
	body, err := json.Marshal(answer)
	runtest.Must(t, err)
	text := r.Content[0].(*sdk.TextContent).Text
	if n := answer[omittedName].(omitted).Counts["traits"]; r.IsError || n != 1 || len(body)+len(text) > 100_000 {
		t.Errorf("%d of traits are left out of %d bytes: %.200s", n, len(body)+len(text), text)
	}
}

// An id leads to the route of its tool or nowhere, whatever it is, and an id that may be reaches its route unchanged.
func TestIDs(t *testing.T) {
	got := ""
	var parameter string
	f := newFixed(t, func(c echo.Context) (err error) {
		if parameter != "" {
			got, err = httpx.PathParam(c, parameter)
			runtest.Must(t, err)
		}
		return c.Blob(http.StatusOK, "application/json", []byte(`{}`))
	})
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	words := []string{
		"", ".", "..", "/", "%2f", "%2F..", "../projects", "a/../b", "..%2f", "?x=1", "a?project=other", "#", "a b", "\\", "é",
		"a\x00b", strings.Repeat("x", maxID), strings.Repeat("x", maxID+1), id, strings.ToUpper(id), "{" + id + "}",
		strings.ReplaceAll(id, "-", ""), id + "/retry", "01890a5d-ac96-774b-bcce-b302099a805/",
	}
	for _, r := range auth.Routes() { // the words of all routes
		words = append(words, strings.Split(strings.TrimPrefix(r.Path, "/"), "/")...)
	}
	tested := 0
	for name, tool := range f.tools[auth.MCPOperatorPath] {
		if tool.route == "" || tool.own != nil || tool.act != nil {
			continue
		}
		op, err := f.contract.operation(tool.route)
		runtest.Must(t, err)
		args := map[string]any{"identity": "ana"}
		var path argument
		for _, a := range tool.args {
			if a.required {
				args[a.name] = map[string]any{}
			}
			if op.fields[a.field()].in == inPath {
				path = a
			}
		}
		if path.name == "" {
			continue
		}
		if !strings.HasPrefix(name, "get_id") && !strings.HasPrefix(name, "set_id") {
			delete(args, "identity")
		}
		tested++
		parameter = path.field()
		for _, word := range words {
			f.called, got, args[path.name] = nil, "", word
			r, done := f.call(t.Context(), name, args)
			done()
			isUUID := len(word) == len(id) && strings.EqualFold(word, id)
			free := parameter == "identity"
			may := isUUID || free && word != "" && !strings.Contains(word, "\x00") && len(word) <= maxID
			text := r.Content[0].(*sdk.TextContent).Text
			switch {
			case may && (r.IsError || got != word || len(f.called) != 1 || f.called[0] != op.method+" "+op.route()):
				t.Errorf("%s of %.60q: %s reached %q with %q", name, word, text, f.called, got)
			case !may && (!r.IsError || len(f.called) > 0):
				t.Errorf("%s of %.60q: %s reached %q", name, word, text, f.called)
			}
		}
	}
	if tested < 9 {
		t.Errorf("%d tools with an id in a path", tested)
	}
}
