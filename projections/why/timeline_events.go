package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/memories"
)

const (
	// historyEvents and historyBytes are how much of a data point's stream a timeline reads on each side
	// of its root, a page of historyPage events at a time.
	historyEvents = 512
	historyBytes  = 8 << 20
	historyPage   = 32
	// subjectsRead is how many subjects a timeline looks for elsewhere, claimsRead how many claims on
	// each, and elsewhereNodes how many it shows.
	subjectsRead   = 20
	claimsRead     = 1000
	elsewhereNodes = 100
)

// revisionEvent is what a timeline shows of a revision.
type revisionEvent struct {
	node, ingestion        uuid.UUID
	number                 int
	effect                 uint64
	sourceID, headline     string
	occurredAt, acceptedAt time.Time
}

// history reads the revisions of a data point around one, in effect order, and the sends of all events
// that it read, also of those that changed nothing. more reports that the stream has others.
func (s *Trace) history(
	ctx context.Context, at location,
) (list []revisionEvent, sends []uuid.UUID, more bool, err error) {
	read := func(from eventstore.Revision, direction eventstore.Direction) error {
		found, left, err := s.readSide(ctx, at.dataPoint, from, direction)
		for _, e := range found {
			send, _, _ := datapoint.SendOf(e.Event)
			sends = append(sends, send.IngestionID)
			if r, is := e.Event.(*datapoint.RevisionAccepted); is {
				list = append(list, s.revisionEvent(ctx, at.dataPoint, r, e))
			}
		}
		more = more || left
		return err
	}
	own := eventstore.Revision(*at.accepted)
	err = read(own, eventstore.Forwards)
	if err == nil && own > 0 {
		err = read(own-1, eventstore.Backwards)
	}
	slices.SortFunc(list, func(x, y revisionEvent) int { return cmp.Compare(x.effect, y.effect) })
	return list, sends, more, err
}

// readSide reads the sends of a data point from an event on in one direction.
func (s *Trace) readSide(
	ctx context.Context, dataPoint uuid.UUID, from eventstore.Revision, direction eventstore.Direction,
) (found []eventstore.DecodedEvent, more bool, err error) {
	for events, bytes := 0, 0; ; {
		page, err := s.Journal.Read(ctx, stream.Name(stream.DataPoint, dataPoint), from, direction, historyPage)
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil, false, nil // deleted since: the next call reports it
		}
		if err != nil {
			return nil, false, err
		}
		for _, e := range page {
			if _, _, is := datapoint.SendOf(e.Event); is {
				bytes += e.Size()
				found = append(found, e)
			}
		}
		events += len(page)
		if len(page) < historyPage {
			return found, false, nil
		}
		last := page[len(page)-1].Revision
		if events >= historyEvents || bytes >= historyBytes {
			return found, direction == eventstore.Forwards || last > 0, nil
		}
		if from = last + 1; direction == eventstore.Backwards {
			from = last - 1
		}
		if from < 0 {
			return found, false, nil
		}
	}
}

// revisionEvent describes a revision by its event. A content that is in a blob and has no label has no
// headline: a timeline reads no blobs of other revisions.
func (s *Trace) revisionEvent(
	_ context.Context, dataPoint uuid.UUID, e *datapoint.RevisionAccepted, recorded eventstore.DecodedEvent,
) revisionEvent {
	r := Revision{Accepted: e, Content: e.Content.Inline}
	effect := e.Commit
	if effect == 0 {
		effect = uint64(recorded.Position)
	}
	return revisionEvent{
		node: datapoint.NodeID(dataPoint, e.Effect.Revision), ingestion: e.IngestionID, number: e.Effect.Revision,
		effect: effect, sourceID: e.Effect.SourceID, headline: r.Headline(),
		occurredAt: e.Effect.OccurredAt.UTC(), acceptedAt: e.AcceptedAt.UTC(),
	}
}

// readSends reads sends of a project.
func (s *Trace) readSends(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]send, error) {
	rows, err := s.DB.Query(ctx, selectSends, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("read sends: %w", err)
	}
	defer rows.Close()
	found, err := scanSends(rows)
	if err != nil {
		return nil, fmt.Errorf("read sends: %w", err)
	}
	return found, nil
}

// capturedRevision reads the newest revision with memories, 0 for none.
func (s *Trace) capturedRevision(ctx context.Context, dataPoint uuid.UUID) (number int, err error) {
	err = s.DB.QueryRow(ctx, `select revision from memories.captured where data_point = $1`, dataPoint).Scan(&number)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("read the captured revision: %w", err)
	}
	return number, nil
}

// reach returns the nodes that a walk over one side reaches from a node, without it, nearest first.
func (g *Graph) reach(from int, side [][]int) []int {
	seen, order := map[int]struct{}{from: {}}, []int{from}
	for at := 0; at < len(order); at++ {
		for _, n := range side[order[at]] {
			if _, twice := seen[n]; !twice {
				seen[n] = struct{}{}
				order = append(order, n)
			}
		}
	}
	return order[1:]
}

// subjects returns what a node is about, as claims compare it: the subject and the names of a memory,
// or those of all memories of a source. The first few, in the order of the text.
func (g *Graph) subjects(n int) []string {
	list := g.Memories
	if n > 0 {
		list = g.Memories[n-1 : n]
	}
	var found []string
	add := func(subject string) {
		if subject != "" && len(found) < subjectsRead && !slices.Contains(found, subject) {
			found = append(found, subject)
		}
	}
	for _, m := range list {
		add(m.Subject)
		for _, name := range m.Entities {
			add(comprehend.Subject(name))
		}
	}
	return found
}

const selectElsewhere = `select m.id, m.kind, m.content, m.occurred_at, m.derived_at, m.revision, d.source_id, r.ingestion_id
	from unnest($3::uuid[]) c (subject)
	cross join lateral (
		select * from memories.memories where project_id = $1 and subject = c.subject and kind = 'claim' and subject is not null
			and occurred_at between $4 and $5 order by attribute, occurred_at, id limit $6
	) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	cross join lateral (select * from datapoints.data_points where id = m.data_point offset 0) d
	cross join lateral (select * from datapoints.revisions where data_point = m.data_point and number = m.revision offset 0) r
	where d.project_id = $1 and m.data_point <> $2
	order by m.occurred_at, m.id limit $7`

// elsewhere finds claims of other data points on some subjects that occurred in a window, oldest
// first. It finds them by the tables of the memories, as recall does.
func (s *Trace) elsewhere(
	ctx context.Context, project auth.Project, dataPoint uuid.UUID, subjects []string, from, to time.Time,
) (list []Moment, more bool, err error) {
	if len(subjects) == 0 {
		return nil, false, nil
	}
	keys := pgarray.IDs(subjects, func(subject string) uuid.UUID { return memories.TextKey(project.ID, subject) })
	rows, err := s.DB.Query(ctx, selectElsewhere, project.ID, dataPoint, keys, from, to, claimsRead, elsewhereNodes+1)
	if err != nil {
		return nil, false, fmt.Errorf("read claims elsewhere: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		m := Moment{Brief: Brief{Kind: KindMemory}, Section: sectionElsewhere}
		var content []byte
		if err := rows.Scan(&m.ID, &m.MemoryKind, &content, &m.OccurredAt, &m.ArrivedAt, &m.Revision, &m.SourceID,
			&m.Ingestion); err != nil {
			return nil, false, fmt.Errorf("read claims elsewhere: %w", err)
		}
		m.Headline = headline(string(content))
		m.OccurredAt, m.ArrivedAt = m.OccurredAt.UTC(), m.ArrivedAt.UTC()
		list = append(list, m)
	}
	if len(list) > elsewhereNodes {
		list, more = list[:elsewhereNodes], true
	}
	return list, more, rows.Err()
}
