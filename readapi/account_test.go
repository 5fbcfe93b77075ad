package readapi_test

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/readapi"
)

var november = account.Month{
	From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	ResetsAt: ptr(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)),
}

// usedBy is a project that used something.
func usedBy(slug string, used usage.Used, creditCap, ingestionCap *int64) account.Project {
	return account.Project{
		Project: access.Project{Project: auth.Project{Slug: slug}, CreditCapTenths: creditCap, IngestionCap: ingestionCap},
		Used:    used,
	}
}

func TestUsage_ProjectKey(t *testing.T) {
	project := usedBy("default", usage.Used{CreditTenths: 1, Recalls: 1}, ptr(int64(50)), ptr(int64(3)))
	project.ChargedTenths = ptr(int64(1))
	f := &fake{usage: account.Usage{
		Month: november, SpendCapTenths: ptr(int64(70)), Projects: []account.Project{project},
		Balance: metering.Balance{Plan: metering.PayAsYouGo, IncludedTenths: 150_000, SpentTenths: 1},
	}}
	serve(t, f).Call(http.MethodGet, "/api/v1/usage", apitest.ProjectKey, "").Want(t, 200,
		`{"month":{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","resetsAt":"2026-12-01T00:00:00Z"},`+
			`"balance":{"left":14999.9,"included":15000,"bought":0,"rolledOver":0,"spent":0.1},`+
			`"project":{"slug":"default","credits":0.1,"ingestions":0,"recalls":1,"creditCap":5,"creditCapLeft":4.9,"ingestionCap":3,"ingestionCapLeft":3},"metered":true}`)
	if f.project != apitest.Principal.Project || f.organization != apitest.Principal.OrganizationID {
		t.Errorf("asked for %v of %s", f.project, f.organization)
	}
}

func TestUsage_ManagementKey(t *testing.T) {
	month := november
	month.ResetsAt = nil
	f := &fake{usage: account.Usage{
		Month: month, Balance: metering.Balance{Plan: metering.SelfHosted, IncludedTenths: 5}, Projects: []account.Project{
			usedBy("one", usage.Used{Ingestions: 2, CreditTenths: 9}, nil, nil), usedBy("two", usage.Used{}, nil, nil),
		},
	}}
	api := serve(t, f)
	const nothing = `"credits":null,"ingestions":0,"recalls":0,"creditCap":null,"creditCapLeft":null,"ingestionCap":null,"ingestionCapLeft":null}`
	api.Call(http.MethodGet, "/api/v1/usage", apitest.ManagementKey, "").Want(t, 200,
		`{"month":{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","resetsAt":null},`+
			`"balance":{"left":null,"included":null,"bought":null,"rolledOver":null,"spent":null,"spendCap":null},`+
			`"projects":[{"slug":"one","credits":null,"ingestions":2,`, `{"slug":"two",`+nothing+`],"metered":false}`)
	if (f.project != auth.Project{}) || f.organization != apitest.Manager.OrganizationID {
		t.Errorf("asked for %v of %s", f.project, f.organization)
	}
	f.usage.Projects, f.usage.SpendCapTenths = nil, ptr(int64(5))
	api.Call(http.MethodGet, "/api/v1/usage", apitest.ManagementKey, "").Want(t, 200, `"spent":null,"spendCap":0.5},"projects":[],"metered":false}`)
}

func TestUsage_Refusals(t *testing.T) {
	f := &fake{err: fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")}
	api := serve(t, f)
	for _, key := range []string{apitest.ProjectKey, apitest.ManagementKey} {
		api.Call(http.MethodGet, "/api/v1/usage", key, "").Want(t, 503, `"code":"service-unavailable"`)
	}
	f.err = errors.New("no database")
	api.Call(http.MethodGet, "/api/v1/usage", apitest.ProjectKey, "").Want(t, 500, `"code":"internal"`)
	api.Call(http.MethodGet, "/api/v1/usage", apitest.UnknownManagement, "").Want(t, 401, `"code":"unauthorized"`)
	api.Call(http.MethodGet, "/api/v1/usage", apitest.ArchivedKey, "").Want(t, 403, `"code":"project-archived"`)
}

const tea = `{"query":"tea","identity":"ana"`

// The budget is lowered to the ceiling of the plan, level or tokens, and never raised to it.
func TestRecall_BudgetCeilingOfThePlan(t *testing.T) {
	for _, c := range []struct {
		ceiling    int
		more       string
		wantBudget int
	}{
		{8000, ``, 8000},
		{8000, `,"level":"low"`, 8000},
		{8000, `,"level":"medium"`, 8000},
		{8000, `,"level":"extra-high"`, 8000},
		{8000, `,"maxTokens":7999`, 7999},
		{8000, `,"maxTokens":8000`, 8000},
		{8000, `,"maxTokens":8001`, 8000},
		{32000, `,"level":"extra-high"`, 32000},
		{32000, `,"maxTokens":32001`, 32000},
		{1, `,"level":"low"`, 1},
	} {
		f := &fake{
			page:     recall.Response{AsOf: instant(9), Results: []recall.Result{}},
			ceilings: map[metering.Plan]int{"": c.ceiling},
		}
		serve(t, f).Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, tea+c.more+`}`).Want(t, 200)
		if f.query.Budget != c.wantBudget {
			t.Errorf("ceiling %d%s: budget %d, want %d", c.ceiling, c.more, f.query.Budget, c.wantBudget)
		}
	}
}

func TestRecall_ChargedToItsCaller(t *testing.T) {
	f := &fake{page: recall.Response{AsOf: instant(9), Results: []recall.Result{}}}
	api := serve(t, f)
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, `{"query":"tea"}`).Want(t, 400, `"code":"identity-required"`)
	if f.charged != nil {
		t.Error("a call that cannot be read is charged")
	}
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, tea+`}`).Want(t, 200)
	if diff := cmp.Diff([]string{apitest.Principal.OrganizationID.String() + " ana false"},
		f.charged); diff != "" || f.project != apitest.Principal.Project {
		t.Errorf("charged %s", diff)
	}
}

func TestRecall_RefusedByThePlan(t *testing.T) {
	for _, c := range []struct {
		refusal *fault.Error
		status  int
		says    string
	}{
		{
			fault.New(fault.PaymentRequired, fault.CodeOutOfCredits, "0 credits are left").With("creditsLeft",
				metering.Credits(0)).With("creditsNeeded", metering.Credits(1)), 402,
			`"data":{"creditsLeft":0,"creditsNeeded":0.1}`,
		},
		{
			fault.New(fault.LimitReached, fault.CodeSpendCapReached, "spent").With("cap",
				metering.Credits(5)).With("spent", metering.Credits(5)).With("resetsAt", november.To), 429,
			`"data":{"cap":0.5,"resetsAt":"2026-12-01T00:00:00Z","spent":0.5}`,
		},
		{fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "not counted"), 503, `"code":"service-unavailable"`},
	} {
		f := &fake{refusal: c.refusal}
		serve(t, f).Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, tea+`}`).Want(t, c.status, `"code":"`+c.refusal.Code+`"`, c.says)
		if f.calls != 0 {
			t.Errorf("%s: it searched", c.refusal.Code)
		}
	}
}

// fakeTrees has a tree of one organization. A tile of it is its path.
type fakeTrees struct {
	tree  audit.Tree
	tiles []tileName
	err   error
}

type tileName struct {
	level int
	n     int64
	width int
}

func (f *fakeTrees) Tree(_ context.Context, organization uuid.UUID) (audit.Tree, bool, error) {
	return f.tree, organization == f.tree.Organization, f.err
}

func (f *fakeTrees) Tile(
	_ context.Context, organization uuid.UUID, level int, n int64, width int,
) ([]byte, bool, error) {
	f.tiles = append(f.tiles, tileName{level, n, width})
	return []byte{0, 255, byte(width)}, organization == f.tree.Organization && n < 100_000, f.err
}

func serveAudit(t *testing.T, published bool, a readapi.Audit) *apitest.Client {
	t.Helper()
	cfg := apitest.EdgeConfig()
	cfg.Published = published
	e := httpx.New(cfg)
	readapi.Register(e, readapi.Deps{Audit: a})
	return apitest.Start(t, readapi.OpenAPI, e)
}

const audits = "/api/v1/audit/"

var ownAudit = audits + apitest.Manager.OrganizationID.String()

func newTrees() *fakeTrees {
	return &fakeTrees{tree: audit.Tree{
		Organization: apitest.Manager.OrganizationID, Checkpoint: "annals/x/y/1\n42\nAAAA\n\n— annals sig\n",
		Verifiers: []string{"annals/x/y/1+1+A", "annals/x/y/1+2+B"},
	}}
}

func TestAudit_CheckpointAndPolicy(t *testing.T) {
	f := newTrees()
	api := serveAudit(t, false, readapi.Audit{Trees: f, Policy: "witness w w+1+C\nquorum w\n"})
	got := api.Call(http.MethodGet, ownAudit+"/checkpoint", apitest.ManagementKey, "")
	if got.Status != 200 || got.Body != f.tree.Checkpoint || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d %q of %q", got.Status, got.Body, got.Header.Get("Content-Type"))
	}
	if got.Header.Get("Cache-Control") != "no-store" {
		t.Error("a checkpoint may be cached")
	}
	got = api.Call(http.MethodGet, ownAudit+"/policy", apitest.ManagementKey, "")
	if want := "log annals/x/y/1+1+A\nlog annals/x/y/1+2+B\nquorum none\n"; got.Status != 200 || got.Body != want {
		t.Errorf("%d %q, want %q", got.Status, got.Body, want)
	}
	f.tree.Cosigned = f.tree.Checkpoint
	api.Call(http.MethodGet, ownAudit+"/policy", apitest.ManagementKey, "").Want(t, 200, "B\nwitness w w+1+C\nquorum w\n")
	f.tree.Checkpoint, f.tree.Verifiers = "", nil
	api.Call(http.MethodGet, ownAudit+"/checkpoint", apitest.ManagementKey, "").Want(t, 404, "no checkpoint yet")
	api.Call(http.MethodGet, ownAudit+"/policy", apitest.ManagementKey, "").Want(t, 404, "no key yet")
	f.err = errors.New("no database")
	api.Call(http.MethodGet, ownAudit+"/checkpoint", apitest.ManagementKey, "").Want(t, 500)
}

// Another organization, one that nobody has and the deployment are one answer.
func TestAudit_OtherOrganization(t *testing.T) {
	f := newTrees()
	for _, published := range []bool{false, true} {
		api := serveAudit(t, published, readapi.Audit{Trees: f})
		other := uuid.New()
		for _, of := range []string{other.String(), uuid.Nil.String(), "x"} {
			for _, path := range []string{"/checkpoint", "/policy", "/tile/0/000", "/proofs?ingestion=x"} {
				f.tree.Organization = other
				got := api.Call(http.MethodGet, audits+of+path, apitest.ManagementKey, "")
				got.Want(t, 404, `"code":"not-found"`, "there is no audit log of this organization")
			}
		}
		if f.tree.Organization = uuid.Nil; published { // that of the deployment
			api.Call(http.MethodGet, audits+uuid.Nil.String()+"/checkpoint", "", "").Want(t, 404)
		}
	}
}

func TestAudit_Tiles(t *testing.T) {
	const forever = "private, max-age=31536000, immutable"
	for path, want := range map[string]struct {
		is    tileName
		cache string
	}{
		"0/000":                 {tileName{0, 0, 256}, forever},
		"1/x001/067":            {tileName{1, 1067, 256}, forever},
		"0/x001/067.p/12":       {tileName{0, 1067, 12}, "no-store"},
		"0/x001%2F067.p%2F12":   {tileName{0, 1067, 12}, "no-store"},
		"entries/000.p/255":     {tileName{-1, 0, 255}, "no-store"},
		"entries/x001/234":      {tileName{-1, 1234, 256}, forever},
		"63/000.p/1":            {tileName{63, 0, 1}, "no-store"},
		"entries/x001/x234/567": {tileName{-1, 1234567, 256}, ""},
	} {
		f := newTrees()
		api := serveAudit(t, false, readapi.Audit{Trees: f})
		got := api.Call(http.MethodGet, ownAudit+"/tile/"+path, apitest.ManagementKey, "")
		if len(f.tiles) != 1 || f.tiles[0] != want.is {
			t.Errorf("%s asks for %v, want %v", path, f.tiles, want.is)
		}
		if want.cache == "" {
			got.Want(t, 404, "has no such tile")
			continue
		}
		if got.Status != 200 || got.Body != string([]byte{0, 255, byte(want.is.width)}) {
			t.Errorf("%s: %d %q", path, got.Status, got.Body)
		}
		if cache := got.Header.Get("Cache-Control"); cache != want.cache {
			t.Errorf("%s may be cached as %q, want %q", path, cache, want.cache)
		}
	}
}

func TestAudit_BadPathsOfTiles(t *testing.T) {
	f := newTrees()
	api := serveAudit(t, false, readapi.Audit{Trees: f})
	for _, path := range []string{
		"0/", "0/0", "0/0000", "0/x000/001", "00/000", "-1/000", "data/000", "entries/x067", "0/000.p/0", "0/000.p/256", "0/000.p/01",
		"0/000.p", "0/000/", "0//000", "0/000.p/1/2", "0/..%2f000", "0/%ff", "x/000", "+1/000", "0/x999/x999/x999/x999/x999/x999/x999/999",
	} {
		api.Call(http.MethodGet, ownAudit+"/tile/"+path, apitest.ManagementKey, "").Want(t, 400, `"code":"invalid-request"`)
	}
	if len(f.tiles) > 0 {
		t.Errorf("%v were asked for", f.tiles)
	}
	api.Call(http.MethodGet, ownAudit+"/tile/0", apitest.ManagementKey, "").Want(t, 404)
	api.Call(http.MethodPost, ownAudit+"/tile/0/000", apitest.ManagementKey, "").Want(t, 405)
}

func TestAudit_Keys(t *testing.T) {
	f := newTrees()
	api := serveAudit(t, false, readapi.Audit{Trees: f})
	for _, path := range []string{"/checkpoint", "/policy", "/tile/0/000", "/proofs?ingestion=x"} {
		api.Call(http.MethodGet, ownAudit+path, "", "").Want(t, 401, "missing-api-key")
		api.Call(http.MethodGet, ownAudit+path, apitest.ProjectKey, "").Want(t, 401, `"code":"unauthorized"`)
	}
	api = serveAudit(t, true, readapi.Audit{Trees: f})
	for _, path := range []string{"/checkpoint", "/policy", "/tile/0/000"} {
		got := api.Call(http.MethodGet, ownAudit+path, "", "")
		got.Want(t, 200)
		if cache := got.Header.Get("Cache-Control"); strings.HasPrefix(cache, "public") != strings.HasPrefix(path, "/tile") {
			t.Errorf("%s may be cached as %q", path, cache)
		}
		api.Call(http.MethodGet, ownAudit+path, apitest.UnknownManagement, "").Want(t, 401, `"code":"unauthorized"`)
	}
	api.Call(http.MethodGet, ownAudit+"/proofs?ingestion=x", "", "").Want(t, 401, "missing-api-key")
	api.Call(http.MethodGet, "/api/v1/projects", "", "").Want(t, 401, "missing-api-key")
}

// Calls without a key count for their address.
func TestAudit_LimitWithoutAKey(t *testing.T) {
	cfg, caller := apitest.EdgeConfig(), auth.Principal{}
	cfg.Published = true
	cfg.Limit = func(p auth.Principal) (time.Duration, bool) {
		caller = p
		return time.Second, false
	}
	e := httpx.New(cfg)
	readapi.Register(e, readapi.Deps{Audit: readapi.Audit{Trees: newTrees()}})
	api := apitest.Start(t, readapi.OpenAPI, e)
	api.Call(http.MethodGet, ownAudit+"/checkpoint", "", "").Want(t, 429)
	if caller.Kind != "" || caller.OrganizationID == uuid.Nil || caller.OrganizationID == apitest.Manager.OrganizationID {
		t.Errorf("the caller is %+v", caller)
	}
	api.Call(http.MethodGet, ownAudit+"/checkpoint", apitest.ManagementKey, "").Want(t, 429)
	if caller.Kind != auth.ManagementKey || caller.OrganizationID != apitest.Manager.OrganizationID {
		t.Errorf("the caller is %+v", caller)
	}
}

func TestAudit_Proofs(t *testing.T) {
	var asked []readapi.ProofRequest
	var refusal error
	prove := func(_ context.Context, what readapi.ProofRequest) ([]zipped.File, error) {
		asked = append(asked, what)
		one, two := []byte("one"), []byte("two")
		return []zipped.File{{Name: "a.tlog-proof", Data: one}, {Name: "b.tlog-proof", Data: two}}, refusal
	}
	api := serveAudit(t, false, readapi.Audit{Prove: prove})
	call := func(query string) apitest.Response {
		return api.Call(http.MethodGet, ownAudit+"/proofs"+query, apitest.ManagementKey, "")
	}
	got := call("?source=a%2Fb&project=default")
	want := readapi.ProofRequest{Organization: apitest.Manager.OrganizationID, Project: "default", Kind: "source", ID: "a/b"}
	if len(asked) != 1 || asked[0] != want || got.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("asked for %v, answered %d %q", asked, got.Status, got.Header.Get("Content-Type"))
	}
	from, err := zip.NewReader(strings.NewReader(got.Body), int64(len(got.Body)))
	if err != nil || len(from.File) != 2 || from.File[1].Name != "b.tlog-proof" {
		t.Fatalf("%v, %v", from, err)
	}
	file, err := from.File[1].Open()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "two" {
		t.Errorf("%q, %v", text, err)
	}
	if again := call("?source=a%2Fb&project=default"); again.Body != got.Body {
		t.Error("the same proofs are other bytes")
	}
	asked = nil
	for _, query := range []string{"", "?source=", "?source=a&ingestion=b", "?source=a&source=b", "?project=default", "?deletoin=a"} {
		call(query).Want(t, 400, `"code":"invalid-request"`)
	}
	if len(asked) > 0 {
		t.Errorf("%v was asked for", asked)
	}
	refusal = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such thing")
	call("?request=a").Want(t, 404, "there is no such thing")
	refusal = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no checkpoint covers it yet")
	call("?request=a").Want(t, 503, "no checkpoint covers it yet")
	refusal = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "too many")
	call("?request=a").Want(t, 413, "too many")
}
