package writeapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// directory records its calls and returns err, or succeeds.
type directory struct {
	err     error
	seen    *time.Time
	calls   int
	what    string
	name    string
	set     map[string]string
	removed []string
	rows    []identity.Row
}

func (d *directory) receipt(name string, traits map[string]string) identities.IdentityReceipt {
	at := time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC)
	if traits == nil {
		traits = map[string]string{}
	}
	return identities.IdentityReceipt{
		ID:        uuid.New(),
		Identity:  name,
		Traits:    traits,
		Origin:    identity.OriginAPI,
		CreatedAt: at,
		UpdatedAt: at,
	}
}

func (d *directory) note(what, name string, set map[string]string, removed []string) error {
	d.calls++
	d.what, d.name, d.set, d.removed = what, name, set, slices.Sorted(slices.Values(removed))
	return d.err
}

func (d *directory) PutIdentity(
	_ context.Context, _ engine.Call, name string, traits map[string]string,
) (identities.IdentityReceipt, error) {
	return d.receipt(name, traits), d.note("put", name, traits, nil)
}

func (d *directory) PatchIdentity(
	_ context.Context, _ engine.Call, name string, set map[string]string, removed []string,
) (identities.IdentityReceipt, error) {
	return d.receipt(name, set), d.note("patch", name, set, removed)
}

func (d *directory) DeleteIdentity(_ context.Context, _ engine.Call, name string) error {
	return d.note("delete", name, nil, nil)
}

func (d *directory) BulkIdentities(
	_ context.Context, _ engine.Call, rows []identity.Row,
) ([]identities.IdentityStatus, error) {
	d.rows = rows
	return []identities.IdentityStatus{{Identity: rows[0].Identity, Status: identity.Created}}, d.note("bulk", "", nil,
		nil)
}

func (d *directory) LastSeen(context.Context, auth.Project, uuid.UUID, time.Time) (*time.Time, error) {
	return d.seen, nil
}

func serveIdentities(t *testing.T, d *directory) *apitest.Client {
	t.Helper()
	e := httpx.New(apitest.EdgeConfig())
	writeapi.Register(e, writeapi.Deps{Identities: d, LastSeen: d})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func TestIdentity_PutAndPatch(t *testing.T) {
	long, key, value := strings.Repeat("é", 200), strings.Repeat("k", 200), strings.Repeat("ü", 2000)
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       []string
		set        map[string]string
		removed    []string
	}{
		"traits":                   {"ana", `{"traits":{"team":"red","":null}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"strings":                  {"ana", `{"traits":{"team":"red"}}`, 200, []string{`"identity":"ana"`, `"traits":{"team":"red"}`, `"audiences":null`, `"lastSeenAt":null`, `"origin":"api"`}, map[string]string{"team": "red"}, nil},
		"null goes":                {"ana", `{"traits":{"a":"1","b":null}}`, 200, nil, map[string]string{"a": "1"}, []string{"b"}},
		"the last of two counts":   {"ana", `{"traits":{"a":null,"a":"1","b":"2","b":null}}`, 200, nil, map[string]string{"a": "1"}, []string{"b"}},
		"omitted":                  {"ana", `{}`, 200, nil, nil, nil},
		"null":                     {"ana", `{"traits":null}`, 200, nil, nil, nil},
		"empty":                    {"ana", `{"traits":{}}`, 200, nil, nil, nil},
		"number":                   {"ana", `{"traits":{"a":7}}`, 400, []string{`"code":"traits-invalid"`, "want a string, got a number"}, nil, nil},
		"array":                    {"ana", `{"traits":[]}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"text":                     {"ana", `{"traits":"x"}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"no object":                {"ana", `[]`, 400, []string{`"code":"invalid-request"`}, nil, nil},
		"no body":                  {"ana", ``, 400, []string{`"code":"invalid-request"`}, nil, nil},
		"key of 200":               {"ana", `{"traits":{"` + key + `":"1"}}`, 200, nil, map[string]string{key: "1"}, nil},
		"key of 201":               {"ana", `{"traits":{"` + key + `k":"1"}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"key with U+0000":          {"ana", `{"traits":{"\u0000":"1"}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"value of 2000":            {"ana", `{"traits":{"a":"` + value + `"}}`, 200, nil, map[string]string{"a": value}, nil},
		"value of 2001":            {"ana", `{"traits":{"a":"` + value + `x"}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"empty value":              {"ana", `{"traits":{"a":""}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"value with U+0000":        {"ana", `{"traits":{"a":"\u0000"}}`, 400, []string{`"code":"traits-invalid"`}, nil, nil},
		"identity of 200":          {long, `{}`, 200, nil, nil, nil},
		"identity of 201":          {long + "x", `{}`, 400, []string{`"code":"invalid-request"`}, nil, nil},
		"identity of odd letters":  {" a/b?c%d+e.. \n", `{}`, 200, nil, nil, nil},
		"identity called bulk":     {"bulk", `{}`, 200, nil, nil, nil},
		"identity with U+0000":     {"a\x00", `{}`, 400, []string{`"code":"invalid-request"`}, nil, nil},
		"white space is an id too": {" ", `{}`, 200, nil, nil, nil},
	} {
		for method, what := range map[string]string{http.MethodPut: "put", http.MethodPatch: "patch"} {
			t.Run(what+" "+name, func(t *testing.T) {
				d := &directory{}
				serveIdentities(t, d).Call(method, "/api/v1/identities/"+url.PathEscape(c.path), apitest.ProjectKey, c.body).
					Want(t, c.status, c.says...)
				if (d.calls == 1) != (c.status == 200) {
					t.Fatalf("%d commands were given", d.calls)
				}
				if c.status != 200 {
					return
				}
				removed := c.removed
				if what == "put" {
					removed = nil
				}
				if d.what != what || d.name != c.path || !maps.Equal(d.set, c.set) || !slices.Equal(d.removed, removed) {
					t.Errorf("%s of %q: %v, without %v", d.what, d.name, d.set, d.removed)
				}
			})
		}
	}
}

// manyTraits returns the JSON of n traits of the same number of characters each, value included.
func manyTraits(n int, value string) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%05d":%s`, i, value)
	}
	return "{" + strings.Join(members, ",") + "}"
}

func TestTraits_LimitsOfOneIdentity(t *testing.T) {
	// A key has 6 bytes, so 256 traits with values of 2,042 bytes are 512 KiB; escaped as \u0001
	// they are six times as long.
	full := strings.Repeat("x", 2042-42*2) + strings.Repeat("ü", 42)
	invalid := `"code":"traits-invalid"`
	for name, c := range map[string]struct {
		traits string
		status int
		says   []string
	}{
		"1,000":               {manyTraits(1000, `"x"`), 200, nil},
		"1,001":               {manyTraits(1001, `"x"`), 400, []string{invalid, "1001", "at most 1000"}},
		"512 KiB":             {manyTraits(256, `"`+full+`"`), 200, nil},
		"more than 512 KiB":   {strings.Replace(manyTraits(256, `"`+full+`"`), `xü`, `üü`, 1), 400, []string{invalid, "524289 bytes", "at most 524288"}},
		"512 KiB in escapes":  {manyTraits(262, `"`+strings.Repeat(`\u0001`, 1994)+`"`), 200, nil},
		"1,000 null":          {manyTraits(1000, "null"), 200, nil},
		"1,001 null":          {manyTraits(1001, "null"), 400, []string{invalid}},
		"1,000 of each":       {manyTraits(1000, `"x"`)[:len(manyTraits(1000, `"x"`))-1] + "," + strings.ReplaceAll(manyTraits(1000, "null"), `"k`, `"n`)[1:], 200, nil},
		"one key 1,001 times": {"{" + strings.Repeat(`"k":"x",`, 1000) + `"k":"x"}`, 200, nil},
		"far too many":        {manyTraits(20_000, `"x"`), 400, []string{invalid}},
	} {
		for method, what := range map[string]string{http.MethodPut: "put", http.MethodPatch: "patch"} {
			t.Run(what+" "+name, func(t *testing.T) {
				d := &directory{}
				serveIdentities(t, d).Call(method, "/api/v1/identities/ana", apitest.ProjectKey, `{"traits":`+c.traits+`}`).
					Want(t, c.status, c.says...)
				if (d.calls == 1) != (c.status == 200) {
					t.Errorf("%d commands were given", d.calls)
				}
			})
		}
	}
}

func TestTraits_BodyOfPutIsBounded(t *testing.T) {
	for size, status := range map[int]int{6 << 20: 200, 6<<20 + 1: 413} {
		body := `{"pad":"` + strings.Repeat("x", size-len(`{"pad":""}`)) + `"}`
		serveIdentities(t, &directory{}).Call(http.MethodPut, "/api/v1/identities/ana", apitest.ProjectKey, body).
			Want(t, status)
	}
}

func TestBulk_LimitsOfTraits(t *testing.T) {
	invalid := `"code":"bulk-invalid-rows"`
	row := func(n int, value string) string { return `{"identity":"a","traits":` + manyTraits(n, value) + `}` }
	full := row(1000, `"x"`)
	for name, c := range map[string]struct {
		rows   []string
		status int
		says   []string
	}{
		"1,000 of a row":             {[]string{full}, 200, nil},
		"1,001 of a row":             {[]string{row(1, `"x"`), row(1001, `"x"`)}, 400, []string{invalid, "rows[1]", `"row":1`}},
		"a row of more than 512 KiB": {[]string{row(300, `"`+strings.Repeat("x", 2000)+`"`)}, 400, []string{invalid, "rows[0]", "bytes together"}},
		"100,000 of all rows":        {slices.Repeat([]string{full}, 100), 200, nil},
		"100,001 of all rows":        {append(slices.Repeat([]string{full}, 100), row(1, `"x"`)), 400, []string{invalid, "100000"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &directory{}
			serveIdentities(t, d).
				Call(http.MethodPost, "/api/v1/identities/bulk", apitest.ProjectKey, "["+strings.Join(c.rows, ",")+"]").
				Want(t, c.status, c.says...)
			if (d.calls == 1) != (c.status == 200) {
				t.Errorf("%d commands were given", d.calls)
			}
		})
	}
}

func TestIdentity_LastSeen(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	serveIdentities(t, &directory{seen: &at}).Call(http.MethodPut, "/api/v1/identities/ana", apitest.ProjectKey, `{}`).
		Want(t, 200, `"lastSeenAt":"2026-11-21T10:00:00Z"`, `"createdAt":"2026-11-21T09:00:00.123456Z"`)
}

func TestIdentity_Delete(t *testing.T) {
	d := &directory{}
	serveIdentities(t, d).Call(http.MethodDelete, "/api/v1/identities/bulk", apitest.ProjectKey, "").Want(t, 204)
	if d.what != "delete" || d.name != "bulk" {
		t.Errorf("%s of %q", d.what, d.name)
	}
	d = &directory{err: fault.New(fault.NotFound, fault.CodeNotFound, "no")}
	serveIdentities(t, d).Call(http.MethodDelete, "/api/v1/identities/ana", apitest.ProjectKey, "").
		Want(t, 404, `"code":"not-found"`)
}

// bulkOf returns the JSON of n rows.
func bulkOf(n int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"identity":"i%d"}`, i)
	}
	return "[" + strings.Join(rows, ",") + "]"
}

func TestIdentities_Bulk(t *testing.T) {
	invalid := `"code":"bulk-invalid-rows"`
	for name, c := range map[string]struct {
		body   string
		status int
		says   []string
	}{
		"one":                 {bulkOf(1), 200, []string{`{"identities":[{"identity":"i0","status":"created"}]}`}},
		"1,000":               {bulkOf(1000), 200, nil},
		"1,001":               {bulkOf(1001), 400, []string{invalid, "1001 rows"}},
		"1,001 of one":        {"[" + strings.Repeat(`{"identity":"x"},`, 1000) + `{"identity":"x"}]`, 400, []string{invalid}},
		"empty":               {`[]`, 400, []string{invalid}},
		"object":              {`{}`, 400, []string{invalid, "an object"}},
		"null":                {`null`, 400, []string{invalid}},
		"row is text":         {`[{"identity":"a"},"x"]`, 400, []string{invalid, "rows[1]", `"row":1`}},
		"row without one":     {`[{"traits":{}}]`, 400, []string{invalid, "rows[0]: identity: is required"}},
		"identity is null":    {`[{"identity":null}]`, 400, []string{invalid, "is required"}},
		"identity is empty":   {`[{"identity":""}]`, 400, []string{invalid, "is empty"}},
		"identity is number":  {`[{"identity":7}]`, 400, []string{invalid, "want a string"}},
		"identity of 200":     {`[{"identity":"` + strings.Repeat("é", 200) + `"}]`, 200, nil},
		"identity of 201":     {`[{"identity":"` + strings.Repeat("é", 201) + `"}]`, 400, []string{invalid}},
		"trait is number":     {`[{"identity":"a","traits":{"x":1}}]`, 400, []string{invalid, "rows[0]: traits:"}},
		"trait is null":       {`[{"identity":"a","traits":{"x":null}}]`, 200, nil},
		"no JSON":             {`[`, 400, []string{`"code":"invalid-request"`}},
		"first wrong is told": {`[{"identity":"a"},{"identity":""},7]`, 400, []string{`"row":1`}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &directory{}
			serveIdentities(t, d).Call(http.MethodPost, "/api/v1/identities/bulk", apitest.ProjectKey, c.body).
				Want(t, c.status, c.says...)
			if (d.calls == 1) != (c.status == 200) {
				t.Errorf("%d commands were given", d.calls)
			}
		})
	}
	d := &directory{}
	serveIdentities(t, d).Call(http.MethodPost, "/api/v1/identities/bulk", apitest.ProjectKey,
		`[{"identity":"b","traits":{"x":"1","y":null}},{"identity":"a","extra":1},{"identity":"b","traits":null}]`).
		Want(t, 200)
	want := []identity.Row{{Identity: "b", Traits: map[string]string{"x": "1"}}, {Identity: "a"}, {Identity: "b"}}
	if diff := cmp.Diff(want, d.rows); diff != "" {
		t.Error(diff)
	}
	d = &directory{err: fault.New(fault.Conflict, fault.CodeConflict, "raced")}
	serveIdentities(t, d).Call(http.MethodPost, "/api/v1/identities/bulk", apitest.ProjectKey, bulkOf(1)).
		Want(t, 409, `"code":"conflict"`)
}

// fakeAudiences records its calls. Its audience exists unless gone is set.
type fakeAudiences struct {
	err     error
	created bool
	gone    bool
	calls   int
	call    engine.Call
	put     identities.AudiencePut
	slug    string
	shown   auth.Project
}

func (k *fakeAudiences) note(call engine.Call, slug string) error {
	k.calls++
	k.call, k.slug = call, slug
	return k.err
}

func (k *fakeAudiences) PutAudience(
	_ context.Context, call engine.Call, in identities.AudiencePut,
) (identities.AudienceReceipt, error) {
	k.put = in
	return identities.AudienceReceipt{ID: uuid.New(), Slug: in.Slug, Created: k.created}, k.note(call, in.Slug)
}

func (k *fakeAudiences) DeleteAudience(_ context.Context, call engine.Call, slug string) error {
	return k.note(call, slug)
}

func (k *fakeAudiences) RecomputeAudience(
	_ context.Context, call engine.Call, slug string,
) (identities.AudienceReceipt, error) {
	return identities.AudienceReceipt{ID: uuid.New(), Slug: slug}, k.note(call, slug)
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
		k.put, identities.AudiencePut{Slug: "leads", Name: &name, Kind: "fixed", Identities: []string{"bo", "ana"}},
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
