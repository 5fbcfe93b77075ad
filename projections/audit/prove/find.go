package prove

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A statement takes an id, the organization, and the slug of a project or "".
const (
	ofProject = ` join access.projects p on p.id = t.project_id and p.organization_id = $2 and ($3 = '' or p.slug = $3) `
	// selectItems finds the items of a send, each with where the event of its revision is, null if that is erased.
	selectItems = `select i.data_point, i.ordinal, r.accepted from datapoints.sends t` + ofProject + `
		join datapoints.items i on i.ingestion_id = t.id
		left join trace.revisions r on r.data_point = i.data_point and r.number = i.revision
		where t.id = $1 order by i.ordinal limit 1 + $4::int`
	// selectRecords finds the parts of a read record.
	selectRecords = `select t.project_id, t.day, t.part, t.at from reads.records t` + ofProject + `
		join reads.days d on d.project_id = t.project_id and d.day = t.day where t.id = $1 order by t.part limit 1 + $4::int`
	// selectDeletion finds a deletion, and the data points that are not cleaned.
	selectDeletion = `select e.data_point from datapoints.deletions t` + ofProject + `
		left join datapoints.erasures e on e.deletion_id = t.id where t.id = $1 limit 1 + $4::int`
	// selectDeletions finds the deletions that may have kept the facts of a data point: all of one project and time.
	selectDeletions = `select d.id from trace.deleted t` + ofProject + `
		join datapoints.deletions d on d.project_id = t.project_id and d.accepted_at = t.deleted_at
		where t.data_point = $1 limit 1 + $4::int`
)

// item is an item of a send.
type item struct {
	DataPoint uuid.UUID
	Ordinal   int
	Accepted  *int64
}

// readPart is a part of a read record.
type readPart struct {
	Project uuid.UUID
	Day     string
	Part    int
	At      time.Time
}

// rows reads the rows of a statement about what a request names.
func rows[T any](
	ctx context.Context, p *Prover, statement string, r Request, id uuid.UUID, to pgx.RowToFunc[T],
) ([]T, error) {
	found, err := p.DB.Query(ctx, statement, id, r.Organization, r.Project, MaxFiles)
	if err != nil {
		return nil, fmt.Errorf("find what to prove: %w", err)
	}
	list, err := pgx.CollectRows(found, to)
	if err != nil {
		return nil, fmt.Errorf("find what to prove: %w", err)
	}
	if len(list) > MaxFiles {
		err = errTooMany
	}
	return list, err
}
