package writeapi_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/commands"
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
	call  commands.Call
	point commands.DataPoint
	items []commands.DataPoint
	key   string
	id    uuid.UUID
	ids   []string
	slug  string
	name  string
	keyID string
}

func (f *fake) note(call commands.Call) error {
	f.calls++
	f.call = call
	return f.err
}

func (f *fake) Ingest(
	_ context.Context, call commands.Call, in commands.DataPoint, key string,
) (commands.Receipt, error) {
	f.point, f.key = in, key
	r := commands.Receipt{ProjectID: 1, IngestionID: sendID, SourceID: "s1", Status: commands.StatusQueued}
	if f.unchanged {
		r.Status, r.Unchanged = commands.StatusCompleted, &yes
	}
	return r, f.note(call)
}

func (f *fake) IngestBatch(
	_ context.Context, call commands.Call, items []commands.DataPoint, key string,
) (commands.BatchReceipt, error) {
	f.items, f.key = items, key
	r := commands.BatchReceipt{ProjectID: 1, IngestionID: sendID, Status: commands.StatusQueued}
	if f.unchanged {
		r.Status, r.Unchanged = commands.StatusCompleted, &yes
	}
	for i := range items {
		r.Items = append(r.Items, commands.ItemReceipt{Ordinal: i, SourceID: "s", Status: r.Status, Unchanged: r.Unchanged})
	}
	return r, f.note(call)
}

func (f *fake) Retry(_ context.Context, call commands.Call, id uuid.UUID) error {
	f.id = id
	return f.note(call)
}

func (f *fake) DeleteSend(_ context.Context, call commands.Call, id uuid.UUID) error {
	f.id = id
	return f.note(call)
}

func (f *fake) DeleteDataPoints(_ context.Context, call commands.Call, ids []string) (commands.DeletionReceipt, error) {
	f.ids = ids
	return commands.DeletionReceipt{OperationID: operationID, IDs: ids}, f.note(call)
}

func (f *fake) CreateProject(_ context.Context, call commands.Call, name string) (commands.ProjectReceipt, error) {
	f.name = name
	receipt := commands.ProjectReceipt{
		ID: uuid.New(), Slug: "my-project", Name: name, CreatedAt: call.ReceivedAt, Metered: name == "Metered",
	}
	return receipt, f.note(call)
}

func (f *fake) CreateKey(_ context.Context, call commands.Call, slug, name string) (commands.KeyReceipt, error) {
	f.slug, f.name = slug, name
	return commands.KeyReceipt{
		ID: "k1", Name: name, KeyPrefix: "svc_sk_0000", KeySuffix: "0009", CreatedAt: call.ReceivedAt, Key: "svc_sk_0000000000000000000000000000000000000009",
	}, f.note(call)
}

func (f *fake) RevokeKey(_ context.Context, call commands.Call, slug, keyID string) error {
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
