package writeapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/internal/apitest"
)

// itemsOf returns the JSON of n items with distinct ids.
func itemsOf(n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"content":"x","id":"i%d"}`, i)
	}
	return "[" + strings.Join(items, ",") + "]"
}

func TestBatch_Faults(t *testing.T) {
	digest := datapoint.Digest([]byte("x"))
	for name, c := range map[string]struct {
		body   string
		status int
		says   []string
	}{
		"one":                           {`{"items":` + itemsOf(1) + `}`, 202, []string{`"items":[{"ordinal":0,"sourceId":"s","status":"queued","unchanged":null}]`}},
		"1,000":                         {`{"items":` + itemsOf(1000) + `}`, 202, []string{`"ordinal":999`}},
		"1,001":                         {`{"items":` + itemsOf(1001) + `}`, 400, []string{`"code":"invalid-ingestion"`, "1001 items"}},
		"1,001 of junk":                 {`{"items":[` + strings.Repeat("7,", 1000) + `7]}`, 400, []string{`"code":"invalid-ingestion"`}},
		"empty":                         {`{"items":[]}`, 400, []string{`"code":"invalid-ingestion"`, "no items"}},
		"missing":                       {`{}`, 400, []string{`"code":"invalid-request"`, `{"field":"items","message":"is required"}`}},
		"null":                          {`{"items":null}`, 400, []string{`"code":"invalid-request"`, "items: is required"}},
		"object":                        {`{"items":{}}`, 400, []string{`"code":"invalid-request"`, "items: want an array, got an object"}},
		"item is null":                  {`{"items":[{"content":"x"},null]}`, 400, []string{`"code":"invalid-request"`, "items[1]: want an object, got null", `"item":1`}},
		"item is text":                  {`{"items":["x"]}`, 400, []string{`"code":"invalid-request"`, "items[0]: want an object, got a string"}},
		"repeated id":                   {`{"items":[{"content":"x","id":"a"},{"content":"y"},{"content":"z","id":"a"}]}`, 400, []string{`"code":"invalid-ingestion"`, "items[2] repeats the source id of items[0]", `"item":2`}},
		"repeated content":              {`{"items":[{"content":"x"},{"content":"x"}]}`, 400, []string{`"code":"invalid-ingestion"`, "items[1] repeats"}},
		"id that is the other's digest": {`{"items":[{"content":"x"},{"content":"y","id":"` + digest + `"}]}`, 400, []string{`"code":"invalid-ingestion"`, "items[1] repeats"}},
		"digest in capitals":            {`{"items":[{"content":"x"},{"content":"y","id":"` + strings.ToUpper(digest) + `"}]}`, 202, nil},
		"equal contents, other ids":     {`{"items":[{"content":"x","id":"a"},{"content":"x","id":"b"},{"content":"x"}]}`, 202, nil},
		"key of 200":                    {`{"items":` + itemsOf(1) + `,"idempotencyKey":"` + text(200) + `"}`, 202, nil},
		"key of 201":                    {`{"items":` + itemsOf(1) + `,"idempotencyKey":"` + text(201) + `"}`, 400, []string{`"code":"invalid-request"`, `"field":"idempotencyKey"`}},
		"the first wrong item is named": {`{"items":[{"content":"x"},{"content":""},{"content":7}]}`, 400, []string{"items[1].content", `"item":1`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			serve(t, f).Call(http.MethodPost, "/api/v1/ingest/batch", apitest.ProjectKey, c.body).Want(t, c.status, c.says...)
			if accepted := f.calls == 1; accepted != (c.status == 202) {
				t.Errorf("%d commands were given", f.calls)
			}
		})
	}
}

func TestBatch_DecodesFields(t *testing.T) {
	f := &fake{}
	serve(t, f).Call(http.MethodPost, "/api/v1/ingest/batch", apitest.ProjectKey,
		`{"idempotencyKey":"k","items":[{"content":"b","id":"2","identity":"ana"},{"content":"a","metadata":null,"label":"L","idempotencyKey":"ignored"}]}`).Want(t, 202)
	want := []commands.DataPoint{
		{Content: "b", ID: ptr("2"), Identity: ptr("ana")},
		{Content: "a", Label: ptr("L"), Metadata: []byte("null")},
	}
	if diff := cmp.Diff(want, f.items); diff != "" {
		t.Error(diff)
	}
	if f.key != "k" || f.call.Principal != apitest.Principal {
		t.Errorf("key %q, call %+v", f.key, f.call)
	}
}
