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

// Queries reads the tables of this projection, the price of data points, and the counts that are
// not in the log yet.
type Queries struct {
	DB        *pgxpool.Pool
	PlanTerms metering.PlanTerms
}

// Used is what a project used in a month.
type Used struct {
	Ingestions int64
	Recalls    int64
	// WebhookEvents are those that webhooks received, whether or not they were ingested.
	WebhookEvents int64
	// CreditTenths is the price of all of them.
	CreditTenths int64
}

// Account is the balance and use of an organization, in one snapshot.
type Account struct {
	Month  string
	Ledger metering.Ledger
	// Projects are those that used something in Month.
	Projects map[uuid.UUID]Used
}

// ChargedTenths returns what all projects were charged in the month, metered or not.
func (a Account) ChargedTenths() int64 { return a.Ledger.Charged[a.Month] }

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// used selects what the projects of organization $1 used, as rows (project_id, month, ingestions,
// recalls, events, credit_tenths). A send counts once datapoints has it. A recall or a received event
// counts in ops.charges until usage has the flush that contains it.
const used = `
	select u.project_id, u.month, u.ingestions, 0::bigint as recalls, 0::bigint as events, u.credit_tenths
		from usage.projects p join datapoints.month_usage u on u.project_id = p.project_id where p.organization_id = $1
	union all select c.project_id, c.month, 0, c.recalls, c.webhook_events, c.recall_tenths + c.webhook_tenths
		from usage.charges c where c.organization_id = $1
	union all select c.project_id, c.month, 0, c.recalls, c.webhook_events, c.recall_tenths + c.webhook_tenths from ops.charges c
		where c.organization_id = $1 and not exists (select from usage.flushes f where f.flush_id = c.flush_id)`

// reserved selects the reservations of organization $1 for sends that datapoints does not have yet,
// as more rows of used. At most one of several tries of a send is stored.
const reserved = `
	union all select r.project_id, r.month, max(r.items), 0, 0, max(r.credit_tenths) from ops.reservations r
		where r.organization_id = $1 and not exists (select from datapoints.sends s where s.id = r.send_id)
		group by r.send_id, r.project_id, r.month`

// readAccount reads the account of an organization in one statement. Under the lock of the
// organization it counts each send, recall and received event exactly once, reserved or projected. more is
// "union all" and a select of more rows of used.
func readAccount(ctx context.Context, db querier, more string, organization uuid.UUID, month string) (Account, error) {
	a := Account{
		Month:    month,
		Ledger:   metering.Ledger{Granted: map[string]metering.Granted{}, Charged: map[string]int64{}},
		Projects: map[uuid.UUID]Used{},
	}
	rows, err := db.Query(ctx, `
		with used as (`+used+more+`)
		select 0 as part, revision, plan as kind, month, null::uuid as project, charged_tenths as tenths, 0::bigint, 0::bigint, 0::bigint from usage.plans where organization_id = $1
		union all select 1, 0, kind, month, null, sum(tenths)::bigint, 0, 0, 0 from usage.grants where organization_id = $1 group by kind, month
		union all select 2, 0, '', month, case when month = $2 then project_id end, sum(credit_tenths)::bigint, sum(ingestions)::bigint, sum(recalls)::bigint, sum(events)::bigint
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
	_, err = pgx.ForEachRow(
		rows,
		[]any{&part, &revision, &kind, &in, &project, &u.CreditTenths, &u.Ingestions, &u.Recalls, &u.WebhookEvents},
		func() error {
			switch part {
			case 0:
				a.Ledger.Plans = append(a.Ledger.Plans,
					metering.PlanChange{Plan: metering.Plan(kind), Month: in, ChargedTenths: u.CreditTenths})
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
		},
	)
	if err != nil {
		return Account{}, fmt.Errorf("read the account of an organization: %w", err)
	}
	return a, nil
}

// ReservedAccount reads the account of an organization in a month ("2006-01"), with reservations
// for sends that are not projected yet.
func ReservedAccount(ctx context.Context, tx pgx.Tx, organization uuid.UUID, month string) (Account, error) {
	return readAccount(ctx, tx, reserved, organization, month)
}

// Account reads the account of an organization in a month ("2006-01"). It includes what the
// projections usage and datapoints have applied: wait for them if it must include earlier calls.
func (q Queries) Account(ctx context.Context, organization uuid.UUID, month string) (Account, error) {
	return readAccount(ctx, q.DB, "", organization, month)
}

// Charged returns what all projects of an organization were charged in a month ("2006-01"), in
// tenths of a credit, metered or not.
func (q Queries) Charged(ctx context.Context, organization uuid.UUID, month string) (int64, error) {
	a, err := q.Account(ctx, organization, month)
	return a.ChargedTenths(), err
}

// Balance returns the balance of an organization in the UTC month of an instant.
func (q Queries) Balance(ctx context.Context, organization uuid.UUID, at time.Time) (metering.Balance, error) {
	month := metering.Month(at)
	a, err := q.Account(ctx, organization, month)
	if err != nil {
		return metering.Balance{}, err
	}
	return a.Ledger.Balance(q.PlanTerms, month), nil
}
