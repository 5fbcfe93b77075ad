package datapoints

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/unnest"
)

const (
	addReadiness = `insert into readiness as r (project_id, raw, comprehension, failed)
		select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
		on conflict (project_id) do update set raw = r.raw + excluded.raw, comprehension = r.comprehension + excluded.comprehension,
			failed = r.failed + excluded.failed`
	addUsage = `insert into month_usage as u (project_id, month, ingestions, credit_tenths)
		select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[])
		on conflict (project_id, month) do update set ingestions = u.ingestions + excluded.ingestions,
			credit_tenths = u.credit_tenths + excluded.credit_tenths`
)

// projectMonth is what a row of table month_usage is about.
type projectMonth struct {
	project uuid.UUID
	month   string
}

// countSends adds what the page changed about sends to the counters of their projects. A project, and a month of it, has a row
// from its first send on, whatever that comes to.
func (p *page) countSends(b *pgx.Batch) {
	ready, used := map[uuid.UUID]readiness{}, map[projectMonth]charges{}
	for _, s := range p.sends {
		if !s.dirty {
			continue
		}
		brought := s.known && s.stored != inSends
		if now := s.readiness(); brought || now != s.before {
			change := ready[s.project]
			change.add(now, +1)
			change.add(s.before, -1)
			ready[s.project] = change
		}
		if brought || s.charges != s.charged {
			key := projectMonth{s.project, s.month}
			change := used[key]
			change.ingestions += s.ingestions - s.charged.ingestions
			change.creditTenths += s.creditTenths - s.charged.creditTenths
			used[key] = change
		}
	}
	if len(ready) > 0 {
		projects := unnest.Keys(ready)
		b.Queue(addReadiness, projects,
			unnest.Column(projects, func(id [16]byte) int64 { return ready[id].raw }),
			unnest.Column(projects, func(id [16]byte) int64 { return ready[id].comprehension }),
			unnest.Column(projects, func(id [16]byte) int64 { return ready[id].failed }))
	}
	if len(used) > 0 {
		months := make([]projectMonth, 0, len(used))
		for key := range used {
			months = append(months, key)
		}
		b.Queue(addUsage,
			unnest.IDs(months, func(m projectMonth) uuid.UUID { return m.project }),
			unnest.Column(months, func(m projectMonth) string { return m.month }),
			unnest.Column(months, func(m projectMonth) int64 { return used[m].ingestions }),
			unnest.Column(months, func(m projectMonth) int64 { return used[m].creditTenths }))
	}
}
