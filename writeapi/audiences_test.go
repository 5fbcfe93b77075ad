package writeapi_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// fakeAudiences records its calls. Its audience exists unless gone is set.
type fakeAudiences struct {
	err     error
	created bool
	gone    bool
	calls   int
	call    commands.Call
	put     commands.AudiencePut
	slug    string
	shown   auth.Project
}

func (k *fakeAudiences) note(call commands.Call, slug string) error {
	k.calls++
	k.call, k.slug = call, slug
	return k.err
}

func (k *fakeAudiences) PutAudience(
	_ context.Context, call commands.Call, in commands.AudiencePut,
) (commands.AudienceReceipt, error) {
	k.put = in
	return commands.AudienceReceipt{ID: uuid.New(), Slug: in.Slug, Created: k.created}, k.note(call, in.Slug)
}

func (k *fakeAudiences) DeleteAudience(_ context.Context, call commands.Call, slug string) error {
	return k.note(call, slug)
}

func (k *fakeAudiences) RecomputeAudience(
	_ context.Context, call commands.Call, slug string,
) (commands.AudienceReceipt, error) {
	return commands.AudienceReceipt{ID: uuid.New(), Slug: slug}, k.note(call, slug)
}

// ViewAudience implements audienceViewer.
func (k *fakeAudiences) ViewAudience(_ context.Context, project auth.Project, slug string) (any, bool, error) {
	k.shown = project
	return map[string]any{
		"slug": slug, "name": "Name", "kind": "fixed", "memberCount": 1, "memoryCount": 2, "reachesNobody": false,
		"recomputedAt": "2026-11-21T09:00:00.123456Z", "createdAt": "2026-11-21T09:00:00.123456Z", "identities": []string{"ana"}, "rule": nil,
	}, !k.gone, nil
}

func serveAudiences(t *testing.T, k *fakeAudiences) *apitest.Client {
	t.Helper()
	e := httpx.New(apitest.EdgeConfig())
	writeapi.Register(e, writeapi.Deps{Audiences: k, AudienceViews: k})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func TestPutAudience(t *testing.T) {
	k := &fakeAudiences{created: true}
	api := serveAudiences(t, k)
	api.Call(http.MethodPut, "/api/v1/audiences/leads", apitest.ProjectKey, `{"kind":"fixed","name":"The leads","identities":["bo","ana","bo"],"rule":null}`).
		Want(t, 201, `"slug":"leads"`, `"memberCount":1`)
	if name := "The leads"; !reflect.DeepEqual(
		k.put, commands.AudiencePut{Slug: "leads", Name: &name, Kind: "fixed", Identities: []string{"bo", "ana"}},
	) ||
		k.call.Principal != apitest.Principal ||
		k.shown != apitest.Principal.Project {
		t.Errorf("%+v by %+v", k.put, k.call)
	}
	k.created = false
	api.Call(http.MethodPut, "/api/v1/audiences/r%75les", apitest.ProjectKey, `{"kind":"rule","rule":{"match":"any","conditions":[
		{"trait":"team","operator":"is","values":["blue"]},{"operator":"exists","trait":"role"},{"operator":"does_not_exist","trait":"left","values":null}]},"identities":null}`).Want(t, 200)
	want := &audience.Rule{Match: "any", Conditions: []audience.Condition{
		{Trait: "team", Operator: "is", Values: []string{"blue"}},
		{Trait: "role", Operator: "exists", Values: []string{}},
		{Trait: "left", Operator: "does_not_exist", Values: []string{}},
	}}
	if k.put.Slug != "rules" || k.put.Name != nil || k.put.Identities != nil || !reflect.DeepEqual(k.put.Rule, want) {
		t.Errorf("%+v, rule %+v", k.put, k.put.Rule)
	}
	// An empty list of members is valid.
	api.Call(http.MethodPut, "/api/v1/audiences/leads", apitest.ProjectKey, `{"kind":"fixed","identities":[]}`).
		Want(t, 200)
	if k.put.Identities == nil || len(k.put.Identities) != 0 {
		t.Errorf("%#v", k.put.Identities)
	}
	// The audience is deleted before it is shown.
	k.gone = true
	api.Call(http.MethodPut, "/api/v1/audiences/leads", apitest.ProjectKey, `{"kind":"fixed","identities":[]}`).
		Want(t, 409, `"code":"conflict"`, `"committed":true`)
}

func TestPutAudience_LimitOfMembers(t *testing.T) {
	members := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf(`"%d"`, i)
		}
		return `{"kind":"fixed","identities":[` + strings.Join(append(names, `"0"`), ",") + `]}`
	}
	k := &fakeAudiences{}
	api := serveAudiences(t, k)
	api.Call(http.MethodPut, "/api/v1/audiences/leads", apitest.ProjectKey, members(limit.AudienceMembers)).Want(t, 200)
	if len(k.put.Identities) != limit.AudienceMembers {
		t.Errorf("%d members", len(k.put.Identities))
	}
	api.Call(http.MethodPut, "/api/v1/audiences/leads", apitest.ProjectKey, members(limit.AudienceMembers+1)).
		Want(t, 400, `"code":"audience-limit-reached"`)
	if k.calls != 1 {
		t.Errorf("%d commands were given", k.calls)
	}
}

// The biggest rule of the contract is accepted, even if every character is escaped as a surrogate
// pair.
func TestPutAudience_BiggestRule(t *testing.T) {
	values := strings.TrimSuffix(
		strings.Repeat(`"`+strings.Repeat(`\ud83d\ude00`, limit.TraitValue)+`",`, limit.RuleValues), ",",
	)
	condition := `{"trait":"` + strings.Repeat(
		`\ud83d\ude00`, limit.TraitKey,
	) + `","operator":"is_one_of","values":[` + values + `]},`
	body := `{"kind":"rule","rule":{"match":"any","conditions":[` + strings.TrimSuffix(
		strings.Repeat(condition, limit.RuleConditions), ",",
	) + `]}}`
	k := &fakeAudiences{}
	serveAudiences(t, k).Call(http.MethodPut, "/api/v1/audiences/rules", apitest.ProjectKey, body).Want(t, 200)
	if k.calls != 1 {
		t.Errorf("%d commands were given", k.calls)
	}
}

func TestPutAudience_Refused(t *testing.T) {
	k := &fakeAudiences{}
	api := serveAudiences(t, k)
	fixed := func(members ...string) string {
		return `{"kind":"fixed","identities":[` + strings.Join(members, ",") + `]}`
	}
	quoted := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	rule := func(text string) string { return `{"kind":"rule","rule":` + text + `}` }
	condition := func(text string) string { return rule(`{"match":"all","conditions":[` + text + `]}`) }
	values := func(n int, o string) string {
		return condition(
			`{"trait":"a","operator":"` + o + `","values":[` + strings.TrimSuffix(strings.Repeat(`"v",`, n), ",") + `]}`,
		)
	}
	const exists = `{"trait":"a","operator":"exists"}`
	for name, c := range map[string]struct{ slug, body, code string }{
		"slug of 2":              {"ab", fixed(), ""},
		"slug of 40":             {strings.Repeat("a", 40), fixed(), ""},
		"slug of 41":             {strings.Repeat("a", 41), fixed(), "audience-slug-invalid"},
		"slug of 1":              {"a", fixed(), "audience-slug-invalid"},
		"slug in capitals":       {"Leads", fixed(), "audience-slug-invalid"},
		"slug with a slash":      {"a%2Fb", fixed(), "audience-slug-invalid"},
		"slug with a dash last":  {"ab-", fixed(), "audience-slug-invalid"},
		"slug with U+0000":       {"a%00b", fixed(), "invalid-request"},
		"the default":            {"project", fixed(), "audience-slug-reserved"},
		"no kind":                {"leads", `{"identities":[]}`, "audience-kind-invalid"},
		"kind null":              {"leads", `{"kind":null,"identities":[]}`, "audience-kind-invalid"},
		"kind default":           {"leads", `{"kind":"default","identities":[]}`, "audience-kind-invalid"},
		"kind a number":          {"leads", `{"kind":1,"identities":[]}`, "audience-kind-invalid"},
		"kind in capitals":       {"leads", `{"kind":"Fixed","identities":[]}`, "audience-kind-invalid"},
		"rule with fixed":        {"leads", `{"kind":"fixed","identities":[],"rule":{}}`, "audience-kind-mismatch"},
		"identities with rule":   {"leads", `{"kind":"rule","identities":[],"rule":{"match":"all","conditions":[` + exists + `]}}`, "audience-kind-mismatch"},
		"no definition":          {"leads", `{"kind":"fixed"}`, ""}, // the command checks whether that is a switch
		"no object":              {"leads", `[]`, "invalid-request"},
		"name of 1":              {"leads", `{"kind":"fixed","identities":[],"name":"x"}`, ""},
		"name of 200":            {"leads", `{"kind":"fixed","identities":[],"name":` + quoted(200) + `}`, ""},
		"name of 201":            {"leads", `{"kind":"fixed","identities":[],"name":` + quoted(201) + `}`, "invalid-request"},
		"empty name":             {"leads", `{"kind":"fixed","identities":[],"name":""}`, "invalid-request"},
		"name with U+0000":       {"leads", `{"kind":"fixed","identities":[],"name":"\u0000"}`, "invalid-request"},
		"name a number":          {"leads", `{"kind":"fixed","identities":[],"name":1}`, "invalid-request"},
		"name null":              {"leads", `{"kind":"fixed","identities":[],"name":null}`, ""},
		"identities no array":    {"leads", `{"kind":"fixed","identities":"ana"}`, "invalid-request"},
		"identity of 1":          {"leads", fixed(quoted(1)), ""},
		"identity of 200":        {"leads", fixed(quoted(200)), ""},
		"identity of 201":        {"leads", fixed(quoted(201)), "invalid-request"},
		"empty identity":         {"leads", fixed(`""`), "invalid-request"},
		"identity with U+0000":   {"leads", fixed(`"a\u0000"`), "invalid-request"},
		"identity null":          {"leads", fixed(`"ana"`, `null`), "invalid-request"},
		"an identity of spaces":  {"leads", fixed(`" "`), ""},
		"an identity named bulk": {"leads", fixed(`"bulk"`), ""},
		"rule no object":         {"leads", rule(`[]`), "audience-rule-invalid"},
		"rule empty":             {"leads", rule(`{}`), "audience-rule-invalid"},
		"no match":               {"leads", rule(`{"conditions":[` + exists + `]}`), "audience-rule-invalid"},
		"match a number":         {"leads", rule(`{"match":1,"conditions":[` + exists + `]}`), "audience-rule-invalid"},
		"another match":          {"leads", rule(`{"match":"none","conditions":[` + exists + `]}`), "audience-rule-invalid"},
		"conditions no array":    {"leads", rule(`{"match":"all","conditions":{}}`), "audience-rule-invalid"},
		"condition no object":    {"leads", condition(`"a"`), "audience-rule-invalid"},
		"no condition":           {"leads", condition(``), "audience-rule-invalid"},
		"20 conditions":          {"leads", condition(strings.TrimSuffix(strings.Repeat(exists+",", 20), ",")), ""},
		"21 conditions":          {"leads", condition(strings.TrimSuffix(strings.Repeat(exists+",", 21), ",")), "audience-rule-invalid"},
		"no trait":               {"leads", condition(`{"operator":"exists"}`), "audience-rule-invalid"},
		"trait a number":         {"leads", condition(`{"trait":1,"operator":"exists"}`), "audience-rule-invalid"},
		"trait of 200":           {"leads", condition(`{"trait":` + quoted(200) + `,"operator":"exists"}`), ""},
		"trait of 201":           {"leads", condition(`{"trait":` + quoted(201) + `,"operator":"exists"}`), "audience-rule-invalid"},
		"no operator":            {"leads", condition(`{"trait":"a"}`), "audience-rule-invalid"},
		"another operator":       {"leads", condition(`{"trait":"a","operator":"like","values":["b"]}`), "audience-rule-invalid"},
		"values no array":        {"leads", condition(`{"trait":"a","operator":"is","values":"b"}`), "audience-rule-invalid"},
		"a value no string":      {"leads", condition(`{"trait":"a","operator":"is","values":[true]}`), "audience-rule-invalid"},
		"exists with a value":    {"leads", values(1, "exists"), "audience-rule-invalid"},
		"exists with no values":  {"leads", values(0, "exists"), ""},
		"absent with a value":    {"leads", values(1, "does_not_exist"), "audience-rule-invalid"},
		"is":                     {"leads", values(1, "is"), ""},
		"is of none":             {"leads", values(0, "is"), "audience-rule-invalid"},
		"is not of two":          {"leads", values(2, "is_not"), "audience-rule-invalid"},
		"one of 50":              {"leads", values(50, "is_one_of"), ""},
		"one of 51":              {"leads", values(51, "is_one_of"), "audience-rule-invalid"},
		"not one of none":        {"leads", values(0, "is_not_one_of"), "audience-rule-invalid"},
		"value of 2,000":         {"leads", condition(`{"trait":"a","operator":"is","values":[` + quoted(2000) + `]}`), ""},
		"value of 2,001":         {"leads", condition(`{"trait":"a","operator":"is","values":[` + quoted(2001) + `]}`), "audience-rule-invalid"},
		"at the body's limit":    {"leads", `{"kind":"fixed","identities":[],"x":"` + strings.Repeat("x", 24*mib-len(`{"kind":"fixed","identities":[],"x":""}`)) + `"}`, ""},
		"beyond it":              {"leads", `{"kind":"fixed","identities":[],"x":"` + strings.Repeat("x", 24*mib) + `"}`, "content-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			k.calls = 0
			got := api.Call(http.MethodPut, "/api/v1/audiences/"+c.slug, apitest.ProjectKey, c.body)
			switch c.code {
			case "":
				got.Want(t, 200)
			case "content-too-large":
				got.Want(t, 413, c.code)
			default:
				got.Want(t, 400, fmt.Sprintf(`"code":%q`, c.code))
			}
			if given := k.calls == 1; given != (c.code == "") {
				t.Errorf("%d commands were given", k.calls)
			}
		})
	}
}

func TestAudience_DeleteAndRecompute(t *testing.T) {
	k := &fakeAudiences{}
	api := serveAudiences(t, k)
	got := api.Call(http.MethodDelete, "/api/v1/audiences/leads", apitest.ProjectKey, "")
	if got.Status != 204 || got.Body != "" || k.slug != "leads" || k.call.Principal != apitest.Principal {
		t.Errorf("%d %q, %q", got.Status, got.Body, k.slug)
	}
	for _, body := range []string{"", "{}"} {
		api.Call(http.MethodPost, "/api/v1/audiences/staff/recompute", apitest.ProjectKey, body).
			Want(t, 200, `"slug":"staff"`)
	}
	if k.slug != "staff" || k.calls != 3 {
		t.Errorf("%q after %d calls", k.slug, k.calls)
	}
	k.gone = true
	api.Call(http.MethodPost, "/api/v1/audiences/staff/recompute", apitest.ProjectKey, "").
		Want(t, 409, `"code":"conflict"`)
	// A management key is refused.
	for _, c := range []struct{ method, path string }{
		{http.MethodPut, "/api/v1/audiences/leads"}, {http.MethodDelete, "/api/v1/audiences/leads"}, {http.MethodPost, "/api/v1/audiences/leads/recompute"},
	} {
		api.Call(c.method, c.path, apitest.ManagementKey, `{}`).Want(t, 401, `"code":"unauthorized"`, "management key")
	}
	if k.calls != 4 {
		t.Errorf("%d calls", k.calls)
	}
}
