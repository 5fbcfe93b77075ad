package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
)

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
