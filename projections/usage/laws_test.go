package usage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

// drawn is a log of two organizations, and what their accounts are by it.
type drawn struct {
	projectiontest.Log
	want map[uuid.UUID]metering.Ledger
	used map[string]usage.Used // by project and month
}

func draw(t *rapid.T) *drawn {
	d := &drawn{want: map[uuid.UUID]metering.Ledger{}, used: map[string]usage.Used{}}
	months := []string{"2026-10", "2026-11", "2026-12"}
	d.Append(stream.Registry, &registry.LogOpened{LogID: id("log"), OpenedAt: noon})
	for o := range 2 {
		organizationID := id(fmt.Sprint("organization ", o))
		d.want[organizationID] = metering.Ledger{Granted: map[string]metering.Granted{}, Charged: map[string]int64{}}
		d.Append(stream.Registry, &registry.OrganizationCreated{OrganizationID: organizationID})
		for p := range 2 {
			d.Append(stream.Registry, &registry.ProjectCreated{OrganizationID: organizationID, ProjectID: id(fmt.Sprint(o, p))})
		}
	}
	for n := range rapid.IntRange(0, 40).Draw(t, "steps") {
		o := rapid.IntRange(0, 1).Draw(t, "organization")
		organizationID, month := id(fmt.Sprint("organization ", o)), rapid.SampledFrom(months).Draw(t, "month")
		name := stream.Name(stream.Organization, organizationID)
		l := d.want[organizationID]
		tenths := rapid.Int64Range(1, 100).Draw(t, "tenths")
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0:
			plan := rapid.SampledFrom([]metering.Plan{metering.SelfHosted, metering.Flex}).Draw(t, "plan")
			d.Append(name,
				&organization.PlanSet{OrganizationID: organizationID, Plan: plan, Month: month, ChargedTenths: tenths, SetAt: noon})
			l.Plans = append(l.Plans, metering.PlanChange{Plan: plan, Month: month, ChargedTenths: tenths})
		case 1:
			d.Append(name, &organization.CreditsGranted{
				OrganizationID: organizationID,
				Kind:           metering.Starting,
				Tenths:         tenths,
				Month:          month,
				GrantedAt:      noon,
			})
			granted := l.Granted[month]
			granted.StartingTenths += tenths
			l.Granted[month] = granted
		case 2:
			d.Append(name, &organization.CreditsGranted{
				OrganizationID: organizationID,
				Kind:           metering.Bought,
				Tenths:         -tenths,
				Month:          month,
				GrantedAt:      noon,
			})
			granted := l.Granted[month]
			granted.BoughtTenths -= tenths
			l.Granted[month] = granted
		default:
			project := id(fmt.Sprint(o, rapid.IntRange(0, 1).Draw(t, "project")))
			events := rapid.Int64Range(0, 100).Draw(t, "events")
			d.Append(stream.UsageName(project, month), &metering.Charged{
				ProjectID: project, OrganizationID: organizationID, FlushID: id(fmt.Sprint("flush ", n)), Month: month,
				Recalls: int64(n), RecallTenths: tenths, WebhookEvents: events, WebhookTenths: 2 * events, At: noon,
			})
			l.Charged[month] += tenths + 2*events
			u := d.used[project.String()+month]
			d.used[project.String()+month] = usage.Used{
				Recalls: u.Recalls + int64(n), WebhookEvents: u.WebhookEvents + events,
				CreditTenths: u.CreditTenths + tenths + 2*events,
			}
		}
		d.want[organizationID] = l
	}
	return d
}

func TestProjector_PagesOfAnySize(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, usage.New())
	rapid.Check(tt, func(t *rapid.T) {
		d := draw(t)
		rows := func(pages [][]eventstore.DecodedEvent) map[string][]string {
			dump, err := projectiontest.Rows(tt.Context(), db, usage.New(), pages)
			if err != nil {
				t.Fatal(err)
			}
			return dump
		}
		want := rows(slices.Collect(slices.Chunk(d.Facts, 1)))
		pages := projectiontest.Cut(t, d.Facts)
		if diff := cmp.Diff(want, rows(pages)); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		again := slices.Insert(slices.Clone(pages), len(pages), pages[rapid.IntRange(0, len(pages)-1).Draw(t, "again"):]...)
		if diff := cmp.Diff(want, rows(again)); diff != "" {
			t.Fatalf("pages that came again changed rows (-once +again):\n%s", diff)
		}
	})
}

func TestAccount_MatchesTheLog(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	projectiontest.Make(tt, db, usage.New())
	q := usage.Queries{DB: db, PlanTerms: metering.DefaultPlanTerms()}
	rapid.Check(tt, func(t *rapid.T) {
		d := draw(t)
		projectiontest.Empty(tt, db, usage.New())
		projectiontest.Apply(tt, db, usage.New(), d.Facts...)
		for organizationID, want := range d.want {
			for _, month := range []string{"2026-10", "2026-11", "2027-01"} {
				a, err := q.Account(tt.Context(), organizationID, month)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, a.Ledger); diff != "" {
					t.Fatalf("ledger (-want +got):\n%s", diff)
				}
				for project, used := range a.Projects {
					if used != d.used[project.String()+month] {
						t.Fatalf("project %s used %+v in %s, want %+v", project, used, month, d.used[project.String()+month])
					}
				}
				if a.ChargedTenths() != want.Charged[month] {
					t.Fatalf("%d charged in %s", a.ChargedTenths(), month)
				}
			}
		}
	})
}

// The flushes that are remembered are the newest of each stream.
func TestProjector_RetainsNewestFlushes(t *testing.T) {
	db := pgtest.Database(t)
	projectiontest.Make(t, db, usage.New())
	var log projectiontest.Log
	const many = 300
	for n := range many {
		log.Append(stream.UsageName(id("project"), "2026-11"),
			&metering.Charged{ProjectID: id("project"), FlushID: id(fmt.Sprint(n)), Month: "2026-11", Recalls: 1})
	}
	log.Append(stream.UsageName(id("other"), "2026-11"),
		&metering.Charged{ProjectID: id("other"), FlushID: id("first"), Month: "2026-11", Recalls: 1})
	for _, page := range slices.Collect(slices.Chunk(log.Facts, 70)) {
		projectiontest.Apply(t, db, usage.New(), page...)
	}
	var flushed, oldest, other, recalls int
	if err := db.QueryRow(t.Context(), `select count(*), min(revision), (select count(*) from usage.flushes where project_id = $2),
		(select recalls from usage.charges where project_id = $1) from usage.flushes where project_id = $1`, id("project"), id("other")).Scan(&flushed, &oldest, &other, &recalls); err != nil {
		t.Fatal(err)
	}
	if flushed != 256 || oldest != many-256 || other != 1 || recalls != many {
		t.Errorf("%d kept from %d, %d of another stream, %d recalls", flushed, oldest, other, recalls)
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// BenchmarkAccount reads the account of an organization whose projects used something in each month
// of two years.
func BenchmarkAccount(b *testing.B) {
	for _, projects := range []int{3, 20, 1000} {
		b.Run(fmt.Sprint(projects, " projects"), func(b *testing.B) {
			db := pgtest.Database(b)
			projectiontest.Make(b, db, datapoints.New(nil))
			projectiontest.Make(b, db, usage.New())
			organization := uuid.New()
			for _, sql := range []string{
				`insert into usage.projects select gen_random_uuid(), $1::uuid from generate_series(1, $2)`,
				`insert into datapoints.month_usage select p.project_id, to_char(date '2024-12-01' + m * interval '1 month', 'YYYY-MM'), 5, 50
					from usage.projects p, generate_series(0, 23) m where organization_id = $1 and $2 > 0`,
				`insert into usage.charges select project_id, month, $1::uuid, 5, 5, 1 from datapoints.month_usage where $2 > 0`,
			} {
				if _, err := db.Exec(b.Context(), sql, organization, projects); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := db.Exec(b.Context(), `analyze`); err != nil {
				b.Fatal(err)
			}
			q := usage.Queries{DB: db, PlanTerms: metering.DefaultPlanTerms()}
			for b.Loop() {
				if a, err := q.Account(b.Context(), organization, "2026-11"); err != nil || len(a.Projects) != projects {
					b.Fatal(len(a.Projects), err)
				}
			}
		})
	}
}
