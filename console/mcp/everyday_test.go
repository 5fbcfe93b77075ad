package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
)

// audiences are those that the service of a test knows, by their ids: a slug, or an identity.
var audiences = map[uuid.UUID][2]string{
	uuid.MustParse("00000000-0000-4000-8000-000000000001"): {"leads", ""},
	uuid.MustParse("00000000-0000-4000-8000-000000000002"): {"", "ana"},
	uuid.MustParse("00000000-0000-4000-8000-000000000003"): {"", "ben"},
}

// How a text that is remembered finds its audience, and who is named as its readers.
func TestRemember_Audience(t *testing.T) {
	team, ofAna, ofBen := uuid.UUID{}, uuid.UUID{}, uuid.UUID{}
	for id, names := range audiences {
		switch names {
		case [2]string{"leads", ""}:
			team = id
		case [2]string{"", "ana"}:
			ofAna = id
		default:
			ofBen = id
		}
	}
	var sent httpx.InnerCall
	placed := &uuid.UUID{}
	f := newFixed(t, func(c echo.Context) error {
		if sent = httpx.InnerOf(c); placed != nil {
			sent.Placed(*placed)
		}
		return c.JSON(http.StatusOK, object{"sourceId": "n", "status": "queued"})
	})
	f.Readers = func(_ context.Context, _ auth.Project, of uuid.UUID) (slug, identity string, err error) {
		names := audiences[of]
		return names[0], names[1], nil
	}
	f.Reaches = func(_ context.Context, _ auth.Project, _, slug string) (bool, error) { return slug == "leads", nil }
	alone := "Readers: you alone; members with Read see it in the console."
	for name, c := range map[string]struct {
		path, bound, audience string
		placed                *uuid.UUID
		private               bool
		body, says            string
	}{
		"bound, for me":       {auth.MCPPath, "ana", "me", &ofAna, true, "", alone},
		"bound":               {auth.MCPPath, "ana", "", &uuid.Nil, false, "", "Readers: everybody in the project."},
		"bound, for the team": {auth.MCPPath, "ana", "leads", &team, false, `"audience":"leads"`, "Readers: the audience leads."},
		"kept for the team":   {auth.MCPPath, "ana", "", &team, false, "", "Readers: as before."},
		"kept for another":    {auth.MCPPath, "ana", "", &ofBen, false, "", "Readers: as before."},
		"a key, for me":       {auth.MCPPath, "", "me", &ofAna, true, "", "Readers: ana alone; members"},
		"a key":               {auth.MCPPath, "", "", &team, false, "", "Readers: the audience leads."},
		"a repeated key":      {auth.MCPPath, "", "", nil, false, "", "Readers: as before."},
		"an operator, for me": {auth.MCPOperatorPath, "", "me", &team, false, `"audience":"me"`, "Readers: the audience leads."},
	} {
		f.bound, placed, f.body = c.bound, c.placed, nil
		args := map[string]any{"content": "x", "id": "n"}
		if c.audience != "" {
			args["audience"] = c.audience
		}
		if c.bound == "" {
			args["identity"] = "ana"
		}
		r, done := f.callAt(t.Context(), c.path, "remember", args)
		done()
		text := r.Content[0].(*sdk.TextContent).Text
		if r.IsError || sent.Private != c.private || sent.PrivateIfNew || !sent.KeepAudience ||
			!strings.Contains(text, c.says) ||
			!strings.Contains(string(f.body), c.body) || strings.Contains(string(f.body), "audience") != (c.body != "") {
			t.Errorf("%s: private %t, sends %s: %s", name, sent.Private, f.body, text)
		}
	}
	f.bound = ""
	r, done := f.callAt(t.Context(), auth.MCPPath, "remember", map[string]any{"content": "x", "id": "n", "audience": "me"})
	done()
	if text := r.Content[0].(*sdk.TextContent).Text; !r.IsError || !strings.HasPrefix(text, "identity-required: ") {
		t.Errorf("a key without an identity: %s", text)
	}
}

// A person's text is private unless the call names another audience; a key's is not. The schemas say so.
func TestRemember_Default(t *testing.T) {
	for _, kind := range []auth.Kind{auth.Person, auth.ProjectKey} {
		for _, path := range []string{auth.MCPPath, auth.MCPOperatorPath} {
			c := &caller{}
			c.principal.Kind = kind
			u := &use{caller: c, path: path, identity: "ana", args: arguments{}}
			with, err := u.sendsTo()
			runtest.Must(t, err)
			want := kind == auth.Person && path == auth.MCPPath
			v := incoming{caller: c, path: path}.view()
			if with.PrivateIfNew != want || v.isPrivate() != want || strings.Contains(v.audienceText(), "Left out: me") != want ||
				strings.Contains(v.readersText(rememberTool()), "nobody else") != want {
				t.Errorf("%v at %s: private %t, %q", kind, path, with.PrivateIfNew, v.audienceText())
			}
			c.bound = "ana"
			if v := (incoming{caller: c, path: path}).view(); v.isPrivate() != want || !v.who.isBound() {
				t.Errorf("bound %v at %s: %+v", kind, path, v)
			}
		}
	}
	u := &use{caller: &caller{}, path: auth.MCPPath, args: arguments{"audience": json.RawMessage(`5`)}}
	if _, err := u.sendsTo(); err == nil {
		t.Error("a number is no audience")
	}
}

// brought are the data points of the sends of a test, as they are before and after a deletion.
type brought struct {
	noPoints

	before, after []datapoints.Brought
	asked         int
}

func (b *brought) Brought(context.Context, auth.Project, uuid.UUID) ([]datapoints.Brought, bool, error) {
	if b.asked++; b.asked > 1 {
		return b.after, true, nil
	}
	return b.before, len(b.before) > 0, nil
}

// textOf calls a tool at /mcp, and returns its text.
func (f *fixed) textOf(tool string, args map[string]any) (text string, refused bool) {
	f.t.Helper()
	r, done := f.callAt(f.t.Context(), auth.MCPPath, tool, args)
	defer done()
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// A text is deleted by its source id, or by the send that brought it; what another send brought since stays, and is
// named. A bound identity deletes what it wrote alone.
func TestForget(t *testing.T) {
	const send = "01890a5d-ac96-774b-bcce-b302099a8057"
	of := func(source, author string) datapoints.Brought {
		return datapoints.Brought{SourceID: source, Author: author, SentBy: author}
	}
	f := newFixed(t, func(c echo.Context) error { return c.JSON(http.StatusAccepted, object{"deleted": 1}) })
	for name, c := range map[string]struct {
		bound         string
		args          map[string]any
		before, after []datapoints.Brought
		says, called  string
	}{
		"by its id":     {"", map[string]any{"sourceId": "a/b"}, nil, nil, "deleted 1 of 1: a/b is deleted for good", "DELETE /api/v1/data-points/:sourceId"},
		"by neither":    {"", map[string]any{}, nil, nil, "invalid-request: forget needs one of", ""},
		"by both":       {"", map[string]any{"sourceId": "a", "ingestionId": send}, nil, nil, "invalid-request: forget needs one of", ""},
		"by no UUID":    {"", map[string]any{"ingestionId": "send"}, nil, nil, "not-found: ingestionId is not a UUID", ""},
		"of no send":    {"", map[string]any{"ingestionId": send}, nil, nil, "not-found: nothing was remembered under this", ""},
		"of others":     {"ana", map[string]any{"ingestionId": send}, []datapoints.Brought{of("a", "ben")}, nil, "not-found: nothing was remembered under this", ""},
		"of one's own":  {"ana", map[string]any{"ingestionId": send}, []datapoints.Brought{of("a", "ana")}, nil, "deleted 1 of 1: a is deleted for good", "DELETE /api/v1/ingest/:ingestionId"},
		"partly":        {"", map[string]any{"ingestionId": send}, []datapoints.Brought{of("a", ""), of("b", "")}, []datapoints.Brought{of("b", "")}, "deleted 1 of 2: a is deleted for good; b was brought by another send. To delete that too", "DELETE /api/v1/ingest/:ingestionId"},
		"that are gone": {"", map[string]any{"ingestionId": send}, []datapoints.Brought{of("", "")}, nil, "deleted 0 of 1: 1 had been deleted before", "DELETE /api/v1/ingest/:ingestionId"},
	} {
		f.DataPoints, f.bound, f.called = &brought{before: c.before, after: c.after}, c.bound, nil
		if text, _ := f.textOf("forget", c.args); !strings.HasPrefix(text, c.says) || strings.Join(f.called, ", ") != c.called {
			t.Errorf("%s: %s, calls %q", name, text, f.called)
		}
	}
	f = newFixed(t, func(echo.Context) error {
		return fault.New(fault.NotFound, fault.CodeDataPointNotFound, "words of the API")
	})
	if text, refused := f.textOf("forget", map[string]any{"sourceId": "a"}); !refused ||
		!strings.HasPrefix(text, fault.CodeDataPointNotFound+": nothing was deleted: there is no text with this source id") {
		t.Errorf("an unknown text: %s", text)
	}
}

// The progress of a send is a line in words.
func TestProgress(t *testing.T) {
	answer := ""
	f := newFixed(t, func(c echo.Context) error { return c.Blob(http.StatusOK, "application/json", []byte(answer)) })
	f.DataPoints = &brought{before: []datapoints.Brought{{SourceID: "a"}}}
	for status, want := range map[string]string{
		`{"status":"completed"}`:  "completed: recall finds it.",
		`{"status":"processing"}`: "processing: recall finds it soon.",
		`{"status":"failed","failure":{"code":"content-rejected","message":"no text"}}`: `failed: content-rejected "no text". recall may not find it.`,
	} {
		answer = status
		if text, _ := f.textOf("get_ingestion", map[string]any{"ingestionId": uuid.NewString()}); text != want {
			t.Errorf("%s is %q", answer, text)
		}
	}
}

// A text without an id gets a short one, which the same text of the same identity has again, and no other. An id that
// is taken is passed over.
func TestRemember_ShortID(t *testing.T) {
	taken := 0
	f := newFixed(t, func(c echo.Context) error {
		if taken--; taken >= 0 {
			return fault.New(fault.Conflict, ingest.CodeIDTaken, "the id is taken")
		}
		return c.JSON(http.StatusOK, object{"sourceId": "x", "status": "queued"})
	})
	send := func(identity, content string, after int) (id string, refused bool) {
		taken = after
		text, refused := f.textOf("remember", map[string]any{"content": content, "identity": identity})
		var sent struct{ ID string }
		if err := json.Unmarshal(f.body, &sent); err != nil {
			t.Fatalf("%s: %s: %v", text, f.body, err)
		}
		return sent.ID, refused
	}
	first, _ := send("ana", "tea", 0)
	again, _ := send("ana", "tea", 0)
	next, _ := send("ana", "tea", 2)
	bens, _ := send("ben", "tea", 0)
	coffee, _ := send("ana", "coffee", 0)
	if len(first) != 12 || again != first || next == first || bens == first || coffee == first {
		t.Errorf("%q, again %q, after two that are taken %q, of ben %q, coffee %q", first, again, next, bens, coffee)
	}
	last, refused := send("ana", "tea", maxTries)
	lastAgain, _ := send("ana", "tea", maxTries)
	if refused || last == lastAgain {
		t.Errorf("after all tries: %q and %q", last, lastAgain)
	}
	if _, refused := send("ana", "tea", maxTries+1); !refused {
		t.Error("it is tried without end")
	}
}

// texts is a service of texts by their source ids, which every identity may read.
type texts []recall.Text

func (l texts) Text(_ context.Context, q recall.TextQuery) (recall.Text, error) {
	for _, text := range l {
		if text.SourceID == q.SourceID {
			return text, nil
		}
	}
	return recall.Text{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "there is no such text")
}

func (l texts) Newest(_ context.Context, q recall.NewestQuery) ([]recall.Text, int, error) {
	n := min(q.Limit, len(l))
	return l[:n], len(l) - n, nil
}

// A long text is read in parts, each of which fits and names the next; together they are the text.
func TestRead_Parts(t *testing.T) {
	f := newFixed(t, func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	whole := strings.Repeat("The minutes of the meeting are long. 会議の議事録はとても長い。\n", 3000)
	label := "Minutes"
	f.Texts = texts{{SourceID: "minutes", Author: "ana", Label: &label, Content: whole, OccurredAt: time.Unix(1_790_000_000, 0).UTC()}}
	read, parts := "", 0
	for next := any(0); next != nil; parts++ {
		r, done := f.callAt(t.Context(), auth.MCPPath, "read", map[string]any{"sourceId": "minutes", "identity": "ben", "offset": next})
		answer, _ := r.StructuredContent.(object)
		done()
		if r.IsError || answer["author"] != "ana" || answer["label"] != "Minutes" || answer["characters"] != utf8.RuneCountInString(whole) ||
			answer["offset"] != next || size(answer["content"].(string)) > maxPart {
			t.Fatalf("from %v: %.300v", next, r.Content[0])
		}
		read += answer["content"].(string)
		next = answer["next"]
	}
	if read != whole || parts < 2 {
		t.Errorf("%d parts are %d bytes of %d", parts, len(read), len(whole))
	}
	for says, args := range map[string]map[string]any{
		"invalid-request: offset is beyond the end":   {"sourceId": "minutes", "identity": "ben", "offset": len(whole) + 1},
		"invalid-request: offset must be a whole":     {"sourceId": "minutes", "identity": "ben", "offset": -1},
		"identity-required: ":                         {"sourceId": "minutes"},
		"invalid-request: sourceId":                   {"sourceId": "", "identity": "ben"},
		"data-point-not-found: there is no such text": {"sourceId": "other", "identity": "ben"},
	} {
		if text, refused := f.textOf("read", args); !refused || !strings.HasPrefix(text, says) {
			t.Errorf("%v: %s", args, text)
		}
	}
}

// A recall of everything lists the newest texts, and counts those that it leaves out.
func TestRecall_Newest(t *testing.T) {
	f := newFixed(t, func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	var list texts
	for i := range 5 {
		list = append(list, recall.Text{
			Node: uuid.New(), SourceID: fmt.Sprintf("note-%d", i), Author: "ana", Content: fmt.Sprintf("Fact %d.", i),
			OccurredAt: time.Date(2026, 11, 28, 9, 0, i, 0, time.UTC),
		})
	}
	f.Texts = list
	text, refused := f.textOf("recall", map[string]any{"query": " * ", "identity": "ben", "limit": 3})
	for i := range list {
		line := fmt.Sprintf("%d. 28 Nov 2026, ana: Fact %d. [note-%d]", i+1, i, i)
		if strings.Contains(text, line) != (i < 3) {
			t.Errorf("%q in\n%s", line, text)
		}
	}
	if refused || !strings.Contains(text, "2 of results") {
		t.Errorf("it does not count the two others:\n%s", text)
	}
	if text, _ := f.textOf("recall", map[string]any{"query": "*"}); !strings.HasPrefix(text, "identity-required: ") {
		t.Errorf("without an identity: %s", text)
	}
	if text, _ := f.textOf("recall", map[string]any{"query": "*", "identity": "ben", "limit": 0}); !strings.HasPrefix(text, "invalid-request: limit") {
		t.Errorf("none: %s", text)
	}
}

// A resource is a text of the one identity of the call, by the address of its source id.
func TestResources_Source(t *testing.T) {
	f := newFixed(t, func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	f.Texts = texts{{SourceID: "a/b c", Content: "Helix."}}
	c := &caller{principal: apitest.Principal, scopes: []auth.Scope{auth.Read}, bound: "ana"}
	for uri, want := range map[string]string{
		"memory://default/sources/a%2Fb%20c": `"content":"Helix."`, "memory://default/sources/a": "", "memory://default/sources/": "",
		"memory://other/sources/a%2Fb%20c": "", "memory://default/keys/a%2Fb%20c": "", "memory://default/sources/%zz": "",
		"file:///etc/passwd": "", "memory://default/sources/a/b c": "",
	} {
		got, err := f.sourceText(t.Context(), c, uri)
		if (err == nil) != (want != "") || !strings.Contains(string(got), want) {
			t.Errorf("%s is %s, %v", uri, got, err)
		}
	}
}

// The prompt holds the question, cut to what a model reads.
func TestAnswerFromMemory(t *testing.T) {
	ask := func(question string) (*sdk.GetPromptResult, error) {
		return answerFromMemory(t.Context(), &sdk.GetPromptRequest{Params: &sdk.GetPromptParams{
			Arguments: map[string]string{"question": question},
		}})
	}
	prompt, err := ask("Where is the tea?")
	runtest.Must(t, err)
	if text := prompt.Messages[0].Content.(*sdk.TextContent).Text; !strings.HasSuffix(text, "Question: Where is the tea?") {
		t.Errorf("%s", text)
	}
	if _, err := ask(" "); err == nil {
		t.Error("no question is answered")
	}
}
