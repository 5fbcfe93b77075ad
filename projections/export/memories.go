package export

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pgarray"
)

// memoryReader reads the memories of the data points of a page, in their order, some data points at a time.
type memoryReader struct {
	db      *pgxpool.Pool
	project uuid.UUID
	keys    []key
	// loaded are the first memories of keys[:next] that are not written yet.
	loaded map[uuid.UUID][]derived
	next   int
}

// each calls do with every memory of the n-th data point, in order, and returns how many there are.
func (m *memoryReader) each(ctx context.Context, n int, do func(derived) error) (count int, err error) {
	k := m.keys[n]
	if n >= m.next {
		size := k.memories
		for m.next = n + 1; m.next < len(m.keys); m.next++ {
			if size += m.keys[m.next].memories; size > memoryCount {
				break
			}
		}
		if m.loaded, err = m.read(ctx, m.keys[n:m.next], 0, memoryCount); err != nil {
			return 0, err
		}
	}
	some := m.loaded[k.id]
	for {
		for _, d := range some {
			if err := do(d); err != nil {
				return count, err
			}
		}
		count += len(some)
		if len(some) < memoryCount {
			return count, nil
		}
		more, err := m.read(ctx, m.keys[n:n+1], count, count+memoryCount)
		if err != nil {
			return count, err
		}
		some = more[k.id]
	}
}

// derived is a memory as a line shows it.
type derived struct {
	id                       uuid.UUID
	number                   int
	kind                     string
	content, excerpt         []byte
	occurredAt               time.Time
	resolvedFrom, resolvedTo *time.Time
	// inputs are the numbers of the memories that it was built from; fromSource reports whether the source is one.
	inputs     []int32
	fromSource bool
	// The claim that superseded it.
	supersededAt     *time.Time
	supersededSource *string
	supersededNumber *int
}

// The superseding claim is that of a reader of all audiences: see projections/recall.
const selectMemories = `select m.data_point, m.id, m.ordinal, m.kind, m.content, m.excerpt, m.occurred_at, m.resolved_from, m.resolved_to,
		coalesce((select array_agg(i.ordinal order by i.ordinal) from memories.edges e
			join memories.memories i on i.id = e.input_id where e.derived_id = m.id), '{}'),
		exists (select from memories.edges e where e.derived_id = m.id
			and not exists (select from memories.memories i where i.id = e.input_id)),
		later.occurred_at, later.source_id, later.ordinal
	from unnest($2::uuid[], $3::int[]) k (id, revision)
	cross join lateral (select revision from memories.captured where data_point = k.id offset 0) own
	cross join lateral (select * from memories.memories
		where data_point = k.id and revision = least(k.revision, own.revision) and ordinal >= $4 and ordinal < $5 offset 0) m
	left join lateral (
		select n.occurred_at, d.source_id, n.ordinal from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) c
		cross join lateral (select source_id from datapoints.data_points where id = n.data_point offset 0) d
		where n.project_id = $1 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject is not null
			and (n.occurred_at, n.id) > (m.occurred_at, m.id)
		order by n.occurred_at, n.id limit 1
	) later on m.kind = 'claim' and m.subject is not null
	order by m.data_point, m.ordinal`

// read reads the memories of data points from one number to another, exclusive.
func (m *memoryReader) read(ctx context.Context, keys []key, from, to int) (map[uuid.UUID][]derived, error) {
	rows, err := m.db.Query(ctx, selectMemories, m.project, pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }),
		pgarray.Column(keys, func(k key) int32 { return int32(k.revision) }), from, to)
	if err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	defer rows.Close()
	found := map[uuid.UUID][]derived{}
	for rows.Next() {
		var of uuid.UUID
		var d derived
		if err := rows.Scan(&of, &d.id, &d.number, &d.kind, &d.content, &d.excerpt, &d.occurredAt, &d.resolvedFrom,
			&d.resolvedTo, &d.inputs, &d.fromSource, &d.supersededAt, &d.supersededSource, &d.supersededNumber); err != nil {
			return nil, fmt.Errorf("read memories: %w", err)
		}
		found[of] = append(found[of], d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	return found, nil
}
