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
