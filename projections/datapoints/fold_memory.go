package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
)

// attempted finds the item that an attempt is about. It is nil where the attempt changes nothing: no worker may work on the
// item any more, since it came to an end or its data point was deleted, or a retry came between.
func (p *page) attempted(send uuid.UUID, ordinal, round int) *item {
	i := p.items[itemKey{send: send, ordinal: ordinal}]
	if i == nil || !i.open() || round < p.sends[send].round {
		return nil
	}
	return i
}

// started applies the begin of an attempt.
func (p *page) started(at eventstore.Position, e *memory.DerivationStarted) {
	i := p.attempted(e.IngestionID, e.Ordinal, e.Round)
	if i == nil {
		return
	}
	p.change(at, i, func(i *item) { i.phase, i.attempt = processing, e.Attempt }).settle(at)
}

// failed applies the failure of an attempt.
func (p *page) failed(at eventstore.Position, dataPoint uuid.UUID, e *memory.Failed) {
	i := p.attempted(e.IngestionID, e.Ordinal, e.Round)
	if i == nil {
		return
	}
	p.change(at, i, func(i *item) {
		i.phase, i.attempt = queued, e.Attempt
		i.code, i.message = holdable(e.Code), holdable(e.Message)
		if e.Final {
			i.phase, i.moot = failed, p.overtaken(dataPoint, i.revision)
		}
	}).settle(at)
}

// derived applies the memories of a revision. Those of one that has memories, derived anew, move no item.
func (p *page) derived(at eventstore.Position, dataPoint uuid.UUID, e *memory.Derived) {
	i, row := p.items[itemKey{send: e.IngestionID, ordinal: e.Ordinal}], p.points[dataPoint]
	if i == nil || !i.open() && i.phase != failed {
		if row != nil && row.captured == e.Revision {
			row.hold(e)
		}
		return
	}
	s := p.change(at, i, func(i *item) { i.phase, i.code, i.message, i.moot = captured, nil, nil, false })
	s.settle(at)
	if s.phase == captured {
		// All of the send must be searchable, also an item that had failed and was derived late.
		s.position = at
	}
	if row == nil || row.captured >= e.Revision {
		return
	}
	row.captured = e.Revision
	row.hold(e)
	for _, older := range p.itemsOf[dataPoint] {
		if older.stopped() && !older.moot && older.revision < row.captured {
			position := older.position // it stays the failure that came first
			p.change(position, older, func(i *item) { i.moot = true }).settle(at)
		}
	}
}

// hold takes the memories of the newest captured revision.
func (d *point) hold(e *memory.Derived) {
	d.memories, d.derived, d.dirty = len(e.Memories), e.Blob, true
}

// overtaken reports whether a newer revision of the data point is captured: then a failure of this one does not stand.
func (p *page) overtaken(dataPoint uuid.UUID, revision int) bool {
	row := p.points[dataPoint]
	return row != nil && revision < row.captured
}
