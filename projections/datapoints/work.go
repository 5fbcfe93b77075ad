package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

// Searchable returns the position up to which a watermark ends about limit of the oldest sends that
// were captured after a position and up to upTo. It is 0 if none waits.
func (q Queries) Searchable(
	ctx context.Context, after, upTo eventstore.Position, limit int,
) (position eventstore.Position, err error) {
	err = q.DB.QueryRow(ctx, `select coalesce(max(position), 0) from (select position from datapoints.sends
		where phase = 'captured' and failed = 0 and deleted = 0 and position > $1
			and position <= $2
		order by position limit $3) s`, int64(after), int64(upTo), limit).Scan((*uint64)(&position))
	if err != nil {
		return 0, fmt.Errorf("look for searchable sends: %w", err)
	}
	return position, nil
}

// Unsearchable lists at most limit sends that were captured after a position and wait for a
// watermark, oldest first.
func (q Queries) Unsearchable(ctx context.Context, after eventstore.Position, limit int) ([]work.Send, error) {
	rows, err := q.DB.Query(ctx, `select project_id, id, position, round, null, null from datapoints.sends
		where phase = 'captured' and failed = 0 and deleted = 0 and position > $1
		order by position, id limit $2`, int64(after), limit)
	return sendsOf(rows, err)
}

// Confirmable lists at most limit sends, oldest first, whose items have all ended and which no
// watermark ends, since an item failed or was deleted.
func (q Queries) Confirmable(ctx context.Context, limit int) ([]work.Send, error) {
	rows, err := q.DB.Query(ctx, `select s.project_id, s.id, s.position, s.round, f.failure_code, f.failure_message
		from (
			select * from datapoints.sends where phase = 'captured' and (failed > 0 or deleted > 0)
			order by position, id limit $1
		) s
		left join lateral (
			select i.failure_code, i.failure_message from datapoints.items i
			where s.failed > 0 and i.ingestion_id = s.id and i.phase = 'failed' order by i.position, i.ordinal limit 1
		) f on true
		order by s.position, s.id`, limit)
	return sendsOf(rows, err)
}

func sendsOf(rows pgx.Rows, err error) ([]work.Send, error) {
	if err != nil {
		return nil, fmt.Errorf("list confirmable sends: %w", err)
	}
	sends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s work.Send, err error) {
		var code, message *string
		err = row.Scan(&s.ProjectID, &s.IngestionID, (*uint64)(&s.Position), &s.Round, &code, &message)
		if code != nil && message != nil {
			s.Failure = &work.Failure{Code: *code, Message: *message}
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list confirmable sends: %w", err)
	}
	return sends, nil
}

// PendingFanOuts lists at most limit committed deletions and batches that are not fanned out,
// deletions first, each oldest first. Abandoned batches are left out.
func (q Queries) PendingFanOuts(ctx context.Context, limit int) ([]work.Operation, error) {
	rows, err := q.DB.Query(ctx, `(select project_id, $2::text, id, accepted_at, position from datapoints.sends
		where not fanned_out and final_phase <> 'failed' order by position limit $1)
		union all (select project_id, $3::text, id, accepted_at, position from datapoints.deletions where not fanned_out
			order by position limit $1)
		order by 2, position limit $1`, limit, stream.Ingestion, stream.Deletion)
	if err != nil {
		return nil, fmt.Errorf("list open fan-outs: %w", err)
	}
	operations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o work.Operation, err error) {
		err = row.Scan(&o.ProjectID, &o.Category, &o.ID, &o.AcceptedAt, (*uint64)(&o.Position))
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open fan-outs: %w", err)
	}
	return operations, nil
}

// Erasures lists at most limit data points of fanned-out deletions whose facts are not retained
// yet, oldest first.
func (q Queries) Erasures(ctx context.Context, limit int) ([]work.Erasure, error) {
	rows, err := q.DB.Query(ctx, `select e.project_id, e.data_point, e.deletion_id, e.position
		from datapoints.erasures e join datapoints.deletions d on d.id = e.deletion_id and d.fanned_out
		where not e.facts_kept order by e.position, e.data_point limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	erasures, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e work.Erasure, err error) {
		err = row.Scan(&e.ProjectID, &e.DataPoint, &e.DeletionID, (*uint64)(&e.Position))
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	return erasures, nil
}

// CleanableDeletions lists at most limit fanned-out deletions that are not cleaned and whose facts
// are all retained, oldest first, after a deletion (nil begins).
func (q Queries) CleanableDeletions(ctx context.Context, after *work.Deletion, limit int) ([]work.Deletion, error) {
	position, id := int64(0), uuid.Nil
	if after != nil {
		position, id = int64(after.Position), after.ID
	}
	rows, err := q.DB.Query(ctx, `select project_id, id, accepted_at, position from datapoints.deletions d
		where not cleaned and fanned_out and (position, id) > ($2, $3)
			and not exists (select from datapoints.erasures e where e.deletion_id = d.id and not e.facts_kept)
		order by position, id limit $1`, limit, position, id)
	if err != nil {
		return nil, fmt.Errorf("list deletions to clean: %w", err)
	}
	deletions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d work.Deletion, err error) {
		err = row.Scan(&d.ProjectID, &d.ID, &d.AcceptedAt, (*uint64)(&d.Position))
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list deletions to clean: %w", err)
	}
	return deletions, nil
}
