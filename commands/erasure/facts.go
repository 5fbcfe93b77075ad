package erasure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

const (
	// partFacts and partBlobs are how many facts and blobs of a data point one event holds. It has at
	// most one record more than it has facts, and fits into an append with all its lists full.
	partFacts = 1000
	partBlobs = 1000
	// partMemoryIDs is how many memories one event counts, unless it is one revision with more, and
	// partMemoryEvents how many events are read for it, and have their records in it.
	partMemoryIDs    = 10_000
	partMemoryEvents = 1000
	// retainTime is how long one call retains facts. The next one goes on after the stored parts.
	retainTime = 30 * time.Second
	// retainSize is how many data points are read, a part of each, before their facts are appended.
	retainSize = 64
)

// RetainFacts appends to the stream of a deletion what outlives data points that it took, a part of
// each at a time, so that a data point may have any number of sends. A call that takes long returns
// before all is retained; a repeated call continues after the stored parts.
//
// The data points projection must have applied the deletion of the data points and, after that, the
// head of the log at some time: a rebuilt projection knows of earlier erasures only once it has
// applied the retained facts.
func (e *Eraser) RetainFacts(ctx context.Context, deletionID uuid.UUID, dataPoints []uuid.UUID) error {
	record, err := e.readDeletion(ctx, deletionID)
	if err != nil {
		return err
	}
	return e.retainFacts(ctx, record, dataPoints)
}

func (e *Eraser) retainFacts(ctx context.Context, record *deletionRecord, dataPoints []uuid.UUID) error {
	at := record.last()
	left := make([]*retaining, len(dataPoints))
	for i, id := range dataPoints {
		left[i] = &retaining{dataPoint: id}
		if stored := record.Retained(id); stored != nil {
			left[i].Retained, left[i].began = *stored, true
		}
	}
	for began := time.Now(); len(left) > 0 && time.Since(began) < retainTime; {
		some := left[:min(retainSize, len(left))]
		parts := make([]*deletion.FactsKept, len(some))
		err := e.each(ctx, len(some), func(ctx context.Context, i int) error {
			if some[i].Complete { // by an earlier run
				return nil
			}
			var err error
			parts[i], err = e.nextFacts(ctx, some[i])
			if !errors.Is(err, eventstore.ErrDeleted) {
				return err
			}
			parts[i], err = e.endedFacts(ctx, record, some[i])
			return err
		})
		if err != nil {
			return err
		}
		parts = slices.DeleteFunc(parts, func(p *deletion.FactsKept) bool { return p == nil })
		if at, err = e.appendFacts(ctx, record.id, at, parts); err != nil {
			return fmt.Errorf("retain facts of deletion %s: %w", record.id, err)
		}
		incomplete := slices.DeleteFunc(slices.Clone(some), func(r *retaining) bool { return r.Complete })
		left = append(incomplete, left[len(some):]...)
	}
	return nil
}

// incompleteFacts returns the data points of which a crash left only a part of the facts.
func (e *Eraser) incompleteFacts(ctx context.Context, record *deletionRecord) ([]uuid.UUID, error) {
	ids := record.Retaining
	complete := make([]bool, len(ids))
	err := e.each(ctx, len(ids), func(ctx context.Context, i int) (err error) {
		complete[i], err = e.factsComplete(ctx, ids[i], record.Retained(ids[i]))
		return err
	})
	var incomplete []uuid.UUID
	for i, id := range ids {
		if !complete[i] {
			incomplete = append(incomplete, id)
		}
	}
	return incomplete, err
}

// factsComplete reports whether all facts of a deleted data point are retained. Before the service tombstones its
// streams, they are, perhaps by another deletion.
func (s Streams) factsComplete(ctx context.Context, dataPoint uuid.UUID, r *deletion.Retained) (bool, error) {
	if r.Complete {
		return true, nil
	}
	return s.isErased(ctx, dataPoint)
}

// retaining is a data point whose facts are being retained.
type retaining struct {
	deletion.Retained
	dataPoint uuid.UUID
	deleted   *datapoint.Deleted // nil before the first part
	principal string             // of deleted
	end       int64              // stream revision of deleted
	newest    int
	// organization is that of the data point.
	organization uuid.UUID

	// began reports that the deletion retains some of the facts.
	began bool
	// ended is nil for a data point whose stream can be read.
	ended *ended
}

// owner is what the events of the data point belong to.
func (r *retaining) owner() Owner {
	if r.ended != nil {
		return Owner{r.organization, r.ended.project}
	}
	return Owner{r.organization, r.deleted.ProjectID}
}

// appendFacts appends events with as few appends as the store allows, and returns the new stream
// revision.
func (e *Eraser) appendFacts(
	ctx context.Context, deletionID uuid.UUID, at eventstore.Revision, parts []*deletion.FactsKept,
) (eventstore.Revision, error) {
	name := stream.Name(stream.Deletion, deletionID)
	events := make([]event.Event, len(parts))
	for i, p := range parts {
		events[i] = p
	}
	proposed, err := e.Journal.Codec.EncodeAll(events, event.NewMeta(finisherName, e.Now()).Of(deletionID))
	if err != nil {
		return at, err
	}
	for len(proposed) > 0 {
		n, size := 0, 0
		for n < len(proposed) {
			if size += proposed[n].Size(); n > 0 && size > eventstore.MaxAppend {
				break
			}
			n++
		}
		done, err := eventstore.AppendUntilKnown(ctx, e.Journal.Store, name, at, proposed[:n])
		if err != nil {
			return at, err
		}
		at, proposed = done.Revision, proposed[n:]
	}
	return at, nil
}

// nextFacts reads the next part of the facts of a data point that are not retained yet. The parts after its
// items count its memories.
func (e *Eraser) nextFacts(ctx context.Context, r *retaining) (*deletion.FactsKept, error) {
	if r.deleted == nil {
		if err := e.readEnd(ctx, r); err != nil {
			return nil, err
		}
	}
	part := &deletion.FactsKept{
		OrganizationID: r.organization, ProjectID: r.deleted.ProjectID, DataPoint: r.dataPoint,
		DeletedAt: r.deleted.DeletedAt, RequestID: r.deleted.RequestID, Facts: []deletion.RetainedFact{},
		From: r.Next, To: r.Next, Newest: r.newest, Principal: r.principal, Single: r.deleted.Single,
	}
	name, from := stream.Name(stream.DataPoint, r.dataPoint), eventstore.Revision(r.Next)
	err := e.Journal.Scan(ctx, name, from, func(f eventstore.DecodedEvent) (bool, error) {
		organization, err := e.organizationOf(ctx, f, r.owner())
		if err != nil {
			return false, err
		}
		if len(part.Records) == 0 {
			part.OrganizationID = organization
		} else if organization != part.OrganizationID {
			return false, nil
		}
		kept, err := f.Kept(organization)
		if err != nil {
			return false, err
		}
		part.Records, part.To = append(part.Records, kept), int64(f.Revision)+1
		fact, is, err := e.factOf(ctx, f)
		if err != nil || !is { // the deletion is the last event, and has no fact
			return f.IsPassedOver(), err
		}
		part.Facts = append(part.Facts, fact)
		part.Blobs = append(part.Blobs, blobsOf(f)...)
		return len(part.Facts) < partFacts && len(part.Blobs) < partBlobs, nil
	})
	if err == nil {
		err = e.addTimes(ctx, part.Facts)
	}
	if err != nil {
		return nil, err
	}
	if r.Next = part.To; r.Next <= r.end {
		return part, nil
	}
	err = e.addMemories(ctx, r, part)
	part.MemoriesTo, part.Complete = r.NextMemory, r.Complete
	return part, err
}

// factOf returns what outlives an item of a data point. ok is false for the event of a deletion.
func (e *Eraser) factOf(
	ctx context.Context, f eventstore.DecodedEvent,
) (fact deletion.RetainedFact, ok bool, err error) {
	send, states, ok := datapoint.SendOf(f.Event)
	if !ok {
		return fact, false, nil
	}
	outcome, _ := datapoint.OutcomeOf(f.Event)
	name, author := datapoint.AuthorOf(f.Event)
	if name != "" {
		author, err = e.Projects.AuthorID(ctx, send.ProjectID, name)
	}
	return deletion.RetainedFact{
		IngestionID: send.IngestionID, Ordinal: send.Ordinal, Items: send.Items, RequestID: send.RequestID,
		AcceptedAt: send.AcceptedAt, Bytes: send.Bytes, CreditTenths: send.CreditTenths, Month: send.Month,
		Outcome: outcome.Outcome, Revision: outcome.Revision, Historic: states.Historic(), AuthorID: author,
		Batch: send.Commit != 0,
	}, true, err
}

// addTimes adds since when a send was searchable to the facts of items that created a revision. No
// watermark ends a send that lost such an item, so a time that is known after the deletion was known
// at it.
func (e *Eraser) addTimes(ctx context.Context, facts []deletion.RetainedFact) error {
	var sends []uuid.UUID
	for _, fact := range facts {
		if fact.CreatedRevision() {
			sends = append(sends, fact.IngestionID)
		}
	}
	if len(sends) == 0 {
		return nil
	}
	since, err := e.Deletions.SearchableSince(ctx, sends)
	if err != nil {
		return err
	}
	for i := range facts {
		if facts[i].CreatedRevision() {
			facts[i].SearchableAt = since[facts[i].IngestionID]
		}
	}
	return nil
}

// readEnd reads the deletion of a data point, and its newest revision before that.
func (e *Eraser) readEnd(ctx context.Context, r *retaining) error {
	name := stream.Name(stream.DataPoint, r.dataPoint)
	last, ok, err := e.Journal.Last(ctx, name)
	if err != nil {
		return err
	}
	deleted, is := last.Event.(*datapoint.Deleted)
	if !ok || !is {
		return fmt.Errorf("retain facts of data point %s: it is not deleted", r.dataPoint)
	}
	r.deleted, r.principal, r.end = deleted, last.Details.Principal, int64(last.Revision)
	if r.organization, err = e.Projects.OrganizationOf(ctx, deleted.ProjectID); err != nil {
		return err
	}
	if last.Revision == 0 { // deleted before its batch was fanned out
		return nil
	}
	for at := last.Revision - 1; at >= 0; at-- {
		before, _, err := e.Journal.At(ctx, name, at)
		if err != nil {
			return err
		}
		if _, states, live := datapoint.SendOf(before.Event); live {
			r.newest = states.Head().Revision
			return nil
		}
	}
	return nil // nothing before it can be read
}

// addMemories adds the next blobs of the memories of a data point, and their counts, to a part. All are
// retained with it unless they are too many.
func (e *Eraser) addMemories(ctx context.Context, r *retaining, part *deletion.FactsKept) error {
	counted, read := 0, 0
	r.Complete = true
	name := stream.Name(stream.Memory, r.dataPoint)
	err := e.Journal.Scan(ctx, name, eventstore.Revision(r.NextMemory), func(f eventstore.DecodedEvent) (bool, error) {
		if len(part.Blobs) >= partBlobs || counted >= partMemoryIDs ||
			read >= partMemoryEvents {
			r.Complete = false
			return false, nil
		}
		organization, err := e.organizationOf(ctx, f, r.owner())
		if err != nil {
			return false, err
		}
		if read == 0 && len(part.Records) == 0 {
			part.OrganizationID = organization
		} else if organization != part.OrganizationID {
			r.Complete = false
			return false, nil
		}
		read++
		kept, err := f.Kept(organization)
		if err != nil {
			return false, err
		}
		part.MemoryRecords, r.NextMemory = append(part.MemoryRecords, kept), int64(f.Revision)+1
		part.Blobs = append(part.Blobs, blobsOf(f)...)
		derived, is := f.Event.(*memory.Derived)
		if !is {
			return true, nil
		}
		count, err := e.countMemories(ctx, derived)
		if count > 0 {
			part.Memories = append(part.Memories, deletion.MemoryCount{Revision: derived.Revision, Count: count})
			counted += count
		}
		return err == nil, err
	})
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil
	}
	return err
}

// countMemories returns how many memories an event holds. A blob that is lost holds none.
func (e *Eraser) countMemories(ctx context.Context, derived *memory.Derived) (int, error) {
	if derived.Blob == nil {
		return len(derived.Memories), nil
	}
	data, err := e.Journal.ReadBlob(ctx, *derived.Blob)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	memories, err := memory.Decode(data)
	if err != nil {
		e.Logger.WarnContext(ctx, "memories of a revision are lost", "blob", derived.Blob.Stream, "err", err)
		return 0, nil
	}
	return len(memories), nil
}

// deletionRecord is a deletion as its stream records it.
type deletionRecord struct {
	deletion.State
	id uuid.UUID
}

// last is the stream revision of the last event, NoStream if there is no such deletion.
func (r *deletionRecord) last() eventstore.Revision { return eventstore.Revision(r.Events) - 1 }

// readDeletion reads the stream of a deletion.
func (s Streams) readDeletion(ctx context.Context, id uuid.UUID) (*deletionRecord, error) {
	r := &deletionRecord{id: id}
	err := s.Journal.Scan(ctx, stream.Name(stream.Deletion, id), 0, func(e eventstore.DecodedEvent) (bool, error) {
		r.Evolve(e.Event)
		return true, nil
	})
	return r, err
}

// readSend reads the stream of a send. It is the zero value if the send has none.
func (s Streams) readSend(ctx context.Context, send uuid.UUID) (state ingestion.State, err error) {
	events, err := s.Journal.ReadFrom(ctx, stream.Name(stream.Ingestion, send), 0)
	for _, e := range events {
		state.Evolve(e.Event)
	}
	return state, err
}

// isErased reports whether the service tombstoned the streams of a data point. It ends the memories first, so the
// stream of a data point whose memories live on was tombstoned by somebody else.
func (s Streams) isErased(ctx context.Context, dataPoint uuid.UUID) (bool, error) {
	for _, of := range []string{stream.DataPoint, stream.Memory} {
		_, _, err := s.Journal.Store.ReadLast(ctx, stream.Name(of, dataPoint))
		if !errors.Is(err, eventstore.ErrDeleted) {
			return false, err
		}
	}
	return true, nil
}

// endedFacts is nextFacts of a data point whose stream is tombstoned. It is nil if another deletion retained the facts
// and erased them. Otherwise somebody else tombstoned the stream: the facts are those that the tables know, and its
// events have no records.
func (e *Eraser) endedFacts(ctx context.Context, record *deletionRecord, r *retaining) (*deletion.FactsKept, error) {
	if r.ended == nil {
		erased, err := e.isErased(ctx, r.dataPoint)
		if err != nil {
			return nil, err
		}
		if erased && !r.began {
			r.Complete = true
			return nil, nil //nolint:nilnil // there is nothing to retain
		}
		blobs, err := e.Blobs.BlobsOf(ctx, []uuid.UUID{r.dataPoint})
		if err != nil {
			return nil, err
		}
		r.ended = &ended{blobs: blobs}
	}
	known, err := e.Deletions.FactsOf(ctx, r.dataPoint, r.ended.revision, partFacts)
	if err != nil {
		return nil, err
	}
	if r.ended.project = cmp.Or(r.ended.project, record.ProjectID, known.ProjectID); r.ended.project == uuid.Nil {
		r.Complete = true
		return nil, nil //nolint:nilnil // nobody knows anything of it
	}
	part := &deletion.FactsKept{
		ProjectID: r.ended.project, DataPoint: r.dataPoint, DeletedAt: known.DeletedAt,
		Facts: known.Items, From: r.Next, To: r.Next, Newest: max(r.newest, known.Newest),
	}
	r.newest = part.Newest
	if record.Commit != nil {
		part.DeletedAt, part.RequestID = record.Commit.AcceptedAt, record.Commit.RequestID
		part.Principal = record.Commit.Principal
	}
	if part.OrganizationID, err = e.Projects.OrganizationOf(ctx, part.ProjectID); err != nil {
		return nil, err
	}
	for _, fact := range part.Facts {
		r.ended.revision = fact.Revision
	}
	n := min(len(r.ended.blobs), partBlobs)
	part.Blobs, r.ended.blobs = r.ended.blobs[:n:n], r.ended.blobs[n:]
	if len(part.Facts) == partFacts || len(r.ended.blobs) > 0 {
		return part, nil
	}
	r.organization = part.OrganizationID
	err = e.addMemories(ctx, r, part)
	part.MemoriesTo, part.Complete = r.NextMemory, r.Complete
	return part, err
}

// ended is how much is retained of a data point whose stream somebody else tombstoned.
type ended struct {
	project  uuid.UUID
	revision int      // the last one whose facts are
	blobs    []string // those that are still to be named
}
