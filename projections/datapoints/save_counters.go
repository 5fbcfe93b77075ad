package datapoints

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
)

// Counters are added to, so that a page need not load them.
const (
	addReadiness = `insert into readiness as r (project_id, raw, comprehension, failed)
		select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
		on conflict (project_id) do update set raw = r.raw + excluded.raw,
			comprehension = r.comprehension + excluded.comprehension,
			failed = r.failed + excluded.failed`
	addUsage = `insert into month_usage as u (project_id, month, ingestions, credit_tenths)
		select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[])
		on conflict (project_id, month) do update set ingestions = u.ingestions + excluded.ingestions,
			credit_tenths = u.credit_tenths + excluded.credit_tenths`
)

// projectMonth is the key of a row of table month_usage.
type projectMonth struct {
	project uuid.UUID
	month   string
}

// countSends adds the changes of sends to the counters of their projects. A project gets a row from
// its first send on, also for zero.
func (f *fold) countSends(b *pgx.Batch) {
	ready, used := map[uuid.UUID]readiness{}, map[projectMonth]charges{}
	for _, s := range f.sends {
		if !s.dirty {
			continue
		}
		createsRevision := s.known && s.stored != inSends
		if now := s.readiness(); createsRevision || now != s.before {
			change := ready[s.Project]
			change.add(now, +1)
			change.add(s.before, -1)
			ready[s.Project] = change
		}
		if createsRevision || s.charges != s.charged {
			key := projectMonth{s.Project, s.Month}
			change := used[key]
			change.Ingestions += s.Ingestions - s.charged.Ingestions
			change.CreditTenths += s.CreditTenths - s.charged.CreditTenths
			used[key] = change
		}
	}
	if len(ready) > 0 {
		projects := pgarray.Keys(ready)
		b.Queue(addReadiness, projects,
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].raw }),
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].comprehension }),
			pgarray.Column(projects, func(id uuid.UUID) int64 { return ready[id].failed }))
	}
	if len(used) > 0 {
		months := make([]projectMonth, 0, len(used))
		for key := range used {
			months = append(months, key)
		}
		b.Queue(addUsage,
			pgarray.IDs(months, func(m projectMonth) uuid.UUID { return m.project }),
			pgarray.Column(months, func(m projectMonth) string { return m.month }),
			pgarray.Column(months, func(m projectMonth) int64 { return used[m].Ingestions }),
			pgarray.Column(months, func(m projectMonth) int64 { return used[m].CreditTenths }))
	}
}
