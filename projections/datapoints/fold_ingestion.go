package datapoints

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// committed applies the commit of a batch: the send is there, its items follow as they are fanned out.
func (p *page) committed(at eventstore.Position, id uuid.UUID, e *ingestion.Accepted) {
	s := p.send(id, e.ProjectID)
	p.staged(id, e)
	if s.known {
		return // applied before
	}
	s.known, s.batch, s.request, s.acceptedAt, s.items = true, true, e.RequestID, unnest.Instant(e.AcceptedAt), len(e.Items)
	s.month, s.dirty = e.Month, true
	items := make([]offered, len(e.Items))
	for n, i := range e.Items {
		if i.CreditTenths > 0 { // else it looked unchanged when it was committed
			s.charge(i.Bytes, i.CreditTenths)
		}
		items[n] = offered{dataPoint: i.DataPoint, bytes: i.Bytes}
	}
	p.batches[id] = items
	p.opened.add(id)
	s.settle(at)
}

// fannedOut applies the end of a fan-out: its outcomes are what stands for the items, whatever their own events said, and say
// which of them are charged.
func (p *page) fannedOut(at eventstore.Position, id uuid.UUID, e *ingestion.FannedOut) error {
	s := p.sends[id]
	if s == nil || !s.known {
		return fmt.Errorf("fan-out of a batch that was not committed")
	}
	if s.fannedOut {
		return nil // applied before
	}
	items := p.batches[id]
	if len(e.Outcomes) != s.items || len(items) != s.items {
		return fmt.Errorf("%d outcomes for %d items on %d data points", len(e.Outcomes), s.items, len(items))
	}
	s.charges = charges{}
	for ordinal, o := range e.Outcomes {
		if brought(o.Outcome) {
			s.charge(items[ordinal].bytes, metering.IngestTenths(items[ordinal].bytes))
		}
		i := p.items[itemKey{send: id, ordinal: ordinal}]
		switch {
		case i == nil:
			i = &item{
				itemKey: itemKey{send: id, ordinal: ordinal}, project: e.ProjectID, dataPoint: items[ordinal].dataPoint,
				revision: o.Revision, outcome: o.Outcome, phase: done,
			}
			if brought(o.Outcome) {
				i.phase = erased
			}
			p.insert(at, i)
		case i.outcome != o.Outcome || i.revision != o.Revision:
			p.change(i.position, i, func(i *item) {
				i.outcome, i.revision = o.Outcome, o.Revision
				if !brought(o.Outcome) {
					i.phase = done
				}
			})
		}
	}
	s.fannedOut, s.dirty = true, true
	if s.verdict == failed {
		s.verdict, s.verdictAt, s.code, s.message = "", nil, nil, nil // it was given up too early
	}
	p.batches[id] = nil
	s.settle(at)
	return nil
}

// indexed applies the confirmation that everything of a send is searchable.
func (p *page) indexed(at eventstore.Position, id uuid.UUID, e *ingestion.Indexed) {
	s := p.send(id, e.ProjectID)
	s.decide(indexed, unnest.Instant(e.IndexedAt))
	s.settle(at)
}

// searchable applies a watermark: sends captured up to its position are indexed.
func (p *page) searchable(at eventstore.Position, e *pipeline.Searchable) {
	since := unnest.Instant(e.SearchableAt)
	for _, s := range p.sends {
		if s.endsBy(eventstore.Position(e.Position)) {
			s.searchableAt, s.dirty = &since, true
			s.settle(at)
		}
	}
}

// stopped applies the failure of a send. Where it is the index that failed, the items are why, though each is captured.
// Where a watermark came first, the send stays indexed.
func (p *page) stopped(at eventstore.Position, id uuid.UUID, e *ingestion.Failed) {
	s := p.send(id, e.ProjectID)
	s.decide(failed, unnest.Instant(e.FailedAt))
	s.code, s.message = holdable(e.Code), holdable(e.Message)
	if e.Code == ingestion.IndexUnavailable {
		for _, i := range p.bySend[id] {
			if i.phase == captured && !i.historic {
				p.change(at, i, func(i *item) {
					i.phase, i.code, i.message, i.moot = unindexed, s.code, s.message, p.overtaken(i.dataPoint, i.revision)
				})
			}
		}
	}
	s.settle(at)
}

// retried applies a retry: what failed is queued again from its first attempt, what was captured need not be derived again.
func (p *page) retried(at eventstore.Position, id uuid.UUID, e *ingestion.Retried) {
	s := p.send(id, e.ProjectID)
	s.decide("", unnest.Instant(e.RetriedAt))
	s.verdictAt, s.round = nil, e.Round
	for _, i := range p.bySend[id] {
		if !i.stopped() {
			continue
		}
		p.change(at, i, func(i *item) {
			if i.phase == unindexed {
				i.phase = captured
			} else {
				i.phase, i.attempt = queued, 0
			}
			i.code, i.message, i.moot = nil, nil, false
		})
	}
	s.settle(at)
}
