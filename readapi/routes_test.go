package readapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var sendID = uuid.MustParse("66666666-6666-4666-8666-666666666666")

// fake is every query of the read side: it notes what it is asked and answers with err, or with
// what it holds.
type fake struct {
	err      error
	status   datapoints.Status
	projects []account.Project
	page     recall.Response
	usage    account.Usage
	// ceilings are those of plans, 32000 where there is none; refusal is what the meter refuses with.
	ceilings   map[metering.Plan]int
	refusal    error
	conditions condition.List

	calls        int
	project      auth.Project
	organization uuid.UUID
	id           uuid.UUID
	query        recall.Query
	charged      []string
}

func (f *fake) Status(_ context.Context, project auth.Project, id uuid.UUID) (datapoints.Status, error) {
	f.calls++
	f.project, f.id = project, id
	return f.status, f.err
}

func (f *fake) Projects(_ context.Context, organization uuid.UUID) ([]account.Project, error) {
	f.calls++
	f.organization = organization
	return f.projects, f.err
}

func (f *fake) Recall(_ context.Context, q recall.Query) (recall.Response, error) {
	f.calls++
	f.query = q
	return f.page, f.err
}

// meter notes what it is asked too.
type meter struct{ *fake }

func (m meter) Charge(_ context.Context, p auth.Principal, identity string, at time.Time, search func() error) error {
	m.project, m.charged = p.Project, append(m.charged, fmt.Sprint(p.OrganizationID, " ", identity, " ", at.IsZero()))
	if m.refusal != nil {
		return m.refusal
	}
	return search()
}

func (m meter) Refund(context.Context, auth.Principal, time.Time) {}

func (m meter) Ceiling(plan metering.Plan) int {
	if ceiling, ok := m.ceilings[plan]; ok {
		return ceiling
	}
	return 32000
}

func (f *fake) Usage(_ context.Context, p auth.Principal, at time.Time) (account.Usage, error) {
	f.calls++
	f.project, f.organization = p.Project, p.OrganizationID
	if at.IsZero() {
		return account.Usage{}, errors.New("no time")
	}
	return f.usage, f.err
}

// serve serves the read side over a fake, with the real edge.
func serve(t *testing.T, f *fake) *apitest.Client {
	t.Helper()
	e := httpx.New(apitest.EdgeConfig())
	recalls := recall.Charged{Meter: meter{f}, Recalls: f}
	readapi.Register(e, readapi.Deps{Statuses: f, Projects: f, Recall: recalls, Usage: f})
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{
		Name: "annals_test_total",
		Help: "A metric of a test.",
	}))
	readapi.RegisterOperation(e, readapi.Operation{
		Conditions: func(context.Context) condition.List { return f.conditions }, Metrics: registry,
	})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func instant(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }

func ptr[T any](v T) *T { return &v }

func TestSend_Status(t *testing.T) {
	f := &fake{status: datapoints.Status{
		Status:    datapoints.StatusProcessing,
		Readiness: datapoints.Readiness{Raw: 2, Comprehension: 1},
	}}
	api := serve(t, f)
	api.Call(http.MethodGet, "/api/v1/ingest/"+sendID.String(), apitest.ProjectKey, "").Want(t, 200,
		`{"status":"processing","settled":false,"blocked":false,"readiness":{"raw":2,"comprehension":1,"consolidation":0,"failed":0},"failure":null}`)
	if f.id != sendID || f.project != apitest.Principal.Project {
		t.Errorf("id %s of %+v", f.id, f.project)
	}
	f.status = datapoints.Status{
		Status: datapoints.StatusFailed, Blocked: true, Readiness: datapoints.Readiness{Failed: 1},
		Failure: &datapoints.Failure{Code: "content-rejected", Message: "nothing to index"},
	}
	api.Call(http.MethodGet, "/api/v1/ingest/"+sendID.String(), apitest.ProjectKey, "").Want(t, 200,
		`{"status":"failed","settled":false,"blocked":true,"readiness":{"raw":0,"comprehension":0,"consolidation":0,"failed":1},"failure":{"code":"content-rejected","message":"nothing to index"}}`)

	f.err = fault.New(fault.NotFound, fault.CodeNotFound, "unknown")
	api.Call(http.MethodGet, "/api/v1/ingest/"+sendID.String(), apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	f.calls = 0
	for _, id := range []string{
		"x", "batch", "estimate", strings.ReplaceAll(sendID.String(), "-", ""),
		"%7B" + sendID.String() + "%7D",
	} {
		api.Call(http.MethodGet, "/api/v1/ingest/"+id, apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	}
	if f.calls != 0 {
		t.Error("an id that is none was looked for")
	}
}

func TestProjects_Listed(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	api.Call(http.MethodGet, "/api/v1/projects", apitest.ManagementKey, "").Want(t, 200, `{"projects":[]}`)
	if f.organization != apitest.Manager.OrganizationID {
		t.Errorf("organization %s", f.organization)
	}
	f.projects = []account.Project{
		{
			Project: access.Project{Project: auth.Project{Slug: "default"}, Name: "Default", CreatedAt: instant(9)},
			Used:    usage.Used{Ingestions: 3, CreditTenths: 1}, MemoryCount: 7,
		},
		{
			Project: access.Project{
				Project: auth.Project{Slug: "old-2"}, Name: "Old", Archived: true, CreatedAt: instant(8),
				IngestionCap: ptr(int64(5)), CreditCapTenths: ptr(int64(15)),
			},
			ChargedTenths: ptr(int64(1)),
		},
	}
	api.Call(http.MethodGet, "/api/v1/projects", apitest.ManagementKey, "").Want(t, 200,
		`{"projects":[{"slug":"default","name":"Default","description":"","isArchived":false,"memoryCount":7,"ingestionCap":null,"monthIngestions":3,"creditCap":null,"monthCredits":null,"createdAt":"2026-11-21T09:00:00Z"},`,
		`"isArchived":true,"memoryCount":0,"ingestionCap":5,"monthIngestions":0,"creditCap":1.5,"monthCredits":0.1`)
	f.err = errors.New("no database")
	api.Call(http.MethodGet, "/api/v1/projects", apitest.ManagementKey, "").Want(t, 500, `"code":"internal"`)
}

func TestOperator_Reads(t *testing.T) {
	f := &fake{}
	api := serve(t, f)
	api.Call(http.MethodGet, "/healthz", "", "").Want(t, 200, `{"status":"ok","version":"`+build.Get().Version+`"}`)
	api.Call(http.MethodGet, "/readyz", "", "").Want(t, 200, `{"status":"ready"}`)
	api.Call(http.MethodHead, "/readyz", "", "").Want(t, 200)
	metrics := api.Call(http.MethodGet, "/metrics", "", "")
	metrics.Want(t, 200, "annals_test_total 0")
	if kind := metrics.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("metrics are %q", kind)
	}
	parts := condition.List{
		{Name: "datapoints", State: condition.NotReady, Words: "stopped", Position: 7, Cause: "hidden"},
		{Name: "recallindex", State: condition.NotReady, Words: "behind", Since: instant(9)},
	}
	f.conditions = parts
	api.Call(http.MethodGet, "/readyz", "", "").Want(t, 503, `"debugMessage":"datapoints: stopped (position 7)"`,
		`"data":{"notReady":[{"part":"datapoints","reason":"stopped","position":7},`+
			`{"part":"recallindex","reason":"behind","since":"2026-11-21T09:00:00Z"}]}`)
	also := condition.List{
		{Name: condition.WritesRefused, Words: "the disk is nearly full", Private: "hidden"},
		{Name: condition.SemanticSearchOff, Words: "the model small is missing"},
		{Name: condition.ServersDown, Words: "the model cannot be used"},
		{Name: condition.SendsFailed, Words: "2 sends failed"},
		{Name: condition.LockAwaited, Words: "a table is locked"},
		{Name: condition.ErasureDenied, Words: "the right to delete is missing"},
		{Name: condition.StreamsRestored, Words: "1 stream was hidden"},
		{Name: condition.StreamsDamaged, Words: "1 stream was deleted"},
		{Name: condition.AuditTreesDiffer, Words: "1 tree differs"},
		{Name: condition.AuditLate, Words: "a witness is away"},
		{Name: condition.SetAside, SetAside: &client.SetAside{
			Position: 7, Type: "memory.derived.v1", Projections: []string{"memories"},
		}},
	}
	f.conditions = append(parts, also...)
	const remarks = `"semanticSearchOff":"the model small is missing","serversDown":["the model cannot be used"],"sendsFailed":"2 sends failed","lockAwaited":"a table is locked","erasureDenied":"the right to delete is missing","streamsRestored":"1 stream was hidden","streamsDamaged":"1 stream was deleted","auditTreesDiffer":"1 tree differs","auditLate":["a witness is away"],"setAside":[{"position":7,"type":"memory.derived.v1","projections":["memories"]}]`
	api.Call(http.MethodGet, "/readyz", "", "").Want(t, 503, `"notReady":[{"part":"datapoints"`, `"writesRefused":["the disk is nearly full"]`,
		`"setAside":[{`, `"semanticSearchOff":"the model small is missing"`,
		`"serversDown":["the model cannot be used"]`, `"sendsFailed":"2 sends failed"`, `"lockAwaited":"a table is locked"`, `"erasureDenied":"the right to delete is missing"`,
		`"streamsRestored":"1 stream was hidden"`)
	f.conditions = also
	api.Call(http.MethodGet, "/readyz", "", "").Want(t, 200, `{"status":"ready","writesRefused":["the disk is nearly full"],`+remarks+"}")
	api.Call(http.MethodGet, "/healthz", "", "").Want(t, 200)
	api.Call(http.MethodPost, "/healthz", "", "").Want(t, 405, `"code":"method-not-allowed"`)
}

func TestDocument_Served(t *testing.T) {
	got := serve(t, &fake{}).Call(http.MethodGet, "/openapi.yaml", "", "")
	got.Want(t, 200, "openapi: 3.1.0", "\n  version: 1.0.0\n", "\n  x-build: "+build.Version+"\n")
	if got.Body != string(readapi.OpenAPI) || got.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("served as %q, %d bytes", got.Header.Get("Content-Type"), len(got.Body))
	}
}

// TestDocument_EveryRoute holds the document, the table of credentials and the
// router against each other.
func TestDocument_EveryRoute(t *testing.T) {
	e := httpx.New(apitest.EdgeConfig())
	inTable := map[string]bool{}
	for _, r := range e.Routes() {
		inTable[r.Method+" "+r.Path] = true
	}
	readapi.Register(e, readapi.Deps{})
	writeapi.Register(e, writeapi.Deps{})
	var built []string
	for _, r := range e.Routes() {
		if !strings.HasPrefix(r.Path, auth.Prefix) {
			continue
		}
		if !inTable[r.Method+" "+r.Path] {
			t.Errorf("%s %s is not in the table of credentials", r.Method, r.Path)
		}
		// A route that is not built is answered by the router's own handler.
		if strings.Contains(r.Name, "readapi") || strings.Contains(r.Name, "writeapi") {
			built = append(built, r.Method+" "+r.Path)
		}
	}
	table := auth.NewTable()
	schemes := map[auth.Kind]string{
		auth.ProjectKey: "projectKey", auth.ManagementKey: "managementKey",
		auth.AgentToken: "agentToken",
	}
	var documented []string
	doc := apitest.Load(t, readapi.OpenAPI).Document()
	if doc.Info.Version != "1.0.0" {
		t.Errorf("version %s", doc.Info.Version)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			template := strings.NewReplacer("{path}", "*", "{", ":", "}", "").Replace(path)
			documented = append(documented, method+" "+template)
			route := table.Find(method, template)
			var read []string
			for _, p := range append(slices.Clone(item.Parameters), op.Parameters...) {
				if p.Value.In == "query" && (p.Value.Name != "project" || slices.Contains(route.Query, "project")) {
					read = append(read, p.Value.Name)
				}
			}
			sort.Strings(read)
			if want := slices.Sorted(slices.Values(route.Query)); !slices.Equal(read, want) {
				t.Errorf("%s %s: the document has the parameters %q, the table %q", method, path, read, want)
			}
			for kind, scheme := range schemes {
				asked := false
				for _, requirement := range *op.Security {
					_, ok := requirement[scheme]
					asked = asked || ok
				}
				if asked != route.Takes(kind) {
					t.Errorf("%s %s: the document takes a %s %v, the table %v", method, path, kind, asked, route.Takes(kind))
				}
			}
		}
	}
	sort.Strings(built)
	sort.Strings(documented)
	if diff := cmp.Diff(built, documented); diff != "" {
		t.Errorf("built, but not documented (-), or the other way round (+):\n%s", diff)
	}
}
