package apitest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// okStub does whatever it is asked for.
type okStub struct{}

func (okStub) Ingest(_ context.Context, _ engine.Call, in ingest.DataPoint, _ string) (ingest.Receipt, error) {
	r := ingest.Receipt{ProjectID: 1, IngestionID: uuid.New(), SourceID: "digest", Status: ingest.StatusQueued}
	if in.ID != nil {
		r.SourceID = *in.ID
	}
	return r, nil
}

func (okStub) IngestBatch(
	_ context.Context, _ engine.Call, items []ingest.DataPoint, _ string,
) (ingest.BatchReceipt, error) {
	r := ingest.BatchReceipt{ProjectID: 1, IngestionID: uuid.New(), Status: ingest.StatusQueued}
	for i := range items {
		r.Items = append(r.Items, ingest.ItemReceipt{Ordinal: i, SourceID: "s", Status: ingest.StatusQueued})
	}
	return r, nil
}

func (okStub) Retry(context.Context, engine.Call, uuid.UUID) error      { return nil }
func (okStub) DeleteSend(context.Context, engine.Call, uuid.UUID) error { return nil }

func (okStub) DeleteDataPoints(_ context.Context, _ engine.Call, ids []string) (ingest.DeletionReceipt, error) {
	return ingest.DeletionReceipt{OperationID: uuid.New(), IDs: ids}, nil
}

func (okStub) CreateProject(_ context.Context, _ engine.Call, name string) (tenancy.ProjectReceipt, error) {
	return tenancy.ProjectReceipt{Slug: "made", Name: name, CreatedAt: time.Unix(1, 0).UTC()}, nil
}

func (okStub) CreateKey(_ context.Context, _ engine.Call, _, name string) (tenancy.KeyReceipt, error) {
	return tenancy.KeyReceipt{
		ID:        uuid.NewString(),
		Name:      name,
		KeyPrefix: "svc_sk_0000",
		KeySuffix: "0001",
		CreatedAt: time.Unix(1, 0).UTC(),
		Key:       apitest.ProjectKey,
	}, nil
}

func (okStub) RevokeKey(context.Context, engine.Call, string, string) error { return nil }

func (okStub) Status(context.Context, auth.Project, uuid.UUID) (datapoints.Status, error) {
	return datapoints.Status{Status: datapoints.StatusCompleted, Settled: true}, nil
}

func (okStub) Explain(
	_ context.Context, _ auth.Project, id uuid.UUID, _ int, _ eventstore.Position,
) (datapoints.Explained, bool, error) {
	item := datapoints.Item{DataPoint: id, SourceID: "s", Revision: 1, Outcome: "created", Searchable: true}
	return datapoints.Explained{
		ID: id, RequestID: id, AcceptedAt: time.Unix(1, 0).UTC(), Phase: "indexed", Items: []datapoints.Item{item},
	}, id[0] < 0x80, nil
}

func (okStub) Position(context.Context, string) (eventstore.Position, error) { return 1, nil }

func (okStub) Get(_ context.Context, _, id uuid.UUID) (requestlog.Call, error) {
	return requestlog.Call{Entry: requestlog.Entry{RequestID: id, Status: 409, ErrorCode: "conflict"}}, nil
}

func (okStub) Tree(_ context.Context, organization uuid.UUID) (audit.Tree, bool, error) {
	return audit.Tree{Organization: organization, Checkpoint: "a checkpoint"}, true, nil
}

func (okStub) Tile(_ context.Context, _ uuid.UUID, level int, _ int64, _ int) ([]byte, bool, error) {
	return []byte{0}, level < 1, nil
}

func (okStub) Prove(context.Context, readapi.ProofRequest) ([]zipped.File, error) {
	return []zipped.File{{Name: "a.tlog-proof"}}, nil
}

func (okStub) Projects(context.Context, uuid.UUID) ([]account.Project, error) { return nil, nil }

func (okStub) Room(context.Context, auth.Principal, time.Time) (account.Room, error) {
	return account.Room{}, nil
}

func (okStub) Recall(_ context.Context, _ auth.Principal, q recall.Query, _ time.Time) (recall.Response, error) {
	return recall.Response{AsOf: time.Unix(1, 0).UTC(), Results: []recall.Result{{
		ID: uuid.New(), Rank: 1, Content: q.Text, OccurredAt: time.Unix(1, 0).UTC(),
		Artifact: recall.Artifact{ID: uuid.New(), Kind: "source", OccurredAt: time.Unix(1, 0).UTC()},
		Sources:  []recall.Source{{SourceID: "s", OccurredAt: time.Unix(1, 0).UTC(), Excerpts: []string{}}},
	}}}, nil
}

// routes is the whole API over something that does whatever it is asked for.
func routes() http.Handler {
	e := httpx.New(apitest.EdgeConfig())
	writeapi.Register(e, writeapi.Deps{
		Ingest: okStub{}, Delete: okStub{}, Projects: okStub{}, Audiences: okStub{},
		AudienceViews: okStub{}, Identities: okStub{}, LastSeen: okStub{},
	})
	readapi.Register(e, readapi.Deps{
		Statuses: okStub{}, Projects: okStub{}, Recall: okStub{}, Identities: okStub{}, Audiences: okStub{},
		Usage:   okStub{},
		Explain: why.Explainer{Sends: okStub{}, Progress: okStub{}, Calls: okStub{}},
		Rooms:   okStub{}, Audit: readapi.Audit{Trees: okStub{}, Prove: okStub{}.Prove},
	})
	readapi.RegisterOperation(e, readapi.Operation{
		Conditions: func(context.Context) condition.List { return nil }, Metrics: prometheus.NewRegistry(),
	})
	return e
}

// FuzzRoutes sends any request that net/http lets through: whatever it is, the answer is one that
// the document has, an error is an envelope, and nothing fails inside.
func FuzzRoutes(f *testing.F) {
	id := uuid.NewString()
	for _, seed := range []struct{ line, headers, body string }{
		{"POST /api/v1/ingest", "", `{"content":"I like tea","id":"a/b","metadata":{"a":[1e999,null]},"timestamp":"9999-12-31T23:59:59Z"}`},
		{"POST /api/v1/ingest?x=%zz", "Content-Type: text/plain", `{"content":"\ud800"}`},
		{"POST /api/v1/ingest/batch", "", `{"items":[{"content":"x"},{"content":"y","id":"z"}],"idempotencyKey":"k"}`},
		{"POST /api/v1/ingest/estimate", "", `{"files":[{"path":"a.csv","content":"id,date\n1,2025-01-01"}],"timeZone":"Europe/Rome","points":"full"}`},
		{"POST /api/v1/ingest/estimate", "", `{"items":[{"content":"x"},{"content":"x","metadata":null}],"points":"none"}`},
		{"GET /api/v1/ingest/" + id, "", ""},
		{"GET /api/v1/ingest/" + id + "/explain", "", ""},
		{"GET /api/v1/ingest/ffffffff-ffff-7fff-8fff-ffffffffffff/explain?project=default", "", ""},
		{"GET /api/v1/ingest/%00/explain", "", ""},
		{"DELETE /api/v1/ingest/" + id, "Content-Length: 3", "abc"},
		{"POST /api/v1/ingest/" + id + "/retry", "", "{}"},
		{"DELETE /api/v1/data-points/a%2Fb%00%ff", "", ""},
		{"DELETE /api/v1/data-points/..%2f..", "", ""},
		{"POST /api/v1/data-points/delete", "Content-Encoding: gzip", `{"ids":["a","a"]}`},
		{"POST /api/v1/recall", "", `{"query":"tea","identity":"ana","limit":1e2,"occurredFrom":"2026-W01-1"}`},
		{"GET /api/v1/projects?project=a&project=b", "Origin: null", ""},
		{"POST /api/v1/projects", "", `{"name":"Ünïcode 日本"}`},
		{"POST /api/v1/projects/default/keys", "", `{"name":"agent"}`},
		{"DELETE /api/v1/projects/default/keys/" + id, "", ""},
		{"PUT /api/v1/identities/a%2Fb?project=default", "", `{"traits":{"team":"a","gone":null}}`},
		{"PATCH /api/v1/identities/%E6%97%A5?project=default", "", `{"traits":{"team":1}}`},
		{"POST /api/v1/identities/bulk?project=default", "", `[{"identity":"ana","traits":{"a":"b"}},{"identity":"ana"}]`},
		{"POST /api/v1/identities/bulk?project=default", "", `[{"identity":"` + strings.Repeat("x", 201) + `"}]`},
		{"POST /api/v1/identities/bulk?project=default", "", `[{"identity":null,"traits":null}]`},
		{"PUT /api/v1/identities/bulk?project=default&project=default", "", `null`},
		{"GET /api/v1/identities?project=default&limit=1e3&traitValue=a", "", ""},
		{"GET /api/v1/identities?project=archived&limit=-1&traitKey=team&after=AAAA", "", ""},
		{"GET /api/v1/identities/ana?project=other", "", ""},
		{"DELETE /api/v1/identities/ana?project=default", "", ""},
		{"GET /api/v1/audiences", "", ""},
		{"PUT /api/v1/audiences/team", "", `{"kind":"fixed","name":"Team","identities":["ana","ana"]}`},
		{"PUT /api/v1/audiences/team", "", `{"kind":"rule","rule":{"match":"any","conditions":[{"trait":"team","operator":"is_one_of","values":["a"]}]}}`},
		{"PUT /api/v1/audiences/project", "", `{"kind":"rule","rule":{"match":"any","conditions":[]}}`},
		{"GET /api/v1/audiences/project", "", ""},
		{"GET /api/v1/audiences/A_b", "", ""},
		{"DELETE /api/v1/audiences/team?project=other", "", ""},
		{"POST /api/v1/audiences/team/recompute", "", ""},
		{"GET /api/v1/usage", "", ""},
		{"GET /api/v1/audit/22222222-2222-4222-8222-222222222222/tile/0/x001/067.p/12", "", ""},
		{"GET /api/v1/audit/22222222-2222-4222-8222-222222222222/tile/entries//", "", ""},
		{"GET /api/v1/audit/22222222-2222-4222-8222-222222222222/proofs?source=a&ingestion=b", "", ""},
		{"GET /api/v1/audit/x/checkpoint", "", ""},
		{"OPTIONS *", "", ""},
		{"GET http://elsewhere/api/v1/projects", "", ""},
		{"BREW /api/v1//recall;x=1", "Expect: 100-continue", ""},
		{"GET /openapi.yaml", "", ""},
		{"HEAD /readyz", "", ""},
		{"GET /metrics", "Accept-Encoding: gzip", ""},
	} {
		for key := range 3 {
			f.Add(seed.line, seed.headers, []byte(seed.body), uint8(key))
		}
	}
	api, contract := routes(), apitest.Load(f, readapi.OpenAPI)
	keys := []string{
		apitest.ProjectKey,
		apitest.ManagementKey,
		"",
		apitest.ArchivedKey,
		apitest.UnknownKey,
		apitest.AgentToken,
		"x y",
	}
	f.Fuzz(func(t *testing.T, line, headers string, body []byte, key uint8) {
		if strings.ContainsAny(line, "\r\n") {
			return
		}
		var text bytes.Buffer
		fmt.Fprintf(&text, "%s HTTP/1.1\r\nHost: annals\r\n", line)
		if k := keys[int(key)%len(keys)]; k != "" {
			fmt.Fprintf(&text, "Authorization: Bearer %s\r\n", k)
		}
		if !strings.Contains(strings.ToLower(headers), "content-type") && len(body) > 0 {
			text.WriteString("Content-Type: application/json\r\n")
		}
		if !strings.Contains(strings.ToLower(headers), "content-length") &&
			!strings.Contains(strings.ToLower(headers), "transfer-encoding") {
			fmt.Fprintf(&text, "Content-Length: %d\r\n", len(body))
		}
		if headers != "" {
			text.WriteString(headers + "\r\n")
		}
		text.WriteString("\r\n")
		text.Write(body)
		req, err := http.ReadRequest(bufio.NewReader(&text))
		if err != nil {
			return // net/http answers such a request itself
		}
		res := httptest.NewRecorder()
		api.ServeHTTP(res, req)
		if res.Code >= 500 || res.Code < 200 {
			t.Fatalf("%q is answered %d: %s", line, res.Code, res.Body)
		}
		if err := contract.Check(req, res.Code, res.Header(), res.Body.Bytes()); err != nil {
			t.Fatalf("%q is answered %d: %v\n%s", line, res.Code, err, res.Body)
		}
		if res.Header().Get("X-Request-Id") == "" {
			t.Fatalf("%q is answered %d without X-Request-Id", line, res.Code)
		}
	})
}

func (okStub) PutIdentity(
	_ context.Context, call engine.Call, name string, traits map[string]string,
) (identities.IdentityReceipt, error) {
	if traits == nil {
		traits = map[string]string{}
	}
	return identities.IdentityReceipt{
		ID:        uuid.New(),
		Identity:  name,
		Traits:    traits,
		Origin:    identity.OriginAPI,
		CreatedAt: call.ReceivedAt,
		UpdatedAt: call.ReceivedAt,
	}, nil
}

func (w okStub) PatchIdentity(
	ctx context.Context, call engine.Call, name string, set map[string]string, _ []string,
) (identities.IdentityReceipt, error) {
	return w.PutIdentity(ctx, call, name, set)
}

func (okStub) DeleteIdentity(context.Context, engine.Call, string) error { return nil }

func (okStub) BulkIdentities(
	_ context.Context, _ engine.Call, rows []identity.Row,
) ([]identities.IdentityStatus, error) {
	statuses := make([]identities.IdentityStatus, len(rows))
	for i, row := range rows {
		statuses[i] = identities.IdentityStatus{Identity: row.Identity, Status: identity.Updated}
	}
	return statuses, nil
}

func (okStub) LastSeen(_ context.Context, _ auth.Project, _ uuid.UUID, createdAt time.Time) (*time.Time, error) {
	return &createdAt, nil
}

func (okStub) Identities(context.Context, auth.Project, directory.Listing) (directory.Identities, error) {
	record := directory.Identity{
		Identity:  "ana",
		Traits:    json.RawMessage(`{"team":"a"}`),
		Origin:    "api",
		CreatedAt: time.Unix(1, 0).UTC(),
		UpdatedAt: time.Unix(2, 0).UTC(),
	}
	return directory.Identities{
		List: []directory.Identity{record},
		More: true,
		End:  &directory.Cursor{CreatedAt: record.CreatedAt, ID: uuid.New()},
	}, nil
}

func (w okStub) Identity(ctx context.Context, project auth.Project, name string) (directory.Identity, bool, error) {
	page, err := w.Identities(ctx, project, directory.Listing{})
	page.List[0].Identity, page.List[0].Audiences = name, []string{"team"}
	return page.List[0], true, err
}

func (okStub) PutAudience(
	_ context.Context, _ engine.Call, in identities.AudiencePut,
) (identities.AudienceReceipt, error) {
	return identities.AudienceReceipt{ID: uuid.New(), Slug: in.Slug, Created: in.Name == nil}, nil
}

func (okStub) DeleteAudience(context.Context, engine.Call, string) error { return nil }

func (okStub) RecomputeAudience(_ context.Context, _ engine.Call, slug string) (identities.AudienceReceipt, error) {
	return identities.AudienceReceipt{ID: uuid.New(), Slug: slug}, nil
}

func (w okStub) ViewAudience(ctx context.Context, project auth.Project, slug string) (any, bool, error) {
	return readapi.AudienceViews{Queries: w}.ViewAudience(ctx, project, slug)
}

func (w okStub) Audiences(ctx context.Context, project auth.Project) iter.Seq2[directory.Audience, error] {
	return func(yield func(directory.Audience, error) bool) {
		fixed, _, err := w.Audience(ctx, project, "team")
		fixed.Kind, fixed.Rule, fixed.Identities = audience.KindFixed, nil, []string{"ana"}
		if yield(
			directory.Audience{
				Slug:      audience.Default,
				Name:      "Project",
				Kind:      audience.KindDefault,
				CreatedAt: time.Unix(1, 0).UTC(),
			},
			nil,
		) {
			yield(fixed, err)
		}
	}
}

// Audience is a rule. What no slug can be, it finds none of.
func (okStub) Audience(_ context.Context, _ auth.Project, slug string) (directory.Audience, bool, error) {
	if audience.CheckSlug(slug) != nil {
		return directory.Audience{}, false, nil
	}
	at := time.Unix(1, 0).UTC()
	return directory.Audience{
		Slug: slug, Name: slug, Kind: audience.KindRule, MemberCount: 1, MemoryCount: 2, RecomputedAt: &at, CreatedAt: at,
		Rule: json.RawMessage(`{"match":"all","conditions":[{"trait":"team","operator":"exists","values":[]}]}`),
	}, true, nil
}

func (okStub) Usage(_ context.Context, p auth.Principal, at time.Time) (account.Usage, error) {
	end, ingestions := metering.MonthEnd(at), int64(7)
	return account.Usage{
		Month:   account.Month{From: end.AddDate(0, -1, 0), To: end, ResetsAt: &end},
		Balance: metering.Balance{Plan: metering.PayAsYouGo, IncludedTenths: 125}, SpendCapTenths: &ingestions,
		Projects: []account.Project{{
			Project: access.Project{Project: auth.Project{Slug: "default"}, IngestionCap: &ingestions},
			Used:    usage.Used{Ingestions: 1, Recalls: 2}, ChargedTenths: new(int64(125)),
		}},
	}, nil
}
