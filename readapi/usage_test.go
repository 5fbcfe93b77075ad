package readapi_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/usage"
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
