package operatorapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
)

// explainer is a service with one project of one organization and one key.
type explainer struct {
	project  auth.Project
	query    recall.Query
	ids      []string
	fails    error
	explains int
}

const explainedKey = "svc_sk_key"

func (e *explainer) OnlyProject(_ context.Context, organization, slug string) (access.Project, error) {
	switch {
	case slug == "twice" && organization == "":
		return access.Project{}, fault.New(fault.Conflict, fault.CodeConflict, "name one with --org")
	case slug == "default", slug == "twice":
		return access.Project{Project: e.project, OrganizationID: uuid.UUID{7}}, nil
	}
	return access.Project{}, fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", slug)
}

func (e *explainer) KeyByHash(_ context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	var h auth.Holder
	h.Project, h.Limits.Plan = e.project, metering.SelfHosted
	return h, kind == auth.ProjectKey && hash == secret.Hash(explainedKey), nil
}

func (e *explainer) OrganizationByID(_ context.Context, id uuid.UUID) (access.Organization, bool, error) {
	return access.Organization{ID: id, Plan: metering.SelfHosted}, id == uuid.UUID{7}, nil
}

func (e *explainer) Explain(_ context.Context, q recall.Query, ids []string) (explained.Explanation, error) {
	e.query, e.ids, e.explains = q, ids, e.explains+1
	return explained.Explanation{Limit: q.Limit, Budget: q.Budget}, e.fails
}

func startExplainer(t *testing.T) (*explainer, *operatorapi.Client) {
	t.Helper()
	e, dir := &explainer{project: auth.Project{ID: uuid.New(), Slug: "default"}}, t.TempDir()
	plans := metering.DefaultPlanTerms()
	terms := plans[metering.SelfHosted]
	terms.EvidenceCeiling = 9000
	plans[metering.SelfHosted] = terms
	operatortest.Serve(t, dir, operatorapi.ExplainRoute(
		explained.Explainer{Access: e, Recall: e, Plans: plans}))
	return e, operatorapi.Dial(dir)
}

func TestExplainRecall_ReachesTheService(t *testing.T) {
	e, c := startExplainer(t)
	q := client.RecallRequest{Query: "tea", Identity: "ana", Limit: 7, Level: "high", Sort: "chronological"}
	byKey, err := operatorapi.NewExplainRequest(q, explainedKey, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	bySlug := explained.Request{Project: "default", Recall: byKey.Recall, SourceIDs: byKey.SourceIDs}
	ofOne := explained.Request{Organization: "Acme", Project: "twice", Recall: byKey.Recall, SourceIDs: byKey.SourceIDs}
	for name, in := range map[string]explained.Request{"by key": byKey, "by slug": bySlug, "of one": ofOne} {
		e.query = recall.Query{}
		got, err := operatorapi.ExplainRecall.Call(t.Context(), c, in)
		if err != nil || got.Limit != 7 || got.Budget != 9000 { // the ceiling of the plan
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		want := recall.Query{Project: e.project, Text: "tea", Identity: "ana", Limit: 7, Budget: 9000, Chronological: true}
		if diff := cmp.Diff(want, e.query); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"a", "b"}, e.ids); diff != "" {
			t.Errorf("%s: ids %s", name, diff)
		}
	}
}

// A date alone in occurredTo is that day to its end, as in a recall.
func TestExplainRecall_Dates(t *testing.T) {
	e, c := startExplainer(t)
	day := time.Date(2026, 6, 30, 0, 0, 0, 0, time.UTC)
	for to, want := range map[string]time.Time{
		"2026-06-30": day.Add(24*time.Hour - time.Microsecond), "2026-06-30T00:00:00Z": day,
	} {
		in, err := operatorapi.NewExplainRequest(client.RecallRequest{
			Query: "tea", Identity: "ana", OccurredFrom: "2026-06-30", OccurredTo: to,
		}, explainedKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operatorapi.ExplainRecall.Call(t.Context(), c, in); err != nil {
			t.Fatal(err)
		}
		if e.query.From == nil || !e.query.From.Equal(day) || e.query.To == nil || !e.query.To.Equal(want) {
			t.Errorf("to %s: %v to %v", to, e.query.From, e.query.To)
		}
	}
}

func TestExplainRecall_WrongInput(t *testing.T) {
	e, c := startExplainer(t)
	body := func(more string) json.RawMessage {
		return json.RawMessage(`{"query":"tea","identity":"ana"` + more + `}`)
	}
	for name, in := range map[string]struct {
		request explained.Request
		want    string
	}{
		"no recall":        {explained.Request{Project: "default"}, "invalid-request: want an object, got null"},
		"no query":         {explained.Request{Project: "default", Recall: json.RawMessage(`{"identity":"ana"}`)}, "recall-query-required: query is required"},
		"no identity":      {explained.Request{Project: "default", Recall: json.RawMessage(`{"query":"tea"}`)}, "identity-required: identity is required"},
		"limit":            {explained.Request{Project: "default", Recall: body(`,"limit":201`)}, "limit"},
		"sort":             {explained.Request{Project: "default", Recall: body(`,"sort":"x"`)}, "recall-sort-invalid"},
		"range":            {explained.Request{Project: "default", Recall: body(`,"occurredFrom":"2026-01-02","occurredTo":"2026-01-01"`)}, "recall-range-invalid"},
		"too big":          {explained.Request{Project: "default", Recall: body(`,"x":"` + strings.Repeat("y", 1<<20) + `"`)}, "want at most 1048576"},
		"too many ids":     {explained.Request{Project: "default", Recall: body(""), SourceIDs: make([]string, 101)}, "101 source ids: want at most 100"},
		"empty id":         {explained.Request{Project: "default", Recall: body(""), SourceIDs: []string{""}}, `the source id "" is empty`},
		"long id":          {explained.Request{Project: "default", Recall: body(""), SourceIDs: []string{strings.Repeat("é", 1001)}}, "1001 characters"},
		"no project":       {explained.Request{Recall: body("")}, "name a project, or one of its keys"},
		"half a key":       {explained.Request{Recall: body(""), KeyHash: make([]byte, 16)}, "name a project, or one of its keys"},
		"unknown key":      {explained.Request{Recall: body(""), KeyHash: make([]byte, 32)}, "no project of this server has the key"},
		"unknown project":  {explained.Request{Project: "none", Recall: body("")}, `there is no project "none"`},
		"which of several": {explained.Request{Project: "twice", Recall: body("")}, "name one with --org"},
	} {
		if _, err := operatorapi.ExplainRecall.Call(t.Context(), c, in.request); err == nil ||
			!strings.Contains(err.Error(), in.want) {
			t.Errorf("%s: %v, want %s", name, err, in.want)
		}
	}
	if e.explains != 0 {
		t.Errorf("%d wrong requests are explained", e.explains)
	}
}

func TestExplainRecall_ServiceFails(t *testing.T) {
	e, c := startExplainer(t)
	in := explained.Request{Project: "default", Recall: json.RawMessage(`{"query":"tea","identity":"ana"}`)}
	e.fails = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the index is being built")
	if _, err := operatorapi.ExplainRecall.Call(t.Context(), c, in); !errors.Is(err, operatorapi.ErrRefused) ||
		err.Error() != "the index is being built" {
		t.Errorf("got %v", err)
	}
	e.fails = errors.New("database is away")
	if _, err := operatorapi.ExplainRecall.Call(t.Context(), c, in); err == nil ||
		!strings.Contains(err.Error(), "database is away") {
		t.Errorf("got %v", err)
	}
}
