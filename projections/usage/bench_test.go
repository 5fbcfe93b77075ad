package usage_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

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
