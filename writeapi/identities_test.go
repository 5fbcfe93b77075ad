package writeapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
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

func (d *directory) receipt(name string, traits map[string]string) commands.IdentityReceipt {
	at := time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC)
	if traits == nil {
		traits = map[string]string{}
	}
	return commands.IdentityReceipt{
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
	_ context.Context, _ commands.Call, name string, traits map[string]string,
) (commands.IdentityReceipt, error) {
	return d.receipt(name, traits), d.note("put", name, traits, nil)
}

func (d *directory) PatchIdentity(
	_ context.Context, _ commands.Call, name string, set map[string]string, removed []string,
) (commands.IdentityReceipt, error) {
	return d.receipt(name, set), d.note("patch", name, set, removed)
}

func (d *directory) DeleteIdentity(_ context.Context, _ commands.Call, name string) error {
	return d.note("delete", name, nil, nil)
}

func (d *directory) BulkIdentities(
	_ context.Context, _ commands.Call, rows []identity.Row,
) ([]commands.IdentityStatus, error) {
	d.rows = rows
	return []commands.IdentityStatus{{Identity: rows[0].Identity, Status: identity.Created}}, d.note("bulk", "", nil, nil)
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
