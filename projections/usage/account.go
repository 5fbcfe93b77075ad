package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/metering"
)

// Queries answers from the tables of this projection, of what data points cost, and of what is not in the log yet.
type Queries struct {
	DB     *pgxpool.Pool
	Tariff metering.Tariff
}

// Used is what a project used in a month.
type Used struct {
	Ingestions int64
	Recalls    int64
	// CreditTenths is the price of both.
	CreditTenths int64
}

// Account is what an organization has and used, in one snapshot.
type Account struct {
	Month  string
	Ledger metering.Ledger
	// Projects are those that used something in Month.
	Projects map[uuid.UUID]Used
}

// ChargedTenths is what all projects were charged in the month, metered or not.
func (a Account) ChargedTenths() int64 { return a.Ledger.Charged[a.Month] }

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// used is what the projects of organization $1 used, as rows (project_id, month, ingestions, recalls, credit_tenths). A send is a
// fact once datapoints has it; a recall counts in ops.charges until usage has the flush that takes it to the log.
const used = `
	select u.project_id, u.month, u.ingestions, 0::bigint as recalls, u.credit_tenths
		from usage.projects p join datapoints.month_usage u on u.project_id = p.project_id where p.organization_id = $1
	union all select c.project_id, c.month, 0, c.recalls, c.recall_tenths from usage.charges c where c.organization_id = $1
	union all select c.project_id, c.month, 0, c.recalls, c.recall_tenths from ops.charges c
		where c.organization_id = $1 and not exists (select from usage.flushes f where f.flush_id = c.flush_id)`

// reservedNone stands where an account is read without what is reserved.
const reservedNone = ``

// accountOf reads the account of an organization in one statement: under a lock that orders those who reserve, it sees each send and
// each recall exactly once, as a reservation or as a fact. reserved is "union all" and a select of more rows of used.
func accountOf(ctx context.Context, db querier, reserved string, organization uuid.UUID, month string) (Account, error) {
	a := Account{
		Month:    month,
		Ledger:   metering.Ledger{Granted: map[string]metering.Granted{}, Charged: map[string]int64{}},
		Projects: map[uuid.UUID]Used{},
	}
	rows, err := db.Query(ctx, `
		with used as (`+used+reserved+`)
		select 0 as part, revision, plan as kind, month, null::uuid as project, charged_tenths as tenths, 0::bigint, 0::bigint from usage.plans where organization_id = $1
		union all select 1, 0, kind, month, null, sum(tenths)::bigint, 0, 0 from usage.grants where organization_id = $1 group by kind, month
		union all select 2, 0, '', month, case when month = $2 then project_id end, sum(credit_tenths)::bigint, sum(ingestions)::bigint, sum(recalls)::bigint
			from used group by month, case when month = $2 then project_id end
		order by 1, 2`, organization, month)
	if err != nil {
		return Account{}, fmt.Errorf("read the account of an organization: %w", err)
	}
	var part int
	var revision int64
	var kind, in string
	var project *uuid.UUID
	var u Used
	_, err = pgx.ForEachRow(rows, []any{&part, &revision, &kind, &in, &project, &u.CreditTenths, &u.Ingestions, &u.Recalls}, func() error {
		switch part {
		case 0:
			a.Ledger.Plans = append(a.Ledger.Plans, metering.PlanChange{Plan: metering.Plan(kind), Month: in, ChargedTenths: u.CreditTenths})
		case 1:
			granted := a.Ledger.Granted[in]
			if metering.Grant(kind) == metering.Starting {
				granted.StartingTenths += u.CreditTenths
			} else {
				granted.BoughtTenths += u.CreditTenths
			}
			a.Ledger.Granted[in] = granted
		default:
			a.Ledger.Charged[in] += u.CreditTenths
			if project != nil {
				a.Projects[*project] = u
			}
		}
		return nil
	})
	if err != nil {
		return Account{}, fmt.Errorf("read the account of an organization: %w", err)
	}
	return a, nil
}

// Account reads the account of an organization in a month ("2006-01"), as far as the projections usage and datapoints are: wait for
// them where the answer must include what was answered before.
func (q Queries) Account(ctx context.Context, organization uuid.UUID, month string) (Account, error) {
	return accountOf(ctx, q.DB, reservedNone, organization, month)
}

// Charged is what all projects of an organization were charged in a month ("2006-01"), in tenths of a credit, metered or not.
func (q Queries) Charged(ctx context.Context, organization uuid.UUID, month string) (int64, error) {
	a, err := q.Account(ctx, organization, month)
	return a.ChargedTenths(), err
}

// Balance is the balance of an organization in the UTC month of an instant.
func (q Queries) Balance(ctx context.Context, organization uuid.UUID, at time.Time) (metering.Balance, error) {
	month := metering.Month(at)
	a, err := q.Account(ctx, organization, month)
	if err != nil {
		return metering.Balance{}, err
	}
	return a.Ledger.Balance(q.Tariff, month), nil
}
