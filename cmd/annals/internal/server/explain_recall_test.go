package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recall/explained"
)

// explainRecall explains a recall through the operator socket.
func (h *harness) explainRecall(q client.RecallRequest, key string, ids ...string) explained.Explanation {
	h.t.Helper()
	in, err := operatorapi.NewExplainRequest(q, key, ids)
	if err != nil {
		h.t.Fatal(err)
	}
	e, err := operatorapi.ExplainRecall.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

// shown are the ranks and sources of a recall, in its order.
func shown(results []client.RecallResult) (list []string) {
	for _, r := range results {
		list = append(list, fmt.Sprint(r.Rank, " ", r.ID, " ", r.Artifact.Kind, " ", r.Sources[0].SourceID))
	}
	return list
}

// An explanation shows what the API returns, writes nothing but that an operator read it, and names no data point of
// another project.
func TestServer_ExplainARecall(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t) // what an operator reads by a key is a visit of the first organization
	h.set = func(c *Config) { c.RateLimit = new(0) }
	h.start()
	management := h.createAcme().ManagementKey
	key, other := h.newProject(management, "Tea"), h.newProject(management, "Coffee")
	h.must(key, http.MethodPut, api+"/identities/ana", point{"traits": point{"team": "tea"}}, nil)
	h.must(key, http.MethodPut, api+"/audiences/tasters", point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	h.send(key, "/ingest/batch", "completed", point{"items": []point{
		{"id": "likes", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"},
		{"id": "secret", "content": "The tea of the tasters is oolong.", "audience": "tasters"},
		{"id": "rain", "content": "It rained."},
	}})
	h.send(other, "/ingest", "completed", point{"id": "foreign", "content": "Tea of the neighbour."})

	for _, identity := range []string{"ana", "ben"} {
		q := client.RecallRequest{Query: "Which tea?", Identity: identity}
		var page client.RecallResponse
		h.must(key, http.MethodPost, api+"/recall", q, &page)
		before, usage := h.events(), h.usage(key)
		e := h.explainRecall(q, key, "likes", "secret", "rain", "foreign")
		var results []client.RecallResult
		for _, r := range e.Results {
			results = append(results, client.RecallResult{
				ID: r.ID.String(), Rank: r.Rank, Artifact: client.Artifact{Kind: r.Kind},
				Sources: []client.RecallSource{{SourceID: r.SourceID}},
			})
		}
		if diff := cmp.Diff(shown(page.Results), shown(results)); diff != "" || len(results) == 0 {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
		verdicts := map[string]explained.Verdict{}
		for _, s := range e.Sources {
			verdicts[s.SourceID] = s.Verdict
			if s.SourceID == "secret" && s.Gate.Audience != "tasters" {
				t.Errorf("gate %+v", s.Gate)
			}
		}
		want := map[string]explained.Verdict{
			"likes": explained.Returned, "secret": explained.Returned, "rain": explained.NotCandidate, "foreign": explained.NotStored,
		}
		if identity == "ben" {
			want["secret"] = explained.Refused
		}
		if diff := cmp.Diff(want, verdicts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", identity, diff)
		}
		for _, e := range h.events() { // the pipeline may still note what is searchable, and what an operator read is noted
			if e.Position > before[len(before)-1].Position && e.Stream != stream.Pipeline &&
				stream.Category(e.Stream) != stream.Visits {
				t.Errorf("%s was appended to %s", e.Type, e.Stream)
			}
		}
		if diff := cmp.Diff(usage, h.usage(key)); diff != "" {
			t.Errorf("it is charged:\n%s", diff)
		}
	}
	for _, s := range h.explainRecall(client.RecallRequest{Query: "tea", Identity: "ana"}, other, "likes", "secret").Sources {
		if s.Verdict != explained.NotStored {
			t.Errorf("in the project of the neighbour: %+v", s)
		}
	}
	runtest.Await(t, "what the operator read is in the log", func() bool { return h.count("visit.operator-read.v1") == 3 })
	d := &debugged{harness: h, key: key}
	if logged := d.logged(); logged["POST "+api+"/recall"] != 2 || slices.ContainsFunc(keysOf(logged), func(call string) bool {
		return strings.Contains(call, "explain")
	}) {
		t.Errorf("logged %v", logged)
	}
}

func keysOf(counts map[string]int) (keys []string) {
	for key := range counts {
		keys = append(keys, key)
	}
	return keys
}

// The API explains no recall: it has no such route, and the body of a recall has no such field.
func TestServer_ExplainNoRecallOverTheAPI(t *testing.T) {
	unraced(t)
	t.Parallel()
	for _, r := range auth.Routes() {
		if strings.Contains(r.Path, "recall") && strings.Contains(r.Path, "explain") {
			t.Errorf("the contract has %s %s", r.Method, r.Path)
		}
	}
	h := newTenant(t)
	key, management := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	q := point{"query": "tea", "identity": "ana", "explain": true, "sourceIds": []string{"a"}}
	for _, with := range []string{key, management} {
		for _, path := range []string{"/operator/recall/explain", api + "/operator/recall/explain", api + "/recall/explain"} {
			for _, url := range []string{h.urls.API, h.urls.Console} {
				if got := h.fetch(http.MethodPost, url+path, with, `{"recall":{"query":"tea","identity":"ana"}}`); got.status/100 == 2 {
					t.Errorf("%s%s: %s", url, path, got.body)
				}
			}
		}
	}
	status, body := h.call(key, http.MethodPost, api+"/recall", q)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || status != 200 || len(members) != 3 {
		t.Errorf("%d %s, %v", status, body, err)
	}
}
