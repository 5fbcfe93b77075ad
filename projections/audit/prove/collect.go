package prove

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// subject is an event to prove: as it is stored, or what was kept of it.
type subject struct {
	eventstore.Recorded
	kept *proof.Kept
	read *proof.Read
	// part is the number of the file among those of one event, from 0.
	part int
}

// collector collects the events of a request.
type collector struct {
	*Prover
	Request
	list []subject
	seen map[string]bool
}

func (c *collector) add(s subject) error {
	if s.kept != nil {
		s.Stream, s.Revision = s.kept.Stream, eventstore.Revision(s.kept.Revision)
	}
	if name := fileName(s, false); !c.seen[name] {
		c.seen[name] = true
		c.list = append(c.list, s)
	}
	if len(c.list) > MaxFiles {
		return errTooMany
	}
	return nil
}

// scan adds the events of a stream that take accepts. It returns ErrDeleted for a stream that is ended.
func (c *collector) scan(
	ctx context.Context, name string, from eventstore.Revision, take func(eventstore.DecodedEvent) (bool, bool),
) error {
	return c.Journal.Scan(ctx, name, from, func(e eventstore.DecodedEvent) (more bool, err error) {
		take, more := take(e)
		if take {
			err = c.add(subject{Recorded: e.Recorded})
		}
		return more, err
	})
}

func all(eventstore.DecodedEvent) (take, more bool) { return true, true }

// collect finds the events of a request.
func (c *collector) collect(ctx context.Context) error {
	if c.Kind == Source {
		project, ok, err := c.Projects.ProjectBySlug(ctx, c.Organization, c.Project)
		if err != nil || !ok {
			return errors.Join(err, c.notFound())
		}
		return c.source(ctx, stream.DataPointID(project.Namespace, c.ID), nil, nil)
	}
	id, err := uuid.Parse(c.ID)
	if err != nil {
		return c.notFound()
	}
	switch c.Kind {
	case Ingestion:
		return c.send(ctx, id)
	case Read:
		return c.request(ctx, id)
	case Deletion:
		return c.deletion(ctx, id)
	}
	return c.notFound()
}

// send adds the events of a send, and of its items those that it appended to data points.
func (c *collector) send(ctx context.Context, id uuid.UUID) error {
	items, err := rows(ctx, c.Prover, selectItems, c.Request, id, pgx.RowToStructByPos[item])
	if err != nil || len(items) == 0 {
		return err
	}
	if err := c.scan(ctx, stream.Name(stream.Ingestion, id), 0, all); err != nil {
		return err
	}
	for _, i := range items {
		mine := func(send uuid.UUID, ordinal int) bool { return send == id && ordinal == i.Ordinal }
		if i.Accepted == nil {
			if err := c.source(ctx, i.DataPoint, nil, mine); err != nil {
				return err
			}
			continue
		}
		name := stream.Name(stream.DataPoint, i.DataPoint)
		err := c.scan(ctx, name, eventstore.Revision(*i.Accepted), func(e eventstore.DecodedEvent) (take, more bool) {
			send, _, ok := datapoint.SendOf(e.Event)
			take = ok && mine(send.IngestionID, send.Ordinal)
			return take, !take
		})
		if errors.Is(err, eventstore.ErrDeleted) {
			err = c.source(ctx, i.DataPoint, nil, mine)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// source adds the events of a data point and its memories, and what was kept of those that have left the log. The
// deletion that kept the facts is looked for unless it is known. With mine, only the items that it accepts are added.
func (c *collector) source(ctx context.Context, id uuid.UUID, by []uuid.UUID, mine func(uuid.UUID, int) bool) error {
	gone := map[string]bool{}
	take := func(e eventstore.DecodedEvent) (take, more bool) {
		send, _, ok := datapoint.SendOf(e.Event)
		return mine == nil || ok && mine(send.IngestionID, send.Ordinal), true
	}
	for _, family := range []string{stream.DataPoint, stream.Memory} {
		if family == stream.Memory && mine != nil {
			continue
		}
		name := stream.Name(family, id)
		err := c.scan(ctx, name, 0, take)
		if gone[name] = errors.Is(err, eventstore.ErrDeleted); err != nil && !gone[name] {
			return err
		}
		if gone[name] {
			if err := c.records(ctx, name); err != nil {
				return err
			}
		}
	}
	if by == nil && (gone[stream.Name(stream.DataPoint, id)] || gone[stream.Name(stream.Memory, id)]) {
		var err error
		if by, err = rows(ctx, c.Prover, selectDeletions, c.Request, id, pgx.RowTo[uuid.UUID]); err != nil {
			return err
		}
	}
	for _, deletionID := range by {
		name := stream.Name(stream.Deletion, deletionID)
		err := c.Journal.Scan(ctx, name, 0, func(e eventstore.DecodedEvent) (bool, error) {
			facts, is := e.Event.(*deletion.FactsKept)
			if !is || facts.DataPoint != id {
				return true, nil
			}
			return true, c.facts(e.Recorded, facts, gone, mine)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// facts adds what a deletion kept of a data point. Each event of an item has a fact, in order, if none was set aside.
func (c *collector) facts(
	keeper eventstore.Recorded, e *deletion.FactsKept, gone map[string]bool, mine func(uuid.UUID, int) bool,
) error {
	if name := stream.Name(stream.DataPoint, e.DataPoint); gone[name] {
		records, from := e.Records, e.From
		if n := len(records) - len(e.Facts); mine != nil && (n == 0 || n == 1) {
			for i, fact := range e.Facts {
				if mine(fact.IngestionID, fact.Ordinal) {
					if err := c.keep(keeper, name, from+int64(i), records[i:i+1]); err != nil {
						return err
					}
				}
			}
		} else if err := c.keep(keeper, name, from, records); err != nil {
			return err
		}
	}
	if name := stream.Name(stream.Memory, e.DataPoint); gone[name] {
		return c.keep(keeper, name, e.MemoriesTo-int64(len(e.MemoryRecords)), e.MemoryRecords)
	}
	return nil
}

// records adds the records of a stream that are kept in a stream of their own.
func (c *collector) records(ctx context.Context, name string) error {
	return c.Journal.Scan(ctx, stream.RecordsName(name), 0, func(e eventstore.DecodedEvent) (bool, error) {
		kept, is := e.Event.(*audit.RecordsKept)
		if !is {
			return true, nil
		}
		return true, c.keep(e.Recorded, kept.Stream, kept.From, kept.Records)
	})
}

// keep adds events that have left the log. What kept them is added too where files hold what confirms them.
func (c *collector) keep(keeper eventstore.Recorded, name string, from int64, list audit.KeptList) error {
	for i, k := range list {
		s := subject{kept: &proof.Kept{Record: k.Record[:], Stream: name, Revision: from + int64(i), EventID: k.EventID}}
		s.Position = eventstore.Position(k.Position)
		if err := c.add(s); err != nil {
			return err
		}
	}
	if c.WithSalt && len(list) > 0 {
		return c.add(subject{Recorded: keeper})
	}
	return nil
}

// deletion adds the events of a deletion, and those of the data points that it erases: what it keeps of them.
func (c *collector) deletion(ctx context.Context, id uuid.UUID) error {
	found, err := rows(ctx, c.Prover, selectDeletion, c.Request, id, pgx.RowTo[*uuid.UUID])
	if err != nil || len(found) == 0 {
		return err
	}
	points := map[uuid.UUID]bool{}
	for _, point := range found {
		if point != nil {
			points[*point] = true
		}
	}
	err = c.scan(ctx, stream.Name(stream.Deletion, id), 0, func(e eventstore.DecodedEvent) (take, more bool) {
		if facts, is := e.Event.(*deletion.FactsKept); is {
			points[facts.DataPoint] = true
		}
		return true, len(points) <= MaxFiles
	})
	for point := range points {
		if err == nil {
			err = c.source(ctx, point, []uuid.UUID{id}, nil)
		}
	}
	return err
}

// slack is how much the clocks of processes may differ, and how long a read record waits for its append at most.
const slack = 5 * time.Minute

// request adds the event of the root that each part of a read record is under.
func (c *collector) request(ctx context.Context, id uuid.UUID) error {
	parts, err := rows(ctx, c.Prover, selectRecords, c.Request, id, pgx.RowToStructByPos[readPart])
	for _, part := range parts {
		if err == nil {
			err = c.part(ctx, id, part)
		}
	}
	if errors.Is(err, eventstore.ErrDeleted) {
		return c.notFound()
	}
	return err
}

func (c *collector) part(ctx context.Context, id uuid.UUID, part readPart) error {
	name := stream.ReadsName(part.Project, part.Day)
	last, ok, err := c.Journal.Store.ReadLast(ctx, name)
	if err != nil || !ok {
		return err
	}
	from, err := search(int64(last.Revision)+1, func(n int64) (bool, error) {
		e, _, err := c.Journal.At(ctx, name, eventstore.Revision(n))
		return e.Details.At.After(part.At.Add(-slack)), err
	})
	if err != nil {
		return err
	}
	var root eventstore.Recorded
	return c.Journal.Scan(ctx, name, max(0, eventstore.Revision(from)-1), func(e eventstore.DecodedEvent) (bool, error) {
		batch, is := e.Event.(*reads.Recorded)
		if !is {
			root = e.Recorded
			return true, nil
		}
		for n, r := range batch.Records {
			if r.ID != id || r.Part != part.Part {
				continue
			}
			text, err := r.Encode()
			if err != nil {
				return false, err
			}
			path, err := reads.Prove(batch.Records, n)
			if err != nil {
				return false, err
			}
			read := &proof.Read{Record: text, Number: int64(n), Size: int64(len(batch.Records)), Path: path}
			return false, c.add(subject{Recorded: root, read: read, part: part.Part})
		}
		return true, nil
	})
}

// search finds the first number below n at which is is true.
func search(n int64, is func(int64) (bool, error)) (first int64, err error) {
	found := sort.Search(int(n), func(i int) bool {
		if err != nil {
			return true
		}
		var yes bool
		yes, err = is(int64(i))
		return yes
	})
	return int64(found), err
}

func (c *collector) notFound() error {
	return fmt.Errorf("%w: %s %s", errNotFound, c.Kind, c.ID)
}
