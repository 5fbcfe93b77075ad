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
