package writeapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/apitest"
)

// idsOf returns the JSON of n ids.
func idsOf(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%q", fmt.Sprint("i", i))
	}
	return strings.Join(ids, ",")
}

func TestDeleteSend(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	if got := api.Call(http.MethodDelete, "/api/v1/ingest/"+sendID.String(), apitest.ProjectKey, ""); got.Status != 204 ||
		got.Body != "" ||
		f.id != sendID {
		t.Errorf("%d %q, id %s", got.Status, got.Body, f.id)
	}
	f.calls = 0
	for _, id := range []string{"x", "batch", strings.ReplaceAll(sendID.String(), "-", "")} {
		api.Call(http.MethodDelete, "/api/v1/ingest/"+id, apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	}
	if f.calls != 0 {
		t.Error("the command was given all the same")
	}
}

func TestDeleteDataPoint(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	for sent, want := range map[string]string{
		"call-1": "call-1", "delete": "delete", "a%40b": "a@b", "a%20b": "a b", "a%2Fb": "a/b", "%252F": "%2F", "%E2%82%AC": "€", strings.Repeat("%E2%82%AC", 1000): text(1000),
	} {
		api.Call(http.MethodDelete, "/api/v1/data-points/"+sent, apitest.ProjectKey, "").
			Want(t, 202, `"operationId":"`+operationID.String()+`"`, `"ids":["`+want+`"]`)
		if diff := cmp.Diff([]string{want}, f.ids); diff != "" {
			t.Error(diff)
		}
	}
	f.calls = 0
	for _, sent := range []string{strings.Repeat("%E2%82%AC", 1001), "%00", "%FF"} {
		api.Call(http.MethodDelete, "/api/v1/data-points/"+sent, apitest.ProjectKey, "").
			Want(t, 400, `"code":"invalid-request"`)
	}
	api.Call(http.MethodDelete, "/api/v1/data-points/a/b", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	if f.calls != 0 {
		t.Error("the command was given all the same")
	}
}

func TestBulkDeletion(t *testing.T) {
	long := `"` + text(1000) + `"`
	escaped := func(i int) string { return `"` + strings.Repeat(`\ud83d\udca1`, 996) + fmt.Sprintf("%04d", i) + `"` }
	var widest []string
	for i := range 1000 {
		widest = append(widest, escaped(i))
	}
	for name, c := range map[string]struct {
		body   string
		status int
		says   []string
	}{
		"one":                  {`{"ids":["a"]}`, 202, []string{`"ids":["a"]`}},
		"order and repeats":    {`{"ids":["b","a","b","c","a"]}`, 202, []string{`"ids":["b","a","c"]`}},
		"1,000":                {`{"ids":[` + idsOf(1000) + `]}`, 202, []string{`"i999"`}},
		"1,000, and repeats":   {`{"ids":[` + idsOf(1000) + `,` + idsOf(1000) + `]}`, 202, []string{`"i999"]`}},
		"1,001":                {`{"ids":[` + idsOf(1001) + `]}`, 400, []string{`"code":"invalid-deletion"`}},
		"1,000 of the longest": {`{"ids":[` + strings.Join(widest, ",") + `]}`, 202, nil},
		"empty":                {`{"ids":[]}`, 400, []string{`"code":"invalid-deletion"`}},
		"missing":              {`{}`, 400, []string{`"code":"invalid-request"`, "ids: is required"}},
		"null":                 {`{"ids":null}`, 400, []string{`"code":"invalid-request"`, "ids: is required"}},
		"no array":             {`{"ids":"a"}`, 400, []string{`"code":"invalid-request"`, "ids: want an array, got a string"}},
		"a number":             {`{"ids":["a",7]}`, 400, []string{`"code":"invalid-request"`, "ids[1]: want a string, got a number"}},
		"null in it":           {`{"ids":[null]}`, 400, []string{`"code":"invalid-request"`, "ids[0]: want a string, got null"}},
		"an empty id":          {`{"ids":[""]}`, 400, []string{`"code":"invalid-request"`, "ids[0]: is empty"}},
		"an id of 1,000":       {`{"ids":[` + long + `]}`, 202, nil},
		"an id of 1,001":       {`{"ids":["x",` + long[:len(long)-1] + `x"]}`, 400, []string{`"code":"invalid-request"`, "ids[1]: has 1001 characters"}},
		"U+0000":               {`{"ids":["\u0000"]}`, 400, []string{`"code":"invalid-request"`, "ids[0]: holds U+0000"}},
		"a slash":              {`{"ids":["a/b"]}`, 202, []string{`"ids":["a/b"]`}},
		"too many bytes":       {`{"ids":["a"],"x":"` + strings.Repeat("x", 16*mib) + `"}`, 413, []string{`"code":"content-too-large"`, `"limitBytes":16777216`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			serve(t, f).Call(http.MethodPost, "/api/v1/data-points/delete", apitest.ProjectKey, c.body).
				Want(t, c.status, c.says...)
			if accepted := f.calls == 1; accepted != (c.status == 202) {
				t.Errorf("%d commands were given", f.calls)
			}
		})
	}
}
