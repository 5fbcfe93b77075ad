package metering_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
)

func limit(n int64) *int64 { return &n }

func TestRefuse(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	all := metering.Caps{
		Plan:            metering.Flex,
		SpendCapTenths:  limit(500),
		IngestionCap:    limit(10),
		CreditCapTenths: limit(300),
	}
	room := metering.Used{Ingestions: 8, ProjectTenths: 280, OrganizationTenths: 480, LeftTenths: 20}
	for name, c := range map[string]struct {
		limits metering.Caps
		change func(*metering.Used)
		code   string
		data   string
	}{
		"all of it fits":          {limits: all},
		"one data point too many": {all, func(u *metering.Used) { u.Ingestions++ }, fault.CodeProjectCapReached, `{"cap":"ingestion","limit":10,"resetsAt":"2027-01-01T00:00:00Z","used":9}`},
		"a tenth over the project's cap": {
			all, func(u *metering.Used) { u.ProjectTenths++ }, fault.CodeProjectCapReached,
			`{"cap":"credit","limit":30,"resetsAt":"2027-01-01T00:00:00Z","used":28.1}`,
		},
		"a tenth over the spend cap": {
			all, func(u *metering.Used) { u.OrganizationTenths++ }, fault.CodeSpendCapReached, `{"cap":50,"resetsAt":"2027-01-01T00:00:00Z","spent":48.1}`,
		},
		"a tenth short": {
			all, func(u *metering.Used) { u.LeftTenths-- }, fault.CodeOutOfCredits, `{"creditsLeft":1.9,"creditsNeeded":2,"resetsOn":null}`,
		},
		"the project's caps come first": {all, func(u *metering.Used) { *u = metering.Used{Ingestions: 9, ProjectTenths: 300, OrganizationTenths: 500} }, fault.CodeProjectCapReached, ""},
		"then the spend cap":            {all, func(u *metering.Used) { u.OrganizationTenths, u.LeftTenths = 500, 0 }, fault.CodeSpendCapReached, ""},
		"nothing left where nothing is metered": {
			metering.Caps{Plan: metering.SelfHosted, SpendCapTenths: limit(500)}, func(u *metering.Used) { u.LeftTenths = -1000 }, "", "",
		},
		"caps bind where nothing is metered": {metering.Caps{IngestionCap: limit(10)}, func(u *metering.Used) { u.Ingestions = 10 }, fault.CodeProjectCapReached, ""},
		"a cap of nothing":                   {metering.Caps{IngestionCap: limit(0)}, func(u *metering.Used) { u.Ingestions = 0 }, fault.CodeProjectCapReached, ""},
		"no caps":                            {metering.Caps{}, func(u *metering.Used) { u.Ingestions, u.OrganizationTenths = 1<<40, 1<<40 }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			used := room
			if c.change != nil {
				c.change(&used)
			}
			err := metering.Reservation{
				Limits:       c.limits,
				At:           at,
				Items:        2,
				CreditTenths: 20,
			}.Refuse(used, metering.DefaultPlanTerms()[c.limits.Plan])
			if c.code == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Code != c.code {
				t.Fatalf("error %v, want %s", err, c.code)
			}
			data, err := json.Marshal(f.Data)
			if err != nil || c.data != "" && string(data) != c.data {
				t.Errorf("data %s, %v, want %s", data, err, c.data)
			}
		})
	}
}

// A plan with an allowance reports when the next one is due.
func TestCredits_Renewed(t *testing.T) {
	r := metering.Reservation{
		Limits:       metering.Caps{Plan: metering.Flex},
		At:           time.Date(2026, 11, 30, 23, 30, 0, 0, time.FixedZone("", -3600)),
		Items:        1,
		CreditTenths: 10,
	}
	f, ok := errors.AsType[*fault.Error](r.Refuse(metering.Used{}, metering.Terms{AllowanceTenths: 1}))
	if !ok {
		t.Fatal("not refused")
	}
	// Half an hour before midnight an hour west of Greenwich is December already.
	if on, ok := f.Data["resetsOn"].(*string); !ok || on == nil || *on != "2027-01-01" {
		t.Errorf("data %v", f.Data)
	}
}

func TestBind(t *testing.T) {
	for name, c := range map[string]struct {
		limits metering.Caps
		want   bool
	}{
		"nothing":        {metering.Caps{}, false},
		"self-hosted":    {metering.Caps{Plan: metering.SelfHosted}, false},
		"a plan":         {metering.Caps{Plan: metering.PayAsYouGo}, true},
		"a spend cap":    {metering.Caps{Plan: metering.SelfHosted, SpendCapTenths: limit(0)}, true},
		"ingestions":     {metering.Caps{Plan: metering.SelfHosted, IngestionCap: limit(0)}, true},
		"project credit": {metering.Caps{Plan: metering.SelfHosted, CreditCapTenths: limit(0)}, true},
	} {
		if got := c.limits.Bind(); got != c.want {
			t.Errorf("%s binds: %v", name, got)
		}
	}
}

func TestCredits(t *testing.T) {
	for tenths, want := range map[int64]string{0: "0", 1: "0.1", 10: "1", 125: "12.5", -5: "-0.5", -25: "-2.5", 1_500_000: "150000"} {
		if got := metering.Credits(tenths); got.String() != want {
			t.Errorf("Credits(%d) = %s, want %s", tenths, got, want)
		}
	}
}
