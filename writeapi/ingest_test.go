package writeapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
)

const mib = 1 << 20

func ptr[T any](v T) *T { return &v }

// text returns n characters of three bytes each.
func text(n int) string { return strings.Repeat("€", n) }

func TestSingle_DecodesFields(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want ingest.DataPoint
		key  string
	}{
		"content only": {`{"content":"Anna likes tea"}`, ingest.DataPoint{Content: "Anna likes tea"}, ""},
		"everything": {
			`{"content":" tea\n","id":"call-1","label":"Call","timestamp":"2026-11-20T10:00:00.1234567+02:00","metadata":{"b":1.50,"a":[null]},` +
				`"audience":"team","identity":"ana","idempotencyKey":"k-1"}`,
			ingest.DataPoint{
				Content: " tea\n", ID: ptr("call-1"), Label: ptr("Call"), Timestamp: ptr(time.Date(2026, 11, 20, 8, 0, 0, 123456000, time.UTC)),
				Metadata: json.RawMessage(`{"b":1.50,"a":[null]}`), Audience: ptr("team"), Identity: ptr("ana"),
			},
			"k-1",
		},
		"null is omitted, but for metadata": {
			`{"content":"x","id":null,"label":null,"timestamp":null,"metadata":null,"audience":null,"identity":null,"idempotencyKey":null}`,
			ingest.DataPoint{Content: "x", Metadata: json.RawMessage("null")},
			"",
		},
		"unknown fields are ignored": {
			`{"content":"x","projectId":7,"title":"y","key":"svc_sk_1"}`,
			ingest.DataPoint{Content: "x"},
			"",
		},
		"the last of a field counts": {`{"content":7,"content":"x","id":"a","id":"b"}`, ingest.DataPoint{
			Content: "x",
			ID:      ptr("b"),
		}, ""},
		"metadata has any names": {
			`{"content":"x","metadata":{"Audience":1,"lable":{"contnet":2}}}`,
			ingest.DataPoint{Content: "x", Metadata: json.RawMessage(`{"Audience":1,"lable":{"contnet":2}}`)},
			"",
		},
		"U+0000 in content and metadata": {
			`{"content":"a\u0000b","metadata":"\u0000"}`,
			ingest.DataPoint{Content: "a\x00b", Metadata: json.RawMessage(`"\u0000"`)},
			"",
		},
		"a surrogate pair": {`{"content":"\ud83d\udca1"}`, ingest.DataPoint{Content: "💡"}, ""},
		"an empty label is a label": {
			`{"content":"x","label":""}`,
			ingest.DataPoint{Content: "x", Label: ptr("")},
			"",
		},
		"ids keep their spaces": {`{"content":"x","id":" a ","identity":" b "}`, ingest.DataPoint{
			Content: "x",
			ID:      ptr(" a "), Identity: ptr(" b "),
		}, ""},
		"a date alone": {`{"content":"x","timestamp":"2025-06-03"}`, ingest.DataPoint{
			Content:   "x",
			Timestamp: ptr(time.Date(2025, 6, 3, 0, 0, 0, 0, time.UTC)),
		}, ""},
		"an audience that is none of ours": {`{"content":"x","audience":""}`, ingest.DataPoint{
			Content:  "x",
			Audience: ptr(""),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			serve(t, f).Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, c.body).Want(t, 202, `"status":"queued"`, `"unchanged":null`)
			if diff := cmp.Diff(c.want, f.point); diff != "" {
				t.Error(diff)
			}
			if f.key != c.key {
				t.Errorf("key %q, want %q", f.key, c.key)
			}
		})
	}
}

func TestSingle_Caller(t *testing.T) {
	f := &fake{}
	got := serve(t, f).Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"content":"x"}`)
	got.Want(t, 202, `{"projectId":1,"ingestionId":"`+sendID.String()+`","sourceId":"s1","status":"queued","unchanged":null}`)
	if f.call.Principal != apitest.Principal || f.call.RequestID.String() != got.Header.Get("X-Request-Id") {
		t.Errorf("call %+v", f.call)
	}
	if want := time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC); !f.call.ReceivedAt.Equal(want) {
		t.Errorf("received at %s, want %s", f.call.ReceivedAt, want)
	}
}

func TestSend_Unchanged(t *testing.T) {
	api := serve(t, &fake{unchanged: true})
	api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"content":"x"}`).Want(t, 200, `"status":"completed","unchanged":true`)
	api.Call(http.MethodPost, "/api/v1/ingest/batch", apitest.ProjectKey, `{"items":[{"content":"x"}]}`).
		Want(t, 200, `"status":"completed","unchanged":true,"items":[{"ordinal":0,"sourceId":"s","status":"completed","unchanged":true}]`)
}

// field is a value of one field, and whether it is refused.
type field struct {
	name, value string
	message     string // of data.errors; "" if it is accepted
}

func fieldCases() []field {
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	return []field{
		{"content", `""`, "is empty or white space"},
		{"content", `" \t\r\n\u00a0\u2003"`, "is empty or white space"},
		{"content", `null`, "is required"},
		{"content", `7`, "want a string, got a number"},
		{"content", `{}`, "want a string, got an object"},
		{"id", `""`, "is empty"},
		{"id", quoted(text(1000)), ""},
		{"id", quoted(text(1001)), "has 1001 characters: want 1 to 1000"},
		{"id", `"a\u0000"`, "holds U+0000"},
		{"id", `1`, "want a string, got a number"},
		{"label", quoted(text(1000)), ""},
		{"label", quoted(text(1001)), "has 1001 characters: want 0 to 1000"},
		{"label", `"\u0000"`, "holds U+0000"},
		{"label", `[]`, "want a string, got an array"},
		{"identity", `""`, "is empty"},
		{"identity", quoted(text(200)), ""},
		{"identity", quoted(text(201)), "has 201 characters: want 1 to 200"},
		{"identity", `"\u0000"`, "holds U+0000"},
		{"identity", `true`, "want a string, got a boolean"},
		{"audience", `1`, "want a string, got a number"},
		{"timestamp", `"yesterday"`, "want an ISO 8601 instant"},
		{"timestamp", `"2025-02-30"`, "want an ISO 8601 instant"},
		{"timestamp", `1763719200`, "want a string, got a number"},
		{"metadata", `"` + strings.Repeat("x", mib-2) + `"`, ""},
		{"metadata", `"` + strings.Repeat("x", mib-1) + `"`, "has 1048577 bytes of JSON: want at most 1048576"},
		{"metadata", `7`, ""},
	}
}

func TestSingle_FieldLimits(t *testing.T) {
	cases := append(fieldCases(),
		field{"idempotencyKey", `""`, "is empty"},
		field{"idempotencyKey", `"` + text(200) + `"`, ""},
		field{"idempotencyKey", `"` + text(201) + `"`, "has 201 characters: want 1 to 200"},
		field{"idempotencyKey", `"\u0000"`, "holds U+0000"},
		field{"idempotencyKey", `5`, "want a string, got a number"},
	)
	f := &fake{}
	api := serve(t, f)
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %.20s %s", c.name, c.value, c.message), func(t *testing.T) {
			f.calls = 0
			body := fmt.Sprintf(`{"content":"x",%q:%s}`, c.name, c.value)
			got := api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, body)
			if c.message == "" {
				got.Want(t, 202)
				return
			}
			got.Want(t, 400, `"code":"invalid-request"`, fmt.Sprintf(`"data":{"errors":[{"field":%q,"message":"%s`, c.name, c.message), `"debugMessage":"`+c.name+": "+c.message)
			if f.calls != 0 {
				t.Error("the command was given all the same")
			}
		})
	}
}

func TestBatch_FieldLimits(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	for _, c := range append(fieldCases(), field{"idempotencyKey", `5`, ""}) {
		t.Run(fmt.Sprintf("%s %.20s %s", c.name, c.value, c.message), func(t *testing.T) {
			f.calls = 0
			body := fmt.Sprintf(`{"items":[{"content":"first"},{"content":"x",%q:%s}]}`, c.name, c.value)
			got := api.Call(http.MethodPost, "/api/v1/ingest/batch", apitest.ProjectKey, body)
			if c.message == "" {
				got.Want(t, 202)
				return
			}
			name := "items[1]." + c.name
			got.Want(t, 400, `"code":"invalid-request"`, fmt.Sprintf(`{"field":%q,"message":"%s`, name, c.message), `"debugMessage":"`+name+": "+c.message, `"item":1`)
			if f.calls != 0 {
				t.Error("the command was given all the same")
			}
		})
	}
}

func TestSingle_ReportsEveryInvalidField(t *testing.T) {
	serve(t, &fake{}).Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"id":"","label":7}`).Want(t, 400,
		`"errors":[{"field":"id","message":"is empty"},{"field":"label","message":"want a string, got a number"},{"field":"content","message":"is required"}]`)
}

func TestSend_BodyIsNotAnObject(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	for _, path := range []string{"/ingest", "/ingest/batch", "/data-points/delete", "/projects", "/projects/default/keys"} {
		key := apitest.ProjectKey
		if strings.HasPrefix(path, "/projects") {
			key = apitest.ManagementKey
		}
		call := func(body string, headers ...string) apitest.Response {
			return api.Call(http.MethodPost, "/api/v1"+path, key, body, headers...)
		}
		for _, body := range []string{"", " ", "[]", `"x"`, "null", "7", `{"content":"x"`, `{"content":"x"}{}`, `{content:"x"}`, "{\"content\":\"\xff\"}", strings.Repeat("[", 10001)} {
			call(body).Want(t, 400, `"code":"invalid-request"`)
		}
		call("{}", "Content-Type: text/plain").Want(t, 415, `"code":"unsupported-media-type"`)
	}
	if f.calls != 0 {
		t.Error("a command was given all the same")
	}
}

func TestContent_AtItsLimit(t *testing.T) {
	api := serve(t, &fake{})
	single := func(content string) apitest.Response {
		return api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"content":"`+content+`"}`)
	}
	most := strings.Repeat("x", 16*mib)
	single(most).Want(t, 202)
	single(most+"x").Want(t, 413, `"code":"content-too-large"`, `"data":{"bytes":16777217,"limitBytes":16777216}`)
	single(strings.Repeat("é", 8*mib)).Want(t, 202)
	single(strings.Repeat("é", 8*mib)+"x").Want(t, 413, `"bytes":16777217`)
	single(strings.Repeat(" ", 98*mib)).Want(t, 413, `"limitBytes":102760448`)

	half := most[:8*mib]
	batch := func(a, b string) apitest.Response {
		return api.Call(http.MethodPost, "/api/v1/ingest/batch", apitest.ProjectKey, `{"items":[{"content":"`+a+`"},{"content":"`+b+`","id":"b"}]}`)
	}
	batch(half, half).Want(t, 202)
	batch(half, half+"y").Want(t, 413, `"code":"content-too-large"`, `"data":{"bytes":16777217,"limitBytes":16777216}`)
}

// The most content in its longest escaped form fits into the body.
func TestContent_Escaped(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a body of 96 MiB")
	}
	f := &fake{}
	serve(t, f).Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"content":"`+strings.Repeat(`\u0041`, 16*mib)+`"}`).Want(t, 202)
	if len(f.point.Content) != 16*mib {
		t.Errorf("%d bytes of content", len(f.point.Content))
	}
}

func TestSend_CommandFaults(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		err                *fault.Error
		status             int
	}{
		{http.MethodPost, "/ingest", `{"content":"x"}`, fault.New(fault.Invalid, fault.CodeAudienceUnknown, "no audience").With("audience", "x"), 400},
		{http.MethodPost, "/ingest", `{"content":"x"}`, fault.New(fault.Conflict, fault.CodeDataPointDeleted, "deleted"), 409},
		{http.MethodPost, "/ingest", `{"content":"x"}`, fault.New(fault.Conflict, fault.CodeIdempotencyConflict, "used").With("idempotencyKey", "k").With("ingestionId", sendID), 409},
		{http.MethodPost, "/ingest", `{"content":"x"}`, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no store"), 503},
		{http.MethodPost, "/ingest/batch", `{"items":[{"content":"x"}]}`, fault.New(fault.Invalid, fault.CodeAudienceUnknown, "items[0]: no audience"), 400},
		{http.MethodPost, "/ingest/batch", `{"items":[{"content":"x"}]}`, fault.New(fault.Conflict, fault.CodeDataPointDeleted, "items[0]: deleted"), 409},
		{http.MethodPost, "/ingest/" + sendID.String() + "/retry", "", fault.New(fault.NotFound, fault.CodeNotFound, "unknown"), 404},
		{http.MethodPost, "/ingest/" + sendID.String() + "/retry", "", fault.New(fault.Conflict, fault.CodeIngestionNotStopped, "runs"), 409},
		{http.MethodPost, "/ingest/" + sendID.String() + "/retry", "", fault.New(fault.Conflict, fault.CodeDataPointDeleted, "deleted"), 409},
		{http.MethodPost, "/ingest/" + sendID.String() + "/retry", "", fault.New(fault.Unavailable, fault.CodePipelineDisabled, "off"), 503},
		{http.MethodDelete, "/ingest/" + sendID.String(), "", fault.New(fault.NotFound, fault.CodeNotFound, "unknown"), 404},
		{http.MethodDelete, "/data-points/a", "", fault.New(fault.NotFound, fault.CodeDataPointNotFound, "not live").With("ids", []string{"a"}), 404},
		{http.MethodPost, "/data-points/delete", `{"ids":["a"]}`, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "not live").With("ids", []string{"a"}), 404},
		{http.MethodPost, "/projects", `{"name":"ab"}`, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late").With("committed", true), 503},
		{http.MethodPost, "/projects/x/keys", `{"name":"k"}`, fault.New(fault.NotFound, fault.CodeNotFound, "no project"), 404},
		{http.MethodDelete, "/projects/x/keys/k", "", fault.New(fault.NotFound, fault.CodeNotFound, "no key"), 404},
	} {
		t.Run(c.path+" "+c.err.Code, func(t *testing.T) {
			key := apitest.ProjectKey
			if strings.HasPrefix(c.path, "/projects") {
				key = apitest.ManagementKey
			}
			serve(t, &fake{err: c.err}).Call(c.method, "/api/v1"+c.path, key, c.body).Want(t, c.status, `"code":"`+c.err.Code+`"`, `"debugMessage":"`+c.err.Msg+`"`)
		})
	}
}

func TestRetry(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	for _, body := range []string{"", "{}", "anything"} {
		api.Call(http.MethodPost, "/api/v1/ingest/"+strings.ToUpper(sendID.String())+"/retry", apitest.ProjectKey, body, "Content-Type: text/plain").
			Want(t, 202, `{"ingestionId":"`+sendID.String()+`","status":"queued"}`)
		if f.id != sendID {
			t.Errorf("id %s", f.id)
		}
	}
	f.id = uuid.Nil
	api.Call(http.MethodPost, "/api/v1/ingest/nothing/retry", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	if f.id != uuid.Nil {
		t.Error("the command was given all the same")
	}
}

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
	want := []ingest.DataPoint{
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
