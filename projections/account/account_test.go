package account_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	end  = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
)

// fake is what the projections have about one organization.
type fake struct {
	organization access.Organization
	projects     []access.Project
	account      usage.Account
	counts       map[uuid.UUID]datapoints.Counts
	headErr      error
	waited       []string
}

func (f *fake) OrganizationByID(context.Context, uuid.UUID) (access.Organization, bool, error) {
	return f.organization, true, nil
}

func (f *fake) Projects(context.Context, uuid.UUID) ([]access.Project, error) {
	return slices.Clone(f.projects), nil
}

func (f *fake) ProjectsIn(context.Context, replica.Snapshot, uuid.UUID) ([]access.Project, error) {
	return nil, errors.New("there is no replica")
}

func (f *fake) Counts(context.Context, []uuid.UUID, string) (map[uuid.UUID]datapoints.Counts, error) {
	return f.counts, nil
}

func (f *fake) CountsIn(
	context.Context, replica.Snapshot, []uuid.UUID, string,
) (map[uuid.UUID]datapoints.Counts, error) {
	return nil, errors.New("there is no replica")
}

func (f *fake) Account(context.Context, uuid.UUID, string) (usage.Account, error) {
	return f.account, nil
}

func (f *fake) Wait(_ context.Context, position eventstore.Position, projections ...string) error {
	if position != 7 {
		return errors.New("another position")
	}
	f.waited = projections
	return nil
}

func (f *fake) queries() account.Queries {
	return account.Queries{
		Organizations: f, DataPoints: f, Charges: f, PlanTerms: metering.DefaultPlanTerms(), Waiter: f,
		Head: func(context.Context) (eventstore.Position, error) { return 7, f.headErr },
		Now:  func() time.Time { return noon },
	}
}

func ids(n int) (list []uuid.UUID) {
	for i := range n {
		list = append(list, uuid.UUID{15: byte(i + 1)})
	}
	return list
}

// three is an organization with three projects, of which the last is archived.
func three(plan metering.Plan) *fake {
	id, month := ids(3), metering.Month(noon)
	project := func(n int, archived bool) access.Project {
		return access.Project{Project: auth.Project{ID: id[n], Slug: string(rune('a' + n))}, Archived: archived}
	}
	return &fake{
		projects: []access.Project{project(0, false), project(1, false), project(2, true)},
		account: usage.Account{
			Month: month,
			Ledger: metering.Ledger{
				Plans:   []metering.PlanChange{{Plan: plan, Month: month}},
				Granted: map[string]metering.Granted{month: {BoughtTenths: 1000}}, Charged: map[string]int64{month: 400},
			},
			Projects: map[uuid.UUID]usage.Used{id[0]: {CreditTenths: 100, Ingestions: 9}, id[1]: {CreditTenths: 300}},
		},
		counts: map[uuid.UUID]datapoints.Counts{id[0]: {Live: 2, Memories: 3}},
	}
}

func keyOf(n int) auth.Principal {
	return auth.Principal{Kind: auth.ProjectKey, Project: auth.Project{ID: ids(3)[n]}}
}

func TestRoom_LeastOfBalanceAndCaps(t *testing.T) {
	for _, c := range []struct {
		name   string
		plan   metering.Plan
		change func(*fake)
		want   account.Room
	}{
		{"nothing binds", metering.SelfHosted, func(*fake) {}, account.Room{}},
		{
			"balance", metering.PayAsYouGo, func(*fake) {},
			account.Room{Metered: true, LeftTenths: new(int64(600)), CreditTenths: new(int64(600)), ResetsAt: &end},
		},
		{
			"spend cap", metering.PayAsYouGo, func(f *fake) { f.organization.SpendCapTenths = new(int64(450)) },
			account.Room{Metered: true, LeftTenths: new(int64(600)), CreditTenths: new(int64(50)), ResetsAt: &end},
		},
		{
			"credit cap", metering.PayAsYouGo, func(f *fake) { f.projects[0].CreditCapTenths = new(int64(101)) },
			account.Room{
				Metered: true, LeftTenths: new(int64(600)), ProjectCapLeftTenths: new(int64(1)), CreditTenths: new(int64(1)),
				ResetsAt: &end,
			},
		},
		{
			"credit cap that is passed, without metering", metering.SelfHosted,
			func(f *fake) { f.projects[0].CreditCapTenths = new(int64(7)) },
			account.Room{ProjectCapLeftTenths: new(int64(0)), CreditTenths: new(int64(0)), ResetsAt: &end},
		},
		{
			"ingestion cap", metering.SelfHosted, func(f *fake) { f.projects[0].IngestionCap = new(int64(10)) },
			account.Room{Points: new(int64(1)), ResetsAt: &end},
		},
		{
			"caps of another project", metering.SelfHosted,
			func(f *fake) {
				f.projects[1].IngestionCap, f.projects[1].CreditCapTenths = new(int64(10)), new(int64(1))
			},
			account.Room{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := three(c.plan)
			c.change(f)
			got, err := f.queries().Room(t.Context(), keyOf(0), noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{access.Name, datapoints.Name, usage.Name}, f.waited); diff != "" {
				t.Errorf("waited for %s", diff)
			}
		})
	}
}

// A management key sees the live projects, the highest charges first, and a project key its own.
func TestUsage_VisibleProjects(t *testing.T) {
	f := three(metering.SelfHosted)
	for key, want := range map[auth.Principal]string{{Kind: auth.ManagementKey}: "ba", keyOf(0): "a", keyOf(2): "c"} {
		u, err := f.queries().Usage(t.Context(), key, noon)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range u.Projects {
			got += p.Slug
			if p.ChargedTenths != nil || u.Metered() || u.Month.ResetsAt != nil {
				t.Errorf("%s is charged without metering", p.Slug)
			}
		}
		if got != want {
			t.Errorf("it sees %s, want %s", got, want)
		}
	}
	f.headErr = errors.New("no store")
	_, err := f.queries().Usage(t.Context(), keyOf(0), noon)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Code != fault.CodeServiceUnavailable {
		t.Errorf("without the head of the log: %v", err)
	}
}

func TestProjects_Counted(t *testing.T) {
	found, err := three(metering.PayAsYouGo).queries().Projects(t.Context(), uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 3 || !found[2].Archived || found[0].MemoryCount != 5 || *found[1].ChargedTenths != 300 {
		t.Errorf("%+v", found)
	}
}
