package prove

import (
	"context"
	"errors"
	"sort"
	"strconv"
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

// subject is an event to prove, with what its file holds: of an event of the log its leaf, of another what was kept.
type subject struct {
	stream   string
	revision int64
	position eventstore.Position
	// part is the number of the file among those of one event, from 0.
	part int
	proof.Extra
}

// subjectOf returns an event, and with full its metadata and data.
func subjectOf(r eventstore.Recorded, organization uuid.UUID, full bool) (s subject, err error) {
	s = subject{stream: r.Stream, revision: int64(r.Revision), position: r.Position}
	if full {
		s.Metadata, s.Data = r.Meta, r.Data
	}
	s.Leaf, err = leafOf(r, organization)
	return s, err
}

// leafOf returns the leaf of an event.
func leafOf(r eventstore.Recorded, organization uuid.UUID) ([]byte, error) {
	return audit.Event{
		Organization: organization, ID: r.ID, Stream: r.Stream, Revision: int64(r.Revision), Type: r.Type,
		Meta: r.Meta, Data: r.Data,
	}.Leaf()
}

// fileName is the name of the file of an event. What holds the event itself has it in its name; that of a root of read
// records has no text.
func (s subject) fileName() string {
	name := s.stream + "." + strconv.FormatInt(s.revision, 10)
	if s.part > 0 {
		name += "." + strconv.Itoa(s.part)
	}
	if s.Metadata != nil && s.Read == nil {
		name += proof.WithSalt
	}
	return name + proof.Ending
}

// collector collects the events of a request.
type collector struct {
	*Prover
	Request
	list []subject
	seen map[string]bool
	size int
}

func (c *collector) add(s subject) error {
	if name := s.fileName(); !c.seen[name] {
		c.seen[name] = true
		c.list = append(c.list, s)
	}
	if c.size += len(s.Metadata) + len(s.Data); len(c.list) > MaxFiles || c.size > maxBytes {
		return errTooMany
	}
	return nil
}

func (c *collector) addEvent(r eventstore.Recorded) error {
	s, err := subjectOf(r, c.Organization, c.WithSalt)
	if err != nil {
		return err
	}
	return c.add(s)
}

// scan adds the events of a stream that take accepts, and that are not set aside: those are of no organization. It
// returns ErrDeleted for a stream that is ended.
func (c *collector) scan(
	ctx context.Context, name string, from eventstore.Revision, take func(eventstore.DecodedEvent) (bool, bool),
) error {
	return c.Journal.Scan(ctx, name, from, func(e eventstore.DecodedEvent) (more bool, err error) {
		take, more := take(e)
		if take && !e.IsPassedOver() {
			err = c.addEvent(e.Recorded)
		}
		return more, err
	})
}

func all(eventstore.DecodedEvent) (take, more bool) { return true, true }

// collect finds the events of a request.
func (c *collector) collect(ctx context.Context) error {
	id, err := uuid.Parse(c.ID)
	switch {
	case c.Kind == Source:
		project, ok, err := c.Projects.ProjectBySlug(ctx, c.Organization, c.Project)
		if err != nil || !ok {
			return err
		}
		return c.source(ctx, stream.DataPointID(project.Namespace, c.ID), nil)
	case err != nil:
		return nil // nothing has such an id
	case c.Kind == Ingestion:
		return c.send(ctx, id)
	case c.Kind == Read:
		return c.request(ctx, id)
	case c.Kind == Deletion:
		return c.deletion(ctx, id)
	}
	return nil
}

// send adds the events of a send, and of its items those that it appended to data points. Of a data point that is
// erased all is added: which of its events were of the send is not kept.
func (c *collector) send(ctx context.Context, id uuid.UUID) error {
	items, err := rows(ctx, c.Prover, selectItems, c.Request, id, pgx.RowToStructByPos[item])
	if err != nil || len(items) == 0 {
		return err
	}
	if err := c.scan(ctx, stream.Name(stream.Ingestion, id), 0, all); err != nil {
		return err
	}
	for _, i := range items {
		err := eventstore.ErrDeleted
		if i.Accepted != nil {
			err = c.scan(ctx, stream.Name(stream.DataPoint, i.DataPoint), eventstore.Revision(*i.Accepted),
				func(e eventstore.DecodedEvent) (take, more bool) {
					send, _, ok := datapoint.SendOf(e.Event)
					take = ok && send.IngestionID == id && send.Ordinal == i.Ordinal
					return take, !take
				})
		}
		if errors.Is(err, eventstore.ErrDeleted) {
			err = c.source(ctx, i.DataPoint, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// source adds the events of a data point and its memories, and what was kept of those that have left the log. The
// deletion that kept the facts is looked for unless it is given.
func (c *collector) source(ctx context.Context, id uuid.UUID, by []uuid.UUID) error {
	gone := map[string]bool{}
	for _, family := range []string{stream.DataPoint, stream.Memory} {
		name := stream.Name(family, id)
		err := c.scan(ctx, name, 0, all)
		if errors.Is(err, eventstore.ErrDeleted) {
			gone[name] = true
			err = c.records(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	if by == nil && len(gone) > 0 {
		var err error
		if by, err = rows(ctx, c.Prover, selectDeletions, c.Request, id, pgx.RowTo[uuid.UUID]); err != nil {
			return err
		}
	}
	for _, deletionID := range by {
		name := stream.Name(stream.Deletion, deletionID)
		err := c.Journal.Scan(ctx, name, 0, func(e eventstore.DecodedEvent) (_ bool, err error) {
			facts, is := e.Event.(*deletion.FactsKept)
			if !is || facts.DataPoint != id {
				return true, nil
			}
			if name := stream.Name(stream.DataPoint, id); gone[name] {
				err = c.keep(e.Recorded, name, facts.From, facts.Records)
			}
			if name := stream.Name(stream.Memory, id); gone[name] && err == nil {
				first := facts.MemoriesTo - int64(len(facts.MemoryRecords))
				err = c.keep(e.Recorded, name, first, facts.MemoryRecords)
			}
			return true, err
		})
		if err != nil {
			return err
		}
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
		s := subject{stream: name, revision: from + int64(i), position: eventstore.Position(k.Position)}
		s.Kept = &proof.Kept{Record: k.Record[:], Stream: name, Revision: s.revision, EventID: k.EventID}
		if err := c.add(s); err != nil {
			return err
		}
	}
	if c.WithSalt && len(list) > 0 {
		return c.addEvent(keeper)
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
			err = c.source(ctx, point, []uuid.UUID{id})
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
	if errors.Is(err, eventstore.ErrDeleted) { // its time is over
		return nil
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
			s, err := subjectOf(root, c.Organization, true)
			if err != nil {
				return false, err
			}
			s.part = part.Part
			s.Read = &proof.Read{Record: text, Number: int64(n), Size: int64(len(batch.Records)), Path: path}
			return false, c.add(s)
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
