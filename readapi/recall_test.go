package readapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	domaininstant "github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
)

// asked is the query of `{"query":"tea","identity":"ana"}` with changes.
func asked(change func(*recall.Query)) recall.Query {
	q := recall.Query{
		Project: apitest.Principal.Project, Organization: apitest.Principal.OrganizationID,
		Text: "tea", Identity: "ana", Limit: 100, Budget: 8000,
	}
	if change != nil {
		change(&q)
	}
	return q
}

func TestRecall_Request(t *testing.T) {
	endOfDay := instant(24).Add(-time.Microsecond)
	for more, want := range map[string]recall.Query{
		``: asked(nil),
		`,"limit":null,"level":null,"maxTokens":null,"queryTimestamp":null,"occurredFrom":null,"occurredTo":null,"sort":null`: asked(nil),
		`,"limit":1`:                      asked(func(q *recall.Query) { q.Limit = 1 }),
		`,"limit":200`:                    asked(func(q *recall.Query) { q.Limit = 200 }),
		`,"limit":1.5e1`:                  asked(func(q *recall.Query) { q.Limit = 15 }),
		`,"level":"low"`:                  asked(nil),
		`,"level":"medium"`:               asked(func(q *recall.Query) { q.Budget = 16000 }),
		`,"level":"high"`:                 asked(func(q *recall.Query) { q.Budget = 24000 }),
		`,"level":"extra-high"`:           asked(func(q *recall.Query) { q.Budget = 32000 }),
		`,"level":null,"maxTokens":5`:     asked(func(q *recall.Query) { q.Budget = 5 }),
		`,"level":"low","maxTokens":null`: asked(nil),
		`,"maxTokens":1`:                  asked(func(q *recall.Query) { q.Budget = 1 }),
		`,"maxTokens":32000`:              asked(func(q *recall.Query) { q.Budget = 32000 }),
		`,"maxTokens":32001`:              asked(func(q *recall.Query) { q.Budget = 32000 }),
		`,"maxTokens":1e400`:              asked(func(q *recall.Query) { q.Budget = 32000 }),
		`,"maxTokens":99999999999999999`:  asked(func(q *recall.Query) { q.Budget = 32000 }),
		`,"sort":"relevance"`:             asked(nil),
		`,"sort":"chronological"`:         asked(func(q *recall.Query) { q.Chronological = true }),
		`,"queryTimestamp":"2026-11-21T10:00:00.1234569+01:00"`:   asked(func(q *recall.Query) { q.At = ptr(instant(9).Add(123456 * time.Microsecond)) }),
		`,"occurredFrom":"2026-11-21T09"`:                         asked(func(q *recall.Query) { q.From = ptr(instant(9)) }),
		`,"queryTimestamp":"2026-11-21"`:                          asked(func(q *recall.Query) { q.At = ptr(instant(0)) }),
		`,"occurredTo":"2026-11-21"`:                              asked(func(q *recall.Query) { q.To = ptr(endOfDay) }),
		`,"occurredTo":"2026-11-21T00:00Z"`:                       asked(func(q *recall.Query) { q.To = ptr(instant(0)) }),
		`,"occurredFrom":"2026-11-21","occurredTo":"2026-11-21"`:  asked(func(q *recall.Query) { q.From, q.To = ptr(instant(0)), ptr(endOfDay) }),
		`,"occurredFrom":"2026-11-21T09","occurredTo":"20261121"`: asked(func(q *recall.Query) { q.From, q.To = ptr(instant(9)), ptr(endOfDay) }),
		`,"projectId":3,"audience":"team","results":7`:            asked(nil),
		`,"query":" a\u0000b "`:                                   asked(func(q *recall.Query) { q.Text = " a\x00b " }),
		`,"identity":" b "`:                                       asked(func(q *recall.Query) { q.Identity = " b " }),
		`,"identity":"` + strings.Repeat("€", 200) + `"`:          asked(func(q *recall.Query) { q.Identity = strings.Repeat("€", 200) }),
	} {
		t.Run(more, func(t *testing.T) {
			f := &fake{page: recall.Response{AsOf: instant(9), Results: []recall.Result{}}}
			serve(t, f).Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{"query":"tea","identity":"ana"`+more+`}`).
				Want(t, 200, `{"asOf":"2026-11-21T09:00:00Z","usedEvidenceTokens":0,"results":[]}`)
			if diff := cmp.Diff(want, f.query); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRecall_Refusals(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	const good = `"query":"tea","identity":"ana"`
	for _, c := range []struct{ body, code, says string }{
		{``, "invalid-request", "empty"},
		{`[]`, "invalid-request", "want an object"},
		{`{}`, "recall-query-required", ""},
		{`{"identity":"ana"}`, "recall-query-required", ""},
		{`{"query":null,"identity":"ana"}`, "recall-query-required", ""},
		{`{"query":"","identity":"ana"}`, "recall-query-required", ""},
		{`{"query":" \t\u00a0\n","identity":"ana"}`, "recall-query-required", ""},
		{`{"query":7,"identity":"ana"}`, "invalid-request", "query: want a string"},
		{`{"query":"tea"}`, "identity-required", ""},
		{`{"query":"tea","identity":null}`, "identity-required", ""},
		{`{"query":"tea","identity":""}`, "identity-required", ""},
		{`{"query":"tea","identity":"  "}`, "identity-required", ""},
		{`{"query":"tea","identity":7}`, "invalid-request", "identity: want a string"},
		{`{"query":"tea","identity":"` + strings.Repeat("€", 201) + `"}`, "invalid-request", "identity: has 201 characters"},
		{`{"query":"tea","identity":"a\u0000"}`, "invalid-request", "identity: holds U+0000"},
		{`{` + good + `,"limit":0}`, "invalid-request", "limit: is 0: want 1 to 200"},
		{`{` + good + `,"limit":201}`, "invalid-request", "limit: is 201: want 1 to 200"},
		{`{` + good + `,"limit":-1}`, "invalid-request", "limit"},
		{`{` + good + `,"limit":1.5}`, "invalid-request", "limit: want an integer"},
		{`{` + good + `,"limit":"100"}`, "invalid-request", "limit: want an integer, got a string"},
		{`{` + good + `,"limit":1e400}`, "invalid-request", "limit"},
		{`{` + good + `,"level":"huge"}`, "invalid-request", "level"},
		{`{` + good + `,"level":"Low"}`, "invalid-request", "level"},
		{`{` + good + `,"level":8000}`, "invalid-request", "level: want a string"},
		{`{` + good + `,"level":"low","maxTokens":100}`, "invalid-request", "not both"},
		{`{` + good + `,"maxTokens":0}`, "invalid-request", "maxTokens: is 0: want at least 1"},
		{`{` + good + `,"maxTokens":-5}`, "invalid-request", "maxTokens"},
		{`{` + good + `,"maxTokens":-1e400}`, "invalid-request", "maxTokens"},
		{`{` + good + `,"maxTokens":0.5}`, "invalid-request", "maxTokens: want an integer"},
		{`{` + good + `,"maxTokens":"8000"}`, "invalid-request", "maxTokens: want an integer"},
		{`{` + good + `,"queryTimestamp":"now"}`, "invalid-request", "queryTimestamp: want an ISO 8601 instant"},
		{`{` + good + `,"queryTimestamp":0}`, "invalid-request", "queryTimestamp: want a string"},
		{`{` + good + `,"occurredFrom":"2026-13-01"}`, "invalid-request", "occurredFrom"},
		{`{` + good + `,"occurredTo":"2026-11-31"}`, "invalid-request", "occurredTo"},
		{`{` + good + `,"occurredFrom":"2026-11-22","occurredTo":"2026-11-21"}`, "recall-range-invalid", ""},
		{`{` + good + `,"occurredFrom":"2026-11-21T00:00:00.000001Z","occurredTo":"2026-11-21T00:00Z"}`, "recall-range-invalid", ""},
		{`{` + good + `,"sort":"newest"}`, "recall-sort-invalid", ""},
		{`{` + good + `,"sort":"Relevance"}`, "recall-sort-invalid", ""},
		{`{` + good + `,"sort":""}`, "recall-sort-invalid", ""},
		{`{` + good + `,"sort":5}`, "recall-sort-invalid", ""},
	} {
		t.Run(c.body, func(t *testing.T) {
			api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, c.body).Want(t, 400, fmt.Sprintf(`"code":%q`, c.code), c.says)
		})
	}
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{`+good+`,"x":"`+strings.Repeat("x", 1<<20)+`"}`).Want(t, 413, `"limitBytes":1048576`)
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{`+good+`}`, "Content-Type: text/plain").Want(t, 415)
	if f.calls != 0 {
		t.Errorf("memory was searched %d times", f.calls)
	}
}

func TestRecall_Response(t *testing.T) {
	id := uuid.MustParse("88888888-8888-4888-8888-888888888888")
	passage := datapoint.PassageID(datapoint.NodeID(id, 1), 7)
	f := &fake{page: recall.Response{
		AsOf: instant(9).Add(time.Microsecond), UsedEvidenceTokens: 12,
		Results: []recall.Result{
			{
				ID: id, Rank: 1, OccurredAt: instant(8), Content: "a < b & \u2028 \x00", Artifact: recall.Artifact{
					ID:   id,
					Kind: "source", OccurredAt: instant(8),
				},
				Sources: []recall.Source{{SourceID: "s/1", OccurredAt: instant(8), Label: ptr("L"), Metadata: json.RawMessage(`{"b":1.50,"a":"<"}`), Excerpts: []string{}}},
			},
			{
				ID: id, Rank: 2, OccurredAt: instant(7), Content: "m", Artifact: recall.Artifact{
					ID: id, Kind: "claim",
					OccurredAt: instant(7), SupersededAt: ptr(instant(8)),
				},
				Sources: []recall.Source{{SourceID: "s2", OccurredAt: instant(7), Metadata: json.RawMessage(`null`), Excerpts: []string{"x"}}},
			},
			{
				ID: passage, Rank: 3, OccurredAt: instant(6), Content: "one line\nand another",
				Artifact: recall.Artifact{ID: passage, Kind: "observation", OccurredAt: instant(6)},
				Sources:  []recall.Source{{SourceID: "long", OccurredAt: instant(6), Excerpts: []string{"one line"}}},
			},
		},
	}}
	serve(t, f).Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{"query":"tea","identity":"ana"}`).Want(t, 200,
		`{"asOf":"2026-11-21T09:00:00.000001Z","usedEvidenceTokens":12,"results":[{"id":"`+id.String()+`","rank":1,"occurredAt":"2026-11-21T08:00:00Z","content":"a < b & \u2028 \u0000",`+
			`"artifact":{"id":"`+id.String()+`","kind":"source","occurredAt":"2026-11-21T08:00:00Z"},`+
			`"sources":[{"sourceId":"s/1","occurredAt":"2026-11-21T08:00:00Z","label":"L","metadata":{"b":1.50,"a":"<"},"excerpts":[]}]}`,
		`"kind":"claim","occurredAt":"2026-11-21T07:00:00Z","supersededAt":"2026-11-21T08:00:00Z"}`, `"metadata":null,"excerpts":["x"]`,
		`"content":"one line\nand another","artifact":{"id":"`+passage.String()+`","kind":"observation","occurredAt":"2026-11-21T06:00:00Z"},`+
			`"sources":[{"sourceId":"long","occurredAt":"2026-11-21T06:00:00Z","excerpts":["one line"]}]`)
}

func TestRecall_Faults(t *testing.T) {
	serve(t, &fake{err: fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no index")}).
		Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{"query":"tea","identity":"ana"}`).Want(t, 503, `"code":"service-unavailable"`)
}

// fakeTrace records what it is asked and answers with what it holds.
type fakeTrace struct {
	asked    []any
	roots    why.Roots
	node     why.Node
	lineage  why.Lineage
	timeline why.Timeline
}

func (f *fakeTrace) Roots(_ context.Context, p auth.Project, q why.RootsQuery) (why.Roots, error) {
	f.asked = []any{p.ID, q}
	return f.roots, nil
}

func (f *fakeTrace) Node(_ context.Context, p auth.Project, id uuid.UUID) (why.Node, error) {
	f.asked = []any{p.ID, id}
	return f.node, nil
}

func (f *fakeTrace) Lineage(
	_ context.Context, p auth.Project, root uuid.UUID, all bool, reveal []why.Side, limit int,
) (why.Lineage, error) {
	f.asked = []any{p.ID, root, all, reveal, limit}
	return f.lineage, nil
}

func (f *fakeTrace) Timeline(
	_ context.Context, p auth.Project, root uuid.UUID, from, to *domaininstant.Written,
) (why.Timeline, error) {
	f.asked = []any{p.ID, root, from, to}
	return f.timeline, nil
}

func serveTrace(t *testing.T, f *fakeTrace) *apitest.Client {
	t.Helper()
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	readapi.Register(e, readapi.Deps{Trace: f})
	return apitest.Start(t, readapi.OpenAPI, e)
}

// node is a node that answers show.
var node = uuid.MustParse("77777777-7777-4777-8777-777777777777")

func TestTrace_Parameters(t *testing.T) {
	source := why.Brief{ID: node, Kind: "source"}
	f := &fakeTrace{
		node: why.Node{Brief: source}, lineage: why.Lineage{Root: source}, timeline: why.Timeline{Root: source},
	}
	api := serveTrace(t, f)
	project, at := apitest.Principal.Project.ID, time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	day, none := at.Add(-9*time.Hour), (*domaininstant.Written)(nil)
	cursor := base64.RawURLEncoding.EncodeToString(append([]byte{0, 6, 0x44, 0x12, 0, 0, 0, 0}, node[:]...))
	side := func(of string) why.Side { return why.Side{Node: node, Of: of} }
	for _, c := range []struct {
		path string
		want []any
	}{
		{"roots", []any{project, why.RootsQuery{First: 25}}},
		{"roots?first=1&search=%20a%20b%20", []any{project, why.RootsQuery{First: 1, Search: "a b"}}},
		{"roots?first=50&ingestionId=" + sendID.String(), []any{project, why.RootsQuery{First: 50, Ingestion: sendID}}},
		{"nodes/" + node.String(), []any{project, node}},
		{"lineage/" + node.String(), []any{project, node, false, []why.Side(nil), 400}},
		{"lineage/" + node.String() + "?revealAll=true&limit=1", []any{project, node, true, []why.Side(nil), 1}},
		{
			"lineage/" + node.String() + "?limit=400&reveal=" + node.String() + ":inputs&reveal=" + node.String() + ":outputs",
			[]any{project, node, false, []why.Side{side("inputs"), side("outputs")}, 400},
		},
		{"timeline/" + node.String(), []any{project, node, none, none}},
		{"timeline/" + node.String() + "?from=2026-11-21T09:00:00Z", []any{project, node, &domaininstant.Written{At: at}, none}},
		{
			"timeline/" + node.String() + "?from=2026-11-21&to=2026-11-21",
			[]any{project, node, &domaininstant.Written{At: day, DateOnly: true}, &domaininstant.Written{At: day, DateOnly: true}},
		},
	} {
		f.asked = nil
		api.Call(http.MethodGet, "/api/v1/trace/"+c.path, apitest.ProjectKey, "").Want(t, 200, "")
		if diff := cmp.Diff(c.want, f.asked); diff != "" {
			t.Errorf("%s: %s", c.path, diff)
		}
	}
	api.Call(http.MethodGet, "/api/v1/trace/roots?afterSources="+cursor, apitest.ProjectKey, "").Want(t, 200, "")
	if q := f.asked[1].(why.RootsQuery); q.AfterSources == nil || q.AfterSources.ID != node || q.AfterMemories != nil {
		t.Errorf("cursor %+v", q)
	}
}

func TestTrace_Refusals(t *testing.T) {
	f := &fakeTrace{}
	api := serveTrace(t, f)
	id := node.String()
	for _, c := range []struct {
		path   string
		status int
		code   string
	}{
		{"roots?first=0", 400, "invalid-request"},
		{"roots?first=51", 400, "invalid-request"},
		{"roots?first=x", 400, "invalid-request"},
		{"roots?afterMemories=x", 400, "invalid-request"},
		{"roots?afterSources=AAAA", 400, "invalid-request"},
		{"roots?ingestionId=x", 400, "invalid-request"},
		{"roots?search=%00", 400, "invalid-request"},
		{"roots?search=%FF", 400, "invalid-request"},
		{"roots?search=" + strings.Repeat("a", 1001), 400, "invalid-request"},
		{"nodes/x", 404, "not-found"},
		{"lineage/x", 404, "not-found"},
		{"timeline/x", 404, "not-found"},
		{"lineage/" + id + "?limit=0", 400, "invalid-request"},
		{"lineage/" + id + "?limit=401", 400, "invalid-request"},
		{"lineage/" + id + "?revealAll=maybe", 400, "invalid-request"},
		{"lineage/" + id + "?reveal=" + id, 400, "invalid-reveal"},
		{"lineage/" + id + "?reveal=", 400, "invalid-reveal"},
		{"lineage/" + id + "?reveal=" + id + ":both", 400, "invalid-reveal"},
		{"lineage/" + id + "?reveal=x:inputs", 400, "invalid-reveal"},
		{"timeline/" + id + "?from=x", 400, "invalid-request"},
		{"timeline/" + id + "?to=yesterday", 400, "invalid-request"},
	} {
		f.asked = nil
		api.Call(http.MethodGet, "/api/v1/trace/"+c.path, apitest.ProjectKey, "").
			Want(t, c.status, fmt.Sprintf(`"code":%q`, c.code))
		if f.asked != nil {
			t.Errorf("%s: asked %v", c.path, f.asked)
		}
	}
	api.Call(http.MethodGet, "/api/v1/trace/roots", apitest.ManagementKey, "").Want(t, 401, `"code":"unauthorized"`)
}

// A page is continued with the cursor that it gave.
func TestTrace_CursorOfAPage(t *testing.T) {
	end := why.Cursor{At: time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC), ID: node}
	f := &fakeTrace{roots: why.Roots{Memories: why.RootPage{
		Nodes: []why.Root{{Brief: why.Brief{ID: node, Kind: "memory", MemoryKind: "claim"}}}, More: true, End: &end,
	}}}
	api := serveTrace(t, f)
	var raw []byte
	for shift := 56; shift >= 0; shift -= 8 {
		raw = append(raw, byte(end.At.UnixMicro()>>shift))
	}
	cursor := base64.RawURLEncoding.EncodeToString(append(raw, node[:]...))
	api.Call(http.MethodGet, "/api/v1/trace/roots", apitest.ProjectKey, "").Want(t, 200,
		`"hasMore":true,"endCursor":"`+cursor+`"},"sources":{"nodes":[],"hasMore":false,"endCursor":null}}`)
	api.Call(http.MethodGet, "/api/v1/trace/roots?afterMemories="+url.QueryEscape(cursor), apitest.ProjectKey, "").Want(t, 200, "")
	if diff := cmp.Diff(&end, f.asked[1].(why.RootsQuery).AfterMemories); diff != "" {
		t.Error(diff)
	}
}

func TestTrace_Answers(t *testing.T) {
	at, request := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), sendID
	f := &fakeTrace{
		node: why.Node{
			Brief: why.Brief{ID: node, Kind: "memory"}, Revision: 2, Phase: "deleted",
			Deleted: &why.Deleted{At: at, Request: &request},
		},
		lineage: why.Lineage{
			Root:  why.Brief{ID: node, Kind: "source", Headline: "A call"},
			Nodes: []why.Brief{{ID: node, Kind: "source", Headline: "A call"}}, Hidden: 3,
		},
		timeline: why.Timeline{Root: why.Brief{ID: node, Kind: "source"}, From: at, To: at, Deleted: &why.Deleted{At: at}},
	}
	api := serveTrace(t, f)
	get := func(path string) apitest.Response {
		return api.Call(http.MethodGet, "/api/v1/trace/"+path+"/"+node.String(), apitest.ProjectKey, "")
	}
	get("nodes").Want(t, 200, `{"id":"77777777-7777-4777-8777-777777777777","kind":"memory","memoryKind":null,"headline":null,`+
		`"dataPointId":null,"revision":2,"occurredAt":null,"createdAt":null,"readyAt":null,"validFrom":null,"validTo":null,`+
		`"current":false,"replacedId":null,"replacedById":null,"inputCount":0,"outputCount":0,"phase":"deleted","requestId":null,`+
		`"ingestionId":null,"deletedAt":"2026-11-21T09:00:00Z","deletedByRequestId":"66666666-6666-4666-8666-666666666666"}`)
	get("lineage").Want(t, 200, `"headline":"A call"},"nodes":[{"id":"77777777-7777-4777-8777-777777777777","kind":"source",`+
		`"memoryKind":null,"headline":"A call"}],"edges":[],"hiddenCount":3}`)
	get("timeline").Want(t, 200, `"headline":null,"deletedAt":"2026-11-21T09:00:00Z","deletedByRequestId":null},`+
		`"from":"2026-11-21T09:00:00Z","to":"2026-11-21T09:00:00Z","nodes":[],"sends":[],"recalls":[],"replacements":[],"truncated":false}`)
	f.node = why.Node{Brief: why.Brief{ID: node, Kind: "source", Headline: "A call"}, Content: "text", More: true}
	get("nodes").Want(t, 200, `"content":"text","contentTruncated":true}`)
}

// neighbourKey is a key of an organization of its own.
const neighbourKey = "svc_sk_00000000000000000000000000000000000000ff"

// neighbours knows the keys of apitest and neighbourKey.
type neighbours struct{ apitest.Keys }

func (n neighbours) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	if hash != secret.Hash(neighbourKey) {
		return n.Keys.KeyByHash(ctx, kind, hash)
	}
	holder, ok, err := n.Keys.KeyByHash(ctx, kind, secret.Hash(apitest.ProjectKey))
	holder.OrganizationID = uuid.New()
	return holder, ok, err
}

// blockedTrace answers no question about a node before it is released.
type blockedTrace struct {
	fakeTrace
	entered chan struct{}
	release chan struct{}
}

func (b *blockedTrace) Node(context.Context, auth.Project, uuid.UUID) (why.Node, error) {
	b.entered <- struct{}{}
	<-b.release
	return why.Node{Brief: why.Brief{ID: node, Kind: "source"}}, nil
}

func (b *blockedTrace) Roots(context.Context, auth.Project, why.RootsQuery) (why.Roots, error) {
	return why.Roots{}, nil
}

// While an organization runs all the debugging reads that it may, its neighbour's are served.
func TestDebuggingReads_OfOneOrganization(t *testing.T) {
	b := &blockedTrace{entered: make(chan struct{}), release: make(chan struct{})}
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: neighbours{}, URLs: apitest.URLs})
	readapi.Register(e, readapi.Deps{Trace: b})
	api := apitest.Start(t, readapi.OpenAPI, e)
	done := make(chan apitest.Response)
	for range 4 {
		go func() { done <- api.Call(http.MethodGet, "/api/v1/trace/nodes/"+node.String(), apitest.ProjectKey, "") }()
		<-b.entered
	}
	go func() { done <- api.Call(http.MethodGet, "/api/v1/trace/roots", apitest.ProjectKey, "") }()
	api.Call(http.MethodGet, "/api/v1/trace/roots", neighbourKey, "").Want(t, 200)
	// The fifth waits for one of the four, and is refused in the end.
	refused := <-done
	refused.Want(t, 503, `"code":"service-unavailable"`)
	if refused.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(b.release)
	for range 4 {
		(<-done).Want(t, 200)
	}
	api.Call(http.MethodGet, "/api/v1/trace/roots", apitest.ProjectKey, "").Want(t, 200)
}
