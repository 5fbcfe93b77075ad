package readapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/projections/recall"
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
