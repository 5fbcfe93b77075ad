package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// Explained is a send with its first items.
type Explained struct {
	ID         uuid.UUID
	RequestID  uuid.UUID
	AcceptedAt time.Time
	// SettledAt is nil until the send is indexed, failed or nothing-changed.
	SettledAt *time.Time
	Phase     string
	// Failure is nil unless Phase is failed. FailureOpen is false if a newer revision or a deletion
	// overtook it.
	Failure      *Failure
	FailureOpen  bool
	CreditTenths int64
	// Deleted reports whether the send, or all that it sent, was deleted.
	Deleted bool
	// Items are in the order sent. Omitted counts the others: those over the limit, and those of a
	// batch that are not fanned out.
	Items   []Item
	Omitted int
}

// explainSend reads a send by its id, else by the id of its request, and its first items. The table
// captured of the memories decides what recall can find, as in the gate.
const explainSend = `with found as (
		(select * from datapoints.sends where id = $2 and project_id = $1)
		union all (select * from datapoints.sends where request_id = $2 and project_id = $1)
		limit 1
	), listed as (
		select i.ordinal, i.data_point, i.revision, ` + clientOutcome + ` as outcome, ` + clientPhase + ` as phase,
			count(*) over () as total
		from found s join datapoints.items i on i.ingestion_id = s.id
		where ` + inSendList + ` order by i.ordinal limit $3
	)
	select s.id, s.request_id, s.accepted_at,
		case when ` + endedByDeletion + ` then greatest(w.at, s.last_deleted_at) else s.settled_at end,
		case when ` + endedByDeletion + ` then 'indexed' else s.phase end,
		case when not ` + endedByDeletion + ` then s.failure_code end, coalesce(s.failure_message, ''),
		s.failure_open and not ` + endedByDeletion + `, s.credit_tenths,
		s.deleted_at is not null or s.deleted + w.items = s.item_count,
		greatest(l.total, case when s.fanned_out then 0 else s.item_count end, 0),
		l.ordinal, l.data_point, l.revision, l.outcome, l.phase, coalesce(d.source_id, ''),
		coalesce(d.id is not null and c.revision = l.revision and c.position <= $4, false),
		case when d.id is null then 0 when d.captured = l.revision then d.memories
			else (select count(*) from memories.memories m where m.data_point = l.data_point and m.revision = l.revision) end
	from found s` + waitingItems + `left join listed l on true
	left join datapoints.data_points d on d.id = l.data_point
	left join memories.captured c on c.data_point = l.data_point
	order by l.ordinal`

// Explain reads a send of the project and at most limit of its items, at the position of the
// projection. id is the send's own or that of its request. ok is false if there is none up to there;
// CatchUp reads further. indexed is the position that the recall index has applied.
func (q Queries) Explain(
	ctx context.Context, project auth.Project, id uuid.UUID, limit int, indexed eventstore.Position,
) (s Explained, ok bool, err error) {
	rows, err := q.DB.Query(ctx, explainSend, project.ID, id, limit, int64(indexed))
	if err != nil {
		return Explained{}, false, fmt.Errorf("explain send: %w", err)
	}
	var code, outcome, phase *string
	var message, source string
	var ordinal, revision *int
	var dataPoint *uuid.UUID
	var total, memories int
	var searchable bool
	_, err = pgx.ForEachRow(rows, []any{
		&s.ID, &s.RequestID, &s.AcceptedAt, &s.SettledAt, &s.Phase, &code, &message, &s.FailureOpen, &s.CreditTenths,
		&s.Deleted, &total, &ordinal, &dataPoint, &revision, &outcome, &phase, &source, &searchable, &memories,
	}, func() error {
		ok = true
		if ordinal != nil {
			s.Items = append(s.Items, Item{
				Ordinal: *ordinal, DataPoint: *dataPoint, SourceID: source, Revision: *revision, Outcome: *outcome, Phase: *phase,
				Searchable: searchable, Memories: memories,
			})
		}
		return nil
	})
	if err != nil {
		return Explained{}, false, fmt.Errorf("explain send: %w", err)
	}
	if !ok {
		return Explained{}, false, nil
	}
	s.AcceptedAt, s.Omitted = s.AcceptedAt.UTC(), total-len(s.Items)
	if s.SettledAt != nil {
		*s.SettledAt = s.SettledAt.UTC()
	}
	if code != nil {
		s.Failure = &Failure{Code: *code, Message: message}
	}
	return s, true, nil
}

// Placement is what decides who reads a data point: its audience, and the time of its newest revision.
type Placement struct {
	// Deleted is true if it was deleted: all else is zero then.
	Deleted  bool `json:"isDeleted"`
	Revision int  `json:"revision,omitempty"`
	// Captured is the newest revision whose memories are derived, 0 for none.
	Captured int `json:"captured"`
	// Audience is zero for what is project-visible.
	Audience   uuid.UUID `json:"audienceId"`
	OccurredAt time.Time `json:"occurredAt"`
}

// The items of a data point outlive it, and a deletion is there at once.
const selectPlacement = `select d.id is null, coalesce(d.revision, 0), coalesce(d.captured, 0),
		coalesce(d.audience, '00000000-0000-0000-0000-000000000000'), coalesce(d.occurred_at, 'epoch')
	from (select) one left join datapoints.data_points d on d.id = $2 and d.project_id = $1
	where d.id is not null
		or exists (select from datapoints.items i where i.data_point = $2 and i.project_id = $1
			and i.outcome not in ('unchanged', 'moved'))
		or exists (select from datapoints.erasures e where e.data_point = $2 and e.project_id = $1)`

// Placement finds a data point of a project, as the projection is once it has passed the head of the log. ok is false
// if none was sent.
func (q Queries) Placement(ctx context.Context, project auth.Project, id uuid.UUID) (p Placement, ok bool, err error) {
	if err := q.CatchUp(ctx); err != nil {
		return p, false, err
	}
	rows, err := q.DB.Query(ctx, selectPlacement, project.ID, id)
	if err != nil {
		return p, false, fmt.Errorf("find the audience of a data point: %w", err)
	}
	defer rows.Close()
	if ok = rows.Next(); ok {
		err = rows.Scan(&p.Deleted, &p.Revision, &p.Captured, &p.Audience, &p.OccurredAt)
		p.OccurredAt = p.OccurredAt.UTC()
	}
	if rows.Close(); err == nil {
		err = rows.Err()
	}
	if err != nil {
		return p, false, fmt.Errorf("find the audience of a data point: %w", err)
	}
	return p, ok, nil
}

// Brought is a data point of a send. The zero value is one that was deleted since.
type Brought struct {
	SourceID string
	// Newest reports that the send brought the newest revision.
	Newest bool
	// Author wrote the newest revision, SentBy the one that the send brought or repeated; "" for none.
	Author, SentBy string
}

// Brought returns the data points that a send names, in its order. found is false if the project has no such send,
// after the projection has applied the head of the log.
func (q Queries) Brought(
	ctx context.Context, project auth.Project, send uuid.UUID,
) (list []Brought, found bool, err error) {
	if _, found, err = q.Targets(ctx, project, send); err != nil || !found {
		return nil, false, err
	}
	rows, err := q.DB.Query(ctx, `select coalesce(d.source_id, ''), coalesce(d.ingestion_id = i.ingestion_id, false),
			coalesce(d.author, ''), case when d.id is not null then coalesce(r.author, '') else '' end
		from datapoints.items i
		left join datapoints.data_points d on d.id = i.data_point and d.project_id = i.project_id
		left join datapoints.revisions r on r.data_point = i.data_point and r.number = i.revision
		where i.ingestion_id = $1 and i.project_id = $2 order by i.ordinal`, send, project.ID)
	if err != nil {
		return nil, false, fmt.Errorf("read what a send brought: %w", err)
	}
	list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Brought])
	if err != nil {
		return nil, false, fmt.Errorf("read what a send brought: %w", err)
	}
	return list, true, nil
}
