package readapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/readapi"
)

// people is a directory: it notes what it is asked, and answers with err or with what it holds.
type people struct {
	err       error
	page      directory.Identities
	known     map[string]directory.Identity
	audiences []directory.Audience

	calls   int
	project auth.Project
	listing directory.Listing
	name    string
}

func (p *people) asked(project auth.Project, name string) error {
	p.calls++
	p.project, p.name = project, name
	return p.err
}

func (p *people) Identities(
	_ context.Context, project auth.Project, l directory.Listing,
) (directory.Identities, error) {
	p.listing = l
	return p.page, p.asked(project, "")
}

func (p *people) Identity(_ context.Context, project auth.Project, name string) (directory.Identity, bool, error) {
	found, ok := p.known[name]
	return found, ok, p.asked(project, name)
}

func (p *people) Audiences(_ context.Context, project auth.Project) iter.Seq2[directory.Audience, error] {
	return func(yield func(directory.Audience, error) bool) {
		if err := p.asked(project, ""); err != nil {
			yield(directory.Audience{}, err)
			return
		}
		for _, a := range p.audiences {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (p *people) Audience(
	_ context.Context, project auth.Project, slug string,
) (found directory.Audience, ok bool, err error) {
	for _, a := range p.audiences {
		if a.Slug == slug {
			found, ok = a, true
		}
	}
	return found, ok, p.asked(project, slug)
}

func serveDirectory(t *testing.T, p *people) *apitest.Client {
	t.Helper()
	e := httpx.New(apitest.EdgeConfig())
	readapi.Register(e, readapi.Deps{Identities: p, Audiences: p})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func identityOf(name, traits string) directory.Identity {
	return directory.Identity{
		Identity: name, Traits: json.RawMessage(traits), Origin: "api",
		CreatedAt: instant(9), UpdatedAt: instant(10),
	}
}

func TestIdentities_Page(t *testing.T) {
	p := &people{}
	api := serveDirectory(t, p)
	api.Call(http.MethodGet, "/api/v1/identities", apitest.ProjectKey, "").Want(t, 200, `{"identities":[],"hasMore":false,"endCursor":null}`)
	if diff := cmp.Diff(directory.Listing{Limit: 100}, p.listing); diff != "" || p.project != apitest.Principal.Project {
		t.Errorf("asked of %+v (-want +got):\n%s", p.project, diff)
	}
	end := directory.Cursor{
		CreatedAt: instant(9).Add(time.Microsecond),
		ID:        uuid.MustParse("99999999-9999-4999-8999-999999999999"),
	}
	seenAt := instant(11)
	shown := identityOf("b/\u2028", `{"team":"<red>"}`)
	shown.LastSeenAt = &seenAt
	p.page = directory.Identities{List: []directory.Identity{identityOf("a", `{}`), shown}, More: true, End: &end}
	res := api.Call(http.MethodGet, "/api/v1/identities?limit=2", apitest.ProjectKey, "")
	res.Want(t, 200, `{"identities":[{"identity":"a","traits":{},"origin":"api","lastSeenAt":null,"createdAt":"2026-11-21T09:00:00Z","updatedAt":"2026-11-21T10:00:00Z","audiences":null},`,
		`"lastSeenAt":"2026-11-21T11:00:00Z"`, `"hasMore":true,"endCursor":"`)
	var page struct{ EndCursor string }
	if err := json.Unmarshal([]byte(res.Body), &page); err != nil {
		t.Fatal(err)
	}
	api.Call(http.MethodGet, "/api/v1/identities?after="+page.EndCursor, apitest.ProjectKey, "").Want(t, 200)
	if diff := cmp.Diff(&end, p.listing.After); diff != "" {
		t.Errorf("the next page begins elsewhere (-want +got):\n%s", diff)
	}
}

func TestIdentities_Filters(t *testing.T) {
	p := &people{}
	api := serveDirectory(t, p)
	red := "red"
	long, longValue := strings.Repeat("é", 200), strings.Repeat("é", 2000)
	for query, want := range map[string]directory.Listing{
		"limit=1":                            {Limit: 1},
		"limit=1000":                         {Limit: 1000},
		"limit=0":                            {Limit: 1},
		"limit=-7":                           {Limit: 1},
		"limit=1001":                         {Limit: 1000},
		"limit=99999999999999999999999":      {Limit: 1000},
		"limit=-99999999999999999999999":     {Limit: 1},
		"limit=&after=":                      {Limit: 100},
		"traitKey=team":                      {Limit: 100, Key: "team"},
		"traitKey=team&traitValue=red&x=y":   {Limit: 100, Key: "team", Value: &red},
		"traitKey=" + long:                   {Limit: 100, Key: long},
		"traitKey=a&traitValue=" + longValue: {Limit: 100, Key: "a", Value: &longValue},
		"project=" + apitest.Principal.Project.Slug: {Limit: 100},
	} {
		api.Call(http.MethodGet, "/api/v1/identities?"+strings.ReplaceAll(query, "é", url.QueryEscape("é")),
			apitest.ProjectKey, "").Want(t, 200)
		if diff := cmp.Diff(want, p.listing); diff != "" {
			t.Errorf("%.60s (-want +got):\n%s", query, diff)
		}
	}
	p.calls = 0
	year := base64.RawURLEncoding.EncodeToString(append([]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		make([]byte, 16)...))
	for query, says := range map[string]string{
		"limit=x":                                "limit",
		"limit=1.5":                              "limit",
		"after=x":                                "after",
		"after=" + strings.Repeat("A", 33):       "after",
		"after=" + strings.Repeat("A", 31) + "=": "after",
		"after=" + year:                          "after",
		"traitKey=":                              "traitKey: is empty",
		"traitKey=a%00":                          "traitKey: holds U+0000",
		"traitKey=%FF":                           "traitKey: is not UTF-8",
		"traitKey=" + long + "x":                 "traitKey: has 201 characters",
		"traitKey=a&traitValue=":                 "traitValue: is empty",
		"traitKey=a&traitValue=" + longValue + "x": "traitValue: has 2001 characters",
		"traitValue=red": "traitValue: is the value of a trait",
	} {
		api.Call(http.MethodGet, "/api/v1/identities?"+strings.ReplaceAll(query, "é", url.QueryEscape("é")),
			apitest.ProjectKey, "").
			Want(t, 400, `"code":"invalid-request"`, says)
	}
	if p.calls != 0 {
		t.Errorf("%d wrong calls were asked", p.calls)
	}
	p.err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")
	for _, path := range []string{
		"/api/v1/identities", "/api/v1/identities/a", "/api/v1/audiences",
		"/api/v1/audiences/aa",
	} {
		api.Call(http.MethodGet, path, apitest.ProjectKey, "").Want(t, 503, `"code":"service-unavailable"`)
	}
}

func TestIdentity_Read(t *testing.T) {
	inOne := identityOf("bulk", `{"team":"red"}`)
	inOne.Audiences = []string{"aa", "bb"}
	p := &people{known: map[string]directory.Identity{"bulk": inOne, "a/b ü%2F": identityOf("a/b ü%2F", `{}`)}}
	api := serveDirectory(t, p)
	api.Call(http.MethodGet, "/api/v1/identities/bulk", apitest.ProjectKey, "").Want(t, 200, `{"identity":"bulk","traits":{"team":"red"}`, `"audiences":["aa","bb"]}`)
	if p.project != apitest.Principal.Project {
		t.Errorf("asked of %+v", p.project)
	}
	api.Call(http.MethodGet, "/api/v1/identities/a%2Fb%20%C3%BC%252F", apitest.ProjectKey, "").Want(t, 200, `"identity":"a/b ü%2F"`, `"audiences":[]}`)
	api.Call(http.MethodGet, "/api/v1/identities/Bulk", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	api.Call(http.MethodGet, "/api/v1/identities/a%00", apitest.ProjectKey, "").Want(t, 400, `"code":"invalid-request"`)
	slug := apitest.Principal.Project.Slug
	api.Call(http.MethodGet, "/api/v1/identities/bulk", apitest.ManagementKey, "").Want(t, 400, `"code":"project-required"`)
	api.Call(http.MethodGet, "/api/v1/identities/bulk?project="+slug, apitest.ManagementKey, "").Want(t, 200)
	api.Call(http.MethodGet, "/api/v1/identities/bulk?project=other", apitest.ProjectKey, "").Want(t, 400, `"code":"project-mismatch"`)
}

func TestAudiences_Read(t *testing.T) {
	at := instant(10)
	p := &people{audiences: []directory.Audience{
		{Slug: "project", Name: "Project", Kind: audience.KindDefault, MemberCount: 3, MemoryCount: 2, CreatedAt: instant(8)},
		{Slug: "list", Name: "List", Kind: audience.KindFixed, Identities: []string{}, ReachesNobody: true, RecomputedAt: &at, CreatedAt: instant(9)},
		{
			Slug: "rule", Name: "Rule", Kind: audience.KindRule, MemberCount: 1, RecomputedAt: &at, CreatedAt: instant(9),
			Rule: json.RawMessage(`{"match":"all","conditions":[{"trait":"team","operator":"exists","values":[]}]}`),
		},
	}}
	api := serveDirectory(t, p)
	api.Call(http.MethodGet, "/api/v1/audiences", apitest.ProjectKey, "").Want(t, 200,
		`{"audiences":[{"slug":"project","name":"Project","kind":"default","memberCount":3,"memoryCount":2,"reachesNobody":false,"recomputedAt":null,"createdAt":"2026-11-21T08:00:00Z","identities":null,"rule":null},{"slug":"list"`)
	if p.project != apitest.Principal.Project {
		t.Errorf("asked of %+v", p.project)
	}
	api.Call(http.MethodGet, "/api/v1/audiences/project", apitest.ProjectKey, "").Want(t, 200, `"kind":"default"`)
	api.Call(http.MethodGet, "/api/v1/audiences/list", apitest.ProjectKey, "").Want(t, 200, `"reachesNobody":true,"recomputedAt":"2026-11-21T10:00:00Z"`, `"identities":[],"rule":null`)
	api.Call(http.MethodGet, "/api/v1/audiences/rule", apitest.ProjectKey, "").Want(t, 200, `"identities":null,"rule":{"match":"all","conditions":[{"trait":"team","operator":"exists","values":[]}]}`)
	for _, slug := range []string{"none", "Rule", "a%2Fb", "-"} {
		api.Call(http.MethodGet, "/api/v1/audiences/"+slug, apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	}
	for _, path := range []string{"/api/v1/audiences", "/api/v1/audiences/list"} {
		api.Call(http.MethodGet, path, apitest.ManagementKey, "").Want(t, 401, `"code":"unauthorized"`)
	}
}
