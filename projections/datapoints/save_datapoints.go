package datapoints

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

const (
	deleteDataPoints = `delete from data_points where id = any($1::uuid[])`
	// deleteRevisions deletes the few revisions of each data point. The rest of one with more has a follow-up.
	deleteRevisions = `delete from revisions r using unnest($1::uuid[]) k (id) cross join lateral (
			select data_point, number from revisions where data_point = k.id order by number limit $2
		) d where r.data_point = d.data_point and r.number = d.number`
)

func (f *fold) saveDataPoints(b *pgx.Batch) {
	f.countDataPoints(b)
	if len(f.removed)+len(f.unlisted) > 0 {
		b.Queue(deleteDataPoints, slices.Concat(pgarray.Keys(f.removed), pgarray.Keys(f.unlisted)))
	}
	if len(f.removed) > 0 {
		b.Queue(deleteRevisions, pgarray.Keys(f.removed), f.most)
	}
	projections.QueueFollowUps(b, Name, slices.Collect(maps.Values(f.followUps)))
	dataPoints.Save(b, table.Filter(f.dataPoints, func(d *dataPointRow) bool { return d.dirty }))
	revisions.Insert(b, f.revisions)
	f.saveMovedAudiences(b)
}

// saveMovedAudiences writes the moves of the page. It runs after its new revisions are inserted.
func (f *fold) saveMovedAudiences(b *pgx.Batch) {
	var moved []*revisionAudience
	for key, audience := range f.movedAudiences {
		moved = append(moved, &revisionAudience{key, audience})
	}
	revisionAudiences.Update(b, moved)
}
