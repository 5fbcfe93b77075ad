package datapoints

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// batchAccepted applies the commit of a batch. It adds the send; its items follow with the fan-out.
func (f *fold) batchAccepted(at eventstore.Position, id uuid.UUID, e *ingestion.Accepted) {
	s := f.send(id, e.ProjectID)
	f.noteStage(id, e)
	if s.known {
		return // applied before
	}
	s.known, s.batch, s.dirty = true, true, true
	s.request, s.acceptedAt, s.items, s.month = e.RequestID, pgarray.Instant(e.AcceptedAt), len(e.Items), e.Month
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
	if s.fannedOut {
		return nil // applied before
	}
	items := f.batches[id]
	if len(e.Outcomes) != s.items || len(items) != s.items {
		return fmt.Errorf("%d outcomes for %d items on %d data points", len(e.Outcomes), s.items, len(items))
	}
	s.charges = charges{}
	for ordinal, o := range e.Outcomes {
		if createsRevision(o.Outcome) {
			s.charge(items[ordinal].bytes, metering.IngestTenths(items[ordinal].bytes))
		}
		i := f.items[itemKey{send: id, ordinal: ordinal}]
		switch {
		case i == nil:
			i = &item{
				itemKey: itemKey{send: id, ordinal: ordinal}, project: e.ProjectID, dataPoint: items[ordinal].dataPoint,
				revision: o.Revision, outcome: o.Outcome, phase: done, batch: true,
			}
			if createsRevision(o.Outcome) {
				i.phase = erased
			}
			f.insertItem(at, i)
		case i.outcome != o.Outcome || i.revision != o.Revision:
			f.changeItem(i.position, i, func(i *item) {
				i.outcome, i.revision = o.Outcome, o.Revision
				if !createsRevision(o.Outcome) {
					i.phase, i.bytes = done, 0
				}
			})
		}
	}
	s.fannedOut, s.dirty = true, true
	if s.finalPhase == failed {
		s.finalPhase, s.finalAt, s.code, s.message = "", nil, nil, nil // it was abandoned too early
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
			s.searchableAt, s.dirty = &since, true
			s.derivePhase(at)
		}
	}
}

// sendFailed applies the failure of a send. If the index failed, its captured items become
// unindexed. A send that a watermark ended before stays indexed.
func (f *fold) sendFailed(at eventstore.Position, id uuid.UUID, e *ingestion.Failed) {
	s := f.send(id, e.ProjectID)
	s.setFinalPhase(failed, pgarray.Instant(e.FailedAt))
	s.code, s.message = withoutNUL(e.Code), withoutNUL(e.Message)
	if e.Code == ingestion.IndexUnavailable {
		for _, i := range f.bySend[id] {
			if i.phase == captured && !i.historic {
				f.changeItem(at, i, func(i *item) {
					i.phase, i.code, i.message, i.overtaken = unindexed, s.code, s.message, f.hasNewerCaptured(i.dataPoint, i.revision)
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
	s.finalAt, s.round = nil, e.Round
	for _, i := range f.bySend[id] {
		if !i.hasFailed() {
			continue
		}
		f.changeItem(at, i, func(i *item) {
			if i.phase == unindexed {
				i.phase = captured
			} else {
				i.phase, i.attempt = queued, 0
			}
			i.code, i.message, i.overtaken = nil, nil, false
		})
	}
	s.derivePhase(at)
}
