package datapoints

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
)

// fold holds the rows that a page of events touches: first as loaded, then as changed by the
// events.
type fold struct {
	items          map[itemKey]*item
	itemsOf        map[uuid.UUID][]*item // by data point
	bySend         map[uuid.UUID][]*item
	sends          map[uuid.UUID]*send
	dataPoints     map[uuid.UUID]*dataPointRow
	removed        ids          // data points to delete with their revisions
	unlisted       ids          // data points to delete, whose revisions a follow-up deletes
	uncounted      []scopeShare // what the rows to delete counted for
	revisions      []*revision
	movedAudiences map[revisionKey]*uuid.UUID // the audience of a revision after the moves of the page, nil if unknown
	deletions      map[uuid.UUID]*deletionRow
	erasures       map[uuid.UUID]*erasure
	cleaned        ids                       // deletions whose erasures to delete
	batches        map[uuid.UUID][]batchItem // the items of a batch, nil once it is fanned out
	newBatches     ids                       // batches committed within the page
	blobs          map[string]*blobRow       // blobs opened, referred to or tombstoned within the page
	finishedBulks  ids                       // fanned-out bulk writes: their staged rows are no longer needed
	damaged        map[string]*damage        // streams that somebody else ended or hid in the page, nil if that is over

	most      int                                  // items of a data point that the page changes; the rest has a follow-up
	ending    ids                                  // data points whose items a follow-up ends: none is due
	followed  bool                                 // there are follow-ups of earlier pages
	followUps map[followUpKey]projections.FollowUp // of this page
}

func newFold() *fold {
	return &fold{
		items: map[itemKey]*item{}, itemsOf: map[uuid.UUID][]*item{}, bySend: map[uuid.UUID][]*item{},
		sends: map[uuid.UUID]*send{}, dataPoints: map[uuid.UUID]*dataPointRow{}, removed: ids{}, unlisted: ids{},
		ending:    ids{},
		deletions: map[uuid.UUID]*deletionRow{}, erasures: map[uuid.UUID]*erasure{}, cleaned: ids{},
		batches: map[uuid.UUID][]batchItem{}, newBatches: ids{},
		blobs: map[string]*blobRow{}, finishedBulks: ids{}, movedAudiences: map[revisionKey]*uuid.UUID{},
		followUps: map[followUpKey]projections.FollowUp{}, damaged: map[string]*damage{},
	}
}

// apply folds one event. It fails on one that contradicts an earlier event. Others are counted only for their blobs.
func (f *fold) apply(decoded eventstore.DecodedEvent) error {
	owner := stream.Owner(decoded.Stream)
	f.noteReferences(decoded.Event)
	if send, states, ok := datapoint.SendOf(decoded.Event); ok {
		f.applyItem(decoded, owner, send, states)
		return nil
	}
	switch e := decoded.Event.(type) {
	case *datapoint.Deleted:
		f.deleted(decoded.Position, owner, e)
	case *memory.DerivationStarted:
		f.derivationStarted(decoded.Position, e)
	case *memory.Derived:
		f.memoriesDerived(decoded, owner, e)
	case *memory.Failed:
		f.derivationFailed(decoded.Position, e)
	case *memory.Embedded: // projection embeddings keeps the vectors
		f.noteVectors(decoded.Revision, owner)
	case *ingestion.Accepted:
		f.batchAccepted(decoded.Position, owner, e)
	case *ingestion.FannedOut:
		return f.batchFannedOut(decoded.Position, owner, e)
	case *ingestion.Indexed:
		f.sendIndexed(decoded.Position, owner, e)
	case *pipeline.Searchable:
		f.applyWatermark(decoded.Position, e)
	case *ingestion.Failed:
		f.sendFailed(decoded.Position, owner, e)
	case *ingestion.Retried:
		f.sendRetried(decoded.Position, owner, e)
	case *blob.Opened:
		f.blobOpened(decoded.Position, decoded.Stream, e)
	case *eventstore.Tombstoned:
		f.streamTombstoned(decoded.Position, e.Stream)
	case *eventstore.MetadataWritten:
		f.metadataWritten(decoded.Position, e)
	case *identity.BulkFannedOut:
		f.bulkFannedOut(owner)
	case *deletion.Accepted:
		f.deletionAccepted(decoded.Position, owner, e)
	case *deletion.FannedOut:
		return f.deletionFannedOut(decoded.Position, owner)
	case *deletion.FactsKept:
		f.factsKept(decoded.Position, owner, e)
	case *deletion.Cleaned:
		return f.deletionCleaned(owner)
	}
	return nil
}

// send returns the row of a send. If there is none, it adds one with the send's ids only.
func (f *fold) send(id, project uuid.UUID) *send {
	s := f.sends[id]
	if s == nil {
		s = &send{sendWithoutItems: sendWithoutItems{ID: id, Project: project}}
		f.sends[id] = s
	}
	return s
}

// addItem indexes an item in the maps of the fold.
func (f *fold) addItem(i *item) {
	f.items[i.itemKey] = i
	f.itemsOf[i.DataPoint] = append(f.itemsOf[i.DataPoint], i)
	f.bySend[i.itemKey.Send] = append(f.bySend[i.itemKey.Send], i)
}

// insertItem adds an item that an event created, and counts it in its send.
func (f *fold) insertItem(at eventstore.Position, i *item) {
	i.Position, i.dirty = at, true
	f.addItem(i)
	s := f.sends[i.itemKey.Send]
	s.count(i, +1)
	s.dirty = true
}

// changeItem changes an item and the counts of its send. The caller then derives the phase of the
// send.
func (f *fold) changeItem(at eventstore.Position, i *item, to func(*item)) *send {
	s := f.sends[i.itemKey.Send]
	s.count(i, -1)
	to(i)
	s.count(i, +1)
	i.Position, i.dirty, s.dirty = at, true, true
	return s
}

// batchAccepted applies the commit of a batch. It adds the send; its items follow with the fan-out.
func (f *fold) batchAccepted(at eventstore.Position, id uuid.UUID, e *ingestion.Accepted) {
	s := f.send(id, e.ProjectID)
	f.noteStage(id, e)
	if s.known {
		return // applied before
	}
	s.known, s.Batch, s.dirty = true, true, true
	s.Request, s.AcceptedAt, s.Items, s.Month = e.RequestID, pgarray.Instant(e.AcceptedAt), len(e.Items), e.Month
	items := make([]batchItem, len(e.Items))
	for n, i := range e.Items {
		if i.CreditTenths > 0 { // 0: the item looked unchanged at the commit
			s.charge(i.Bytes, i.CreditTenths)
		}
		items[n] = batchItem{dataPoint: i.DataPoint, bytes: i.Bytes}
	}
	f.batches[id] = items
	f.newBatches.add(id)
	s.derivePhase(at)
}

// batchFannedOut applies the end of a batch's fan-out. Its outcomes replace those of the items' own
// events, and decide which items are charged.
func (f *fold) batchFannedOut(at eventstore.Position, id uuid.UUID, e *ingestion.FannedOut) error {
	s := f.sends[id]
	if s == nil || !s.known {
		return fmt.Errorf("batch was fanned out without a commit")
	}
	if s.FannedOut {
		return nil // applied before
	}
	items := f.batches[id]
	if len(e.Outcomes) != s.Items || len(items) != s.Items {
		return fmt.Errorf("%d outcomes for %d items on %d data points", len(e.Outcomes), s.Items, len(items))
	}
	s.charges = charges{}
	for ordinal, o := range e.Outcomes {
		if createsRevision(o.Outcome) {
			s.charge(items[ordinal].bytes, metering.IngestTenths(items[ordinal].bytes))
		}
		i := f.items[itemKey{Send: id, Ordinal: ordinal}]
		switch {
		case i == nil:
			i = &item{
				itemKey: itemKey{Send: id, Ordinal: ordinal}, Project: e.ProjectID, DataPoint: items[ordinal].dataPoint,
				Revision: o.Revision, Outcome: o.Outcome, Phase: done, Batch: true,
			}
			if createsRevision(o.Outcome) {
				i.Phase = erased
			}
			f.insertItem(at, i)
		case i.Outcome != o.Outcome || i.Revision != o.Revision:
			f.changeItem(i.Position, i, func(i *item) {
				i.Outcome, i.Revision = o.Outcome, o.Revision
				if !createsRevision(o.Outcome) {
					i.Phase, i.Bytes = done, 0
				}
			})
		}
	}
	s.FannedOut, s.dirty = true, true
	if s.FinalPhase == failed {
		s.FinalPhase, s.FinalAt, s.Code, s.Message = "", nil, nil, nil // it was abandoned too early
	}
	f.batches[id] = nil
	s.derivePhase(at)
	return nil
}

// sendIndexed applies the confirmation that all of a send is searchable.
func (f *fold) sendIndexed(at eventstore.Position, id uuid.UUID, e *ingestion.Indexed) {
	s := f.send(id, e.ProjectID)
	s.setFinalPhase(indexed, pgarray.Instant(e.IndexedAt))
	s.derivePhase(at)
}

// applyWatermark applies a watermark: sends captured up to its position are indexed.
func (f *fold) applyWatermark(at eventstore.Position, e *pipeline.Searchable) {
	since := pgarray.Instant(e.SearchableAt)
	for _, s := range f.sends {
		if s.endedBy(eventstore.Position(e.Position)) {
			s.SearchableAt, s.dirty = &since, true
			s.derivePhase(at)
		}
	}
}

// sendFailed applies the failure of a send. If the index failed, its captured items become
// unindexed. A send that a watermark ended before stays indexed.
func (f *fold) sendFailed(at eventstore.Position, id uuid.UUID, e *ingestion.Failed) {
	s := f.send(id, e.ProjectID)
	s.setFinalPhase(failed, pgarray.Instant(e.FailedAt))
	s.Code, s.Message = withoutNUL(e.Code), withoutNUL(e.Message)
	if e.Code == ingestion.IndexUnavailable {
		for _, i := range f.bySend[id] {
			if i.Phase == captured && !i.Historic {
				f.changeItem(at, i, func(i *item) {
					i.Phase, i.Code, i.Message, i.Overtaken = unindexed, s.Code, s.Message, f.hasNewerCaptured(i.DataPoint, i.Revision)
				})
			}
		}
	}
	s.derivePhase(at)
}

// sendRetried applies a retry. Failed items are queued again from their first attempt; captured
// items are not derived again.
func (f *fold) sendRetried(at eventstore.Position, id uuid.UUID, e *ingestion.Retried) {
	s := f.send(id, e.ProjectID)
	s.setFinalPhase("", pgarray.Instant(e.RetriedAt))
	s.FinalAt, s.Round = nil, e.Round
	for _, i := range f.bySend[id] {
		if !i.hasFailed() {
			continue
		}
		f.changeItem(at, i, func(i *item) {
			if i.Phase == unindexed {
				i.Phase = captured
			} else {
				i.Phase, i.Attempt = queued, 0
			}
			i.Code, i.Message, i.Overtaken = nil, nil, false
		})
	}
	s.derivePhase(at)
}

// applyItem applies a revision, a move or a re-send, as an item of its send and to the data point.
func (f *fold) applyItem(decoded eventstore.DecodedEvent, id uuid.UUID, from datapoint.Send, states datapoint.States) {
	key := itemKey{Send: from.IngestionID, Ordinal: from.Ordinal}
	if f.items[key] != nil {
		return // applied before, or its data point is known to be erased
	}
	outcome, _ := datapoint.OutcomeOf(decoded.Event)
	s := f.send(from.IngestionID, from.ProjectID)
	if !s.known && from.Commit == 0 {
		s.known, s.Request, s.AcceptedAt, s.Items = true, from.RequestID, pgarray.Instant(from.AcceptedAt), from.Items
		s.Month, s.FannedOut = from.Month, true
		if createsRevision(outcome.Outcome) {
			s.charge(from.Bytes, from.CreditTenths)
		}
	}
	i := &item{
		itemKey: key, Project: from.ProjectID, DataPoint: id, Revision: outcome.Revision, Historic: states.Historic(),
		Outcome: outcome.Outcome, Phase: done, Batch: from.Commit != 0,
	}
	if createsRevision(outcome.Outcome) {
		i.Bytes = from.Bytes
	}
	switch {
	case !createsRevision(outcome.Outcome):
	case states.Historic(): // never derived, never indexed
		i.Phase = captured
	default:
		i.Phase = queued
	}
	f.insertItem(decoded.Position, i)
	s.derivePhase(decoded.Position)
	f.applyToDataPoint(decoded, id, from, states)
}

// applyToDataPoint applies an event to the data point. A historic event adds its revision and
// changes nothing else.
func (f *fold) applyToDataPoint(
	decoded eventstore.DecodedEvent, id uuid.UUID, from datapoint.Send, states datapoint.States,
) {
	var accepted *revision
	if e, revised := decoded.Event.(*datapoint.RevisionAccepted); revised {
		accepted = newRevision(id, e)
		f.revisions = append(f.revisions, accepted)
	}
	if _, moved := decoded.Event.(*datapoint.Moved); moved {
		f.noteAudience(id, states)
	}
	if states.Historic() {
		return
	}
	row := f.dataPoints[id]
	if row == nil {
		if accepted == nil {
			return // the revision that it refers to was erased
		}
		row = &dataPointRow{ID: id, Project: from.ProjectID}
		f.dataPoints[id] = row
	}
	switch e := decoded.Event.(type) {
	case *datapoint.RevisionAccepted:
		row.Author, row.LabelKey = pgarray.Optional(e.Author), labelKey(states.Effect.Label)
		row.ranked = rankedOf(e, accepted.Tokens)
		row.Revision, row.OccurredAt = states.Effect.Revision, pgarray.Instant(states.Effect.OccurredAt)
		row.Send, row.AcceptedAt = from.IngestionID, pgarray.Instant(from.AcceptedAt)
	case *datapoint.Moved:
	default:
		return
	}
	row.SourceID, row.Audience = states.Effect.SourceID, states.Effect.Audience
	row.Position, row.dirty = decoded.Position, true
}

// noteAudience records the audience that a move gives to its revision. A historic move changes
// nothing if that revision is still the newest. If a newer revision exists, the last audience of
// the older one is unknown.
func (f *fold) noteAudience(id uuid.UUID, states datapoint.States) {
	key := revisionKey{id, states.Effect.Revision}
	switch {
	case !states.Historic():
		f.movedAudiences[key] = &states.Effect.Audience
	case states.Current.Revision != key.Number:
		f.movedAudiences[key] = nil
	}
}

// removeDataPoint removes the rows that hold text of a data point.
func (f *fold) removeDataPoint(id uuid.UUID) {
	if row := f.dataPoints[id]; row != nil && row.counted != nil {
		f.uncounted = append(f.uncounted, *row.counted)
	}
	delete(f.dataPoints, id)
	f.removed.add(id)
	f.undamaged(id)
	others := f.revisions[:0]
	for _, r := range f.revisions {
		if r.DataPoint != id {
			others = append(others, r)
		}
	}
	f.revisions = others
	for key := range f.movedAudiences {
		if key.DataPoint == id {
			delete(f.movedAudiences, key)
		}
	}
}

// openItem returns the item of an attempt. It returns nil if the attempt changes nothing: the item
// has ended, its data point was deleted, or the send was retried since.
func (f *fold) openItem(send uuid.UUID, ordinal, round int) *item {
	i := f.items[itemKey{Send: send, Ordinal: ordinal}]
	if i == nil || !i.isOpen() || round < f.sends[send].Round {
		return nil
	}
	return i
}

// derivationStarted applies the start of an attempt.
func (f *fold) derivationStarted(at eventstore.Position, e *memory.DerivationStarted) {
	i := f.openItem(e.IngestionID, e.Ordinal, e.Round)
	if i == nil {
		return
	}
	f.changeItem(at, i, func(i *item) { i.Phase, i.Attempt = processing, e.Attempt }).derivePhase(at)
}

// derivationFailed applies the failure of an attempt, which is in the stream of the memories or, if that is
// tombstoned, of the send.
func (f *fold) derivationFailed(at eventstore.Position, e *memory.Failed) {
	i := f.openItem(e.IngestionID, e.Ordinal, e.Round)
	if i == nil {
		return
	}
	f.changeItem(at, i, func(i *item) {
		i.Phase, i.Attempt = queued, e.Attempt
		i.Code, i.Message = withoutNUL(e.Code), withoutNUL(e.Message)
		if e.Final {
			i.Phase, i.Overtaken = failed, f.hasNewerCaptured(i.DataPoint, i.Revision)
		}
	}).derivePhase(at)
}

// memoriesDerived applies the memories of a revision. If the revision already had memories, no item
// changes.
func (f *fold) memoriesDerived(decoded eventstore.DecodedEvent, dataPoint uuid.UUID, e *memory.Derived) {
	at := decoded.Position
	i, row := f.items[itemKey{Send: e.IngestionID, Ordinal: e.Ordinal}], f.dataPoints[dataPoint]
	if i == nil || !i.isOpen() && i.Phase != failed {
		if row != nil && row.Captured == e.Revision {
			row.setMemories(e, decoded.Revision)
		}
		return
	}
	s := f.changeItem(at, i, func(i *item) { i.Phase, i.Code, i.Message, i.Overtaken = captured, nil, nil, false })
	s.derivePhase(at)
	if s.Phase == captured {
		// A watermark ends the send only after this capture, also if the item had failed before and
		// was derived late.
		s.Position = at
	}
	if row == nil || row.Captured >= e.Revision {
		return
	}
	row.Captured = e.Revision
	row.setMemories(e, decoded.Revision)
	data := followUpData{Captured: row.Captured}
	if f.hasMore(dataPoint, func(i *item) bool { return i.hasFailed() && !i.Overtaken }) {
		f.followUp(followUpKey{overtakenItems, dataPoint}, at, row.Project, data)
	}
	for _, older := range f.itemsOf[dataPoint] {
		f.overtakeItem(at, older, data)
	}
}

// setMemories sets the memories of the newest captured revision, and where they are in their stream.
func (d *dataPointRow) setMemories(e *memory.Derived, at eventstore.Revision) {
	d.Memories, d.derived, d.dirty = len(e.Memories), e.Blob, true
	d.MemoryHead = new(int64(at))
}

// noteVectors moves the head of a memory stream past vectors that directly follow the memories. Anything
// else that is between them is an attempt, which the head must not pass.
func (f *fold) noteVectors(at eventstore.Revision, dataPoint uuid.UUID) {
	row := f.dataPoints[dataPoint]
	if row == nil || row.MemoryHead == nil || *row.MemoryHead != int64(at)-1 {
		return
	}
	row.MemoryHead, row.dirty = new(int64(at)), true
}

// hasNewerCaptured reports whether a newer revision of the data point is captured. Then a failure
// of this revision no longer counts.
func (f *fold) hasNewerCaptured(dataPoint uuid.UUID, revision int) bool {
	row := f.dataPoints[dataPoint]
	return row != nil && revision < row.Captured
}
