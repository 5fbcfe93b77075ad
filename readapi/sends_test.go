package readapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
)

// explainFake is the sends that a project has, by every id that finds them. Those in late are found
// once the projection has caught up.
type explainFake struct {
	sends, late map[uuid.UUID]datapoints.Explained
	err         error
	project     auth.Project
	indexed     eventstore.Position
	limit       int
	caughtUp    int
	plan        metering.Plan
	// calls are in the request log once it was read so often.
	calls map[uuid.UUID]requestlog.Call
	reads int
}

func (f *explainFake) Get(_ context.Context, project, id uuid.UUID) (requestlog.Call, error) {
	f.reads--
	call, ok := f.calls[id]
	if !ok || project != apitest.Principal.Project.ID || f.reads > 0 {
		return requestlog.Call{}, fault.New(fault.NotFound, fault.CodeNotFound, "unknown")
	}
	return call, nil
}

func (f *explainFake) Explain(
	_ context.Context, project auth.Project, id uuid.UUID, limit int, indexed eventstore.Position,
) (datapoints.Explained, bool, error) {
	f.project, f.limit, f.indexed = project, limit, indexed
	s, ok := f.sends[id]
	return s, ok, f.err
}

func (f *explainFake) Head(context.Context) (eventstore.Position, error) { return 9, nil }

func (f *explainFake) Wait(context.Context, eventstore.Position, ...string) error {
	f.caughtUp++
	f.sends = f.late
	return nil
}

func (f *explainFake) Position(context.Context, string) (eventstore.Position, error) { return 7, nil }

// KeyByHash implements auth.Keys with a plan.
func (f *explainFake) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	h, ok, err := apitest.Keys{}.KeyByHash(ctx, kind, hash)
	h.Limits.Plan = f.plan
	return h, ok, err
}

func (f *explainFake) ProjectNamed(ctx context.Context, organization uuid.UUID, slug string) (auth.Named, bool, error) {
	return apitest.Keys{}.ProjectNamed(ctx, organization, slug)
}

func (f *explainFake) Agent(ctx context.Context, id uuid.UUID) (auth.AgentHolder, bool, error) {
	return apitest.Keys{}.Agent(ctx, id)
}

func serveExplain(t *testing.T, f *explainFake) *apitest.Client {
	t.Helper()
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: f, URLs: apitest.URLs})
	readapi.Register(e, readapi.Deps{Explain: why.Explainer{
		Sends: f, Progress: f, Calls: f, Head: projections.Head{Log: f, Waiter: f},
	}})
	return apitest.Start(t, readapi.OpenAPI, e)
}

var requestID = uuid.MustParse("77777777-7777-7777-8777-777777777777")

func explainPath(id uuid.UUID) string { return "/api/v1/ingest/" + id.String() + "/explain" }

func TestExplain_Send(t *testing.T) {
	settled, a := instant(10), uuid.MustParse("88888888-8888-4888-8888-888888888888")
	node := datapoint.NodeID(a, 2).String()
	send := datapoints.Explained{
		ID: sendID, RequestID: requestID, AcceptedAt: instant(9), SettledAt: &settled, Phase: "indexed", CreditTenths: 25,
		Items: []datapoints.Item{
			{DataPoint: a, SourceID: "call", Revision: 2, Outcome: "updated", Searchable: true, Memories: 3},
			{Ordinal: 1, DataPoint: a, Revision: 2, Outcome: "deleted"},
			{Ordinal: 2, DataPoint: a, Outcome: "deleted"},
		},
		Omitted: 5,
	}
	f := &explainFake{sends: map[uuid.UUID]datapoints.Explained{sendID: send, requestID: send}, plan: metering.PayAsYouGo}
	api := serveExplain(t, f)
	const begin = `{"ingestionId":"66666666-6666-4666-8666-666666666666","requestId":"77777777-7777-7777-8777-777777777777",` +
		`"status":202,"errorCode":null,"acceptedAt":"2026-11-21T09:00:00Z","settledAt":"2026-11-21T10:00:00Z","phase":"indexed",` +
		`"items":[`
	items := `{"dataPointId":"call","revision":2,"status":"updated","searchable":true,"memories":3,"sourceId":"` + node + `"},` +
		`{"dataPointId":null,"revision":2,"status":"deleted","searchable":false,"memories":0,"sourceId":"` + node + `"},` +
		`{"dataPointId":null,"revision":0,"status":"deleted","searchable":false,"memories":0,"sourceId":null}],"itemsOmitted":5,`
	for _, id := range []uuid.UUID{sendID, requestID} {
		api.Call(http.MethodGet, explainPath(id), apitest.ProjectKey, "").Want(t, 200,
			begin+items+`"credits":2.5,"next":"Nothing: recall finds what was sent."}`)
	}
	if f.project != apitest.Principal.Project || f.limit != 100 || f.indexed != 7 || f.caughtUp != 0 {
		t.Errorf("asked for %+v", f)
	}
	f.plan = metering.SelfHosted
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 200, `"credits":null,`)

	failed := send
	failed.Phase, failed.Failure = "failed", &datapoints.Failure{Code: "content-rejected", Message: "m"}
	f.sends[sendID] = failed
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 200,
		`"phase":"failed","failure":{"code":"content-rejected","message":"m","retryable":false},"items":`)

	send.Items, send.Omitted, send.Phase = nil, 0, "nothing-changed"
	f.sends[sendID] = send
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 200, `"status":200,`, `"items":[],"itemsOmitted":0`)
}

// A send that changed nothing has the status that the request log holds: a webhook was answered with 202.
func TestExplain_StatusOfUnchangedSend(t *testing.T) {
	young := uuid.Must(uuid.NewV7())
	send := datapoints.Explained{ID: sendID, RequestID: young, Phase: "nothing-changed"}
	for logged, want := range map[int]string{200: `"status":200,`, 202: `"status":202,`, 503: `"status":200,`} {
		f := &explainFake{
			reads: 4, sends: map[uuid.UUID]datapoints.Explained{sendID: send},
			calls: map[uuid.UUID]requestlog.Call{
				young: {Entry: requestlog.Entry{RequestID: young, Status: logged, IngestionID: &sendID}},
			},
		}
		serveExplain(t, f).Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 200, want)
	}
}

// A send that was answered before is known, although the projection has yet to apply it. No other id
// is.
func TestExplain_Unknown(t *testing.T) {
	f := &explainFake{late: map[uuid.UUID]datapoints.Explained{sendID: {ID: sendID, RequestID: requestID, Phase: "queued"}}}
	api := serveExplain(t, f)
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 200, `"phase":"queued"`, `"settledAt":null`)
	if f.caughtUp != 1 {
		t.Errorf("it waited %d times", f.caughtUp)
	}
	api.Call(http.MethodGet, explainPath(requestID), apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	f.caughtUp = 0
	for _, id := range []string{"x", "%00", "%7B" + sendID.String() + "%7D", strings.Repeat("6", 3000)} {
		api.Call(http.MethodGet, "/api/v1/ingest/"+id+"/explain", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
		if f.caughtUp > 0 {
			t.Errorf("%s is looked for", id)
		}
	}
	f.sends, f.err = f.late, errors.New("no database")
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 500, `"code":"internal"`)
	f.err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")
	api.Call(http.MethodGet, explainPath(sendID), apitest.ProjectKey, "").Want(t, 503, `"code":"service-unavailable"`)
}

// A call that is not in the log yet is awaited; the id of a call that made a send finds it.
func TestExplain_LoggedCall(t *testing.T) {
	send := datapoints.Explained{ID: sendID, RequestID: requestID, Phase: "indexed"}
	young, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	call := func(status int, ingestion *uuid.UUID) *explainFake {
		logged := requestlog.Call{Entry: requestlog.Entry{RequestID: young, Status: status, IngestionID: ingestion}}
		return &explainFake{
			reads: 4, late: map[uuid.UUID]datapoints.Explained{sendID: send},
			calls: map[uuid.UUID]requestlog.Call{young: logged},
		}
	}
	for _, c := range []struct {
		f    *explainFake
		want string
	}{
		{call(202, &sendID), `{"ingestionId":"` + sendID.String()},
		{call(409, &sendID), `{"ingestionId":null,"requestId":"` + young.String() + `","status":409`},
		{call(400, nil), `{"ingestionId":null,"requestId":"` + young.String() + `","status":400`},
	} {
		serveExplain(t, c.f).Call(http.MethodGet, explainPath(young), apitest.ProjectKey, "").Want(t, 200, c.want)
	}
	old := uuid.UUID{6: 0x70, 8: 0x80}
	f := call(400, nil)
	f.calls[old] = f.calls[young]
	serveExplain(t, f).Call(http.MethodGet, explainPath(old), apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	if f.reads != 2 {
		t.Errorf("the log is read %d times for a call of %s", 4-f.reads, time.Unix(old.Time().UnixTime()))
	}
}
