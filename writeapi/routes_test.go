package writeapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	sendID      = uuid.MustParse("66666666-6666-4666-8666-666666666666")
	operationID = uuid.MustParse("77777777-7777-4777-8777-777777777777")
	yes         = true
)

// fake implements every command of the write side. It records its calls and returns err, or
// succeeds.
type fake struct {
	err error
	// unchanged makes sends return unchanged receipts.
	unchanged bool

	calls int
	call  engine.Call
	point ingest.DataPoint
	items []ingest.DataPoint
	key   string
	id    uuid.UUID
	ids   []string
	slug  string
	name  string
	keyID string
}

func (f *fake) note(call engine.Call) error {
	f.calls++
	f.call = call
	return f.err
}

func (f *fake) Ingest(
	_ context.Context, call engine.Call, in ingest.DataPoint, key string,
) (ingest.Receipt, error) {
	f.point, f.key = in, key
	r := ingest.Receipt{ProjectID: 1, IngestionID: sendID, SourceID: "s1", Status: ingest.StatusQueued}
	if f.unchanged {
		r.Status, r.Unchanged = ingest.StatusCompleted, &yes
	}
	return r, f.note(call)
}

func (f *fake) IngestBatch(
	_ context.Context, call engine.Call, items []ingest.DataPoint, key string,
) (ingest.BatchReceipt, error) {
	f.items, f.key = items, key
	r := ingest.BatchReceipt{ProjectID: 1, IngestionID: sendID, Status: ingest.StatusQueued}
	if f.unchanged {
		r.Status, r.Unchanged = ingest.StatusCompleted, &yes
	}
	for i := range items {
		r.Items = append(r.Items, ingest.ItemReceipt{Ordinal: i, SourceID: "s", Status: r.Status, Unchanged: r.Unchanged})
	}
	return r, f.note(call)
}

func (f *fake) Retry(_ context.Context, call engine.Call, id uuid.UUID) error {
	f.id = id
	return f.note(call)
}

func (f *fake) DeleteSend(_ context.Context, call engine.Call, id uuid.UUID) error {
	f.id = id
	return f.note(call)
}

func (f *fake) DeleteDataPoints(_ context.Context, call engine.Call, ids []string) (ingest.DeletionReceipt, error) {
	f.ids = ids
	return ingest.DeletionReceipt{OperationID: operationID, IDs: ids}, f.note(call)
}

func (f *fake) CreateProject(_ context.Context, call engine.Call, name string) (tenancy.ProjectReceipt, error) {
	f.name = name
	receipt := tenancy.ProjectReceipt{
		ID: uuid.New(), Slug: "my-project", Name: name, CreatedAt: call.ReceivedAt, Metered: name == "Metered",
	}
	return receipt, f.note(call)
}

func (f *fake) CreateKey(_ context.Context, call engine.Call, slug, name string) (tenancy.KeyReceipt, error) {
	f.slug, f.name = slug, name
	return tenancy.KeyReceipt{
		ID: "k1", Name: name, KeyPrefix: "svc_sk_0000", KeySuffix: "0009", CreatedAt: call.ReceivedAt, Key: "svc_sk_0000000000000000000000000000000000000009",
	}, f.note(call)
}

func (f *fake) RevokeKey(_ context.Context, call engine.Call, slug, keyID string) error {
	f.slug, f.keyID = slug, keyID
	return f.note(call)
}

// serve serves the write side over a fake, with the real edge.
func serve(t *testing.T, f *fake) *apitest.Client {
	t.Helper()
	e := httpx.New(httpx.Config{
		Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs,
		Now: func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.UTC) },
	})
	writeapi.Register(e, writeapi.Deps{Ingest: f, Delete: f, Projects: f})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func TestCreateProject(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	api.Call(http.MethodPost, "/api/v1/projects", apitest.ManagementKey, `{"name":"My Project"}`).Want(t, 201,
		`{"slug":"my-project","name":"My Project","description":"","isArchived":false,"memoryCount":0,"ingestionCap":null,"monthIngestions":0,"creditCap":null,"monthCredits":null,"createdAt":"2026-11-21T09:00:00.123456Z"}`)
	if f.name != "My Project" || f.call.Principal != apitest.Manager {
		t.Errorf("name %q, call %+v", f.name, f.call)
	}
	api.Call(http.MethodPost, "/api/v1/projects", apitest.ManagementKey, `{"name":"Metered"}`).Want(t, 201, `"creditCap":null,"monthCredits":0,`)
	for name, c := range map[string]struct {
		body string
		code string
	}{
		"two letters":     {`{"name":"ab"}`, ""},
		"two digits":      {`{"name":"- 1.2 -"}`, ""},
		"other alphabets": {`{"name":"é日"}`, ""},
		"255 characters":  {`{"name":"` + strings.Repeat("é", 255) + `"}`, ""},
		"256 characters":  {`{"name":"` + strings.Repeat("é", 256) + `"}`, "project-name-invalid"},
		"one letter":      {`{"name":"a!"}`, "project-name-invalid"},
		"no letter":       {`{"name":"!!"}`, "project-name-invalid"},
		"empty":           {`{"name":""}`, "project-name-invalid"},
		"missing":         {`{}`, "project-name-invalid"},
		"null":            {`{"name":null}`, "project-name-invalid"},
		"U+0000":          {`{"name":"ab\u0000"}`, "project-name-invalid"},
		"a number":        {`{"name":12}`, "invalid-request"},
		"more than 1 MiB": {`{"name":"ab","x":"` + strings.Repeat("x", mib) + `"}`, "content-too-large"},
	} {
		t.Run(name, func(t *testing.T) { named(t, f, api, "/api/v1/projects", c.body, c.code) })
	}
}

func TestCreateKey(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	api.Call(http.MethodPost, "/api/v1/projects/a%20b%2Fc/keys", apitest.ManagementKey, `{"name":"first"}`).Want(t, 201,
		`{"id":"k1","name":"first","keyPrefix":"svc_sk_0000","keySuffix":"0009","createdAt":"2026-11-21T09:00:00.123456Z","key":"svc_sk_`)
	if f.slug != "a b/c" || f.name != "first" {
		t.Errorf("slug %q, name %q", f.slug, f.name)
	}
	for name, c := range map[string]struct {
		body string
		code string
	}{
		"1 character":   {`{"name":"x"}`, ""},
		"64 characters": {`{"name":"` + text(64) + `"}`, ""},
		"65 characters": {`{"name":"` + text(65) + `"}`, "key-name-invalid"},
		"empty":         {`{"name":""}`, "key-name-invalid"},
		"missing":       {`{}`, "key-name-invalid"},
		"null":          {`{"name":null}`, "key-name-invalid"},
		"U+0000":        {`{"name":"\u0000"}`, "key-name-invalid"},
		"an array":      {`{"name":[]}`, "invalid-request"},
	} {
		t.Run(name, func(t *testing.T) { named(t, f, api, "/api/v1/projects/default/keys", c.body, c.code) })
	}
}

// named posts a body with a name and checks for 201, or the code.
func named(t *testing.T, f *fake, api *apitest.Client, path, body, code string) {
	t.Helper()
	f.calls = 0
	got := api.Call(http.MethodPost, path, apitest.ManagementKey, body)
	switch code {
	case "":
		got.Want(t, 201)
	case "content-too-large":
		got.Want(t, 413, fmt.Sprintf(`"code":%q`, code))
	default:
		got.Want(t, 400, fmt.Sprintf(`"code":%q`, code))
	}
	if given := f.calls == 1; given != (code == "") {
		t.Errorf("%d commands were given", f.calls)
	}
}

func TestRevokeKey(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	got := api.Call(http.MethodDelete, "/api/v1/projects/default/keys/k%2F1", apitest.ManagementKey, "")
	if got.Status != 204 || got.Body != "" || f.slug != "default" || f.keyID != "k/1" {
		t.Errorf("%d %q, slug %q, key %q", got.Status, got.Body, f.slug, f.keyID)
	}
	api.Call(http.MethodDelete, "/api/v1/projects/default/keys/%00", apitest.ManagementKey, "").Want(t, 400, `"code":"invalid-request"`)
}
