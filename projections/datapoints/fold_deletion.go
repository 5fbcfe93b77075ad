package datapoints

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// deleted applies the end of a data point: it leaves recall at once, and the items it stands in have nothing left to wait for.
func (p *page) deleted(at eventstore.Position, id uuid.UUID, e *datapoint.Deleted) {
	deletedAt, row := unnest.Instant(e.DeletedAt), p.points[id]
	for _, i := range p.itemsOf[id] {
		if i.gone() || i.changedNothing() {
			continue
		}
		p.change(at, i, func(i *item) {
			i.superseded = row == nil || i.revision != row.revision
			i.end(deletedAt)
		}).settle(at)
	}
	p.forget(id)
	p.erase(at, id, e.ProjectID, e.DeletionID)
	if e.Single {
		p.single(at, e.DeletionID, e.ProjectID, e.DeletedAt)
	}
}

// factsKept applies what outlives an erased data point. It writes the items anew from the facts alone, whether or not this
// replay saw the events of the data point: that is the erasure law.
func (p *page) factsKept(at eventstore.Position, id uuid.UUID, e *deletion.FactsKept) {
	deletedAt, newest := unnest.Instant(e.DeletedAt), e.Standing()
	for _, fact := range e.Facts {
		s := p.send(fact.IngestionID, e.ProjectID)
		if !s.known {
			s.known, s.request, s.acceptedAt, s.items = true, fact.RequestID, unnest.Instant(fact.AcceptedAt), fact.Items
			s.month, s.fannedOut, s.dirty = fact.Month, true, true
			if brought(fact.Outcome) {
				s.charge(fact.Bytes, fact.CreditTenths)
			}
		}
		key := itemKey{send: fact.IngestionID, ordinal: fact.Ordinal}
		i := p.items[key]
		if i == nil {
			i = &item{itemKey: key, project: e.ProjectID, dataPoint: e.DataPoint, phase: erased}
			p.insert(at, i)
		}
		switch {
		case brought(fact.Outcome):
			p.change(at, i, func(i *item) {
				i.outcome, i.revision, i.historic = fact.Outcome, fact.Revision, fact.Historic
				i.superseded = fact.Revision != newest
				i.end(deletedAt)
			})
		case i.phase != done || i.outcome != fact.Outcome || i.revision != fact.Revision || i.historic != fact.Historic:
			p.change(at, i, func(i *item) {
				i.outcome, i.revision, i.historic, i.phase = fact.Outcome, fact.Revision, fact.Historic, done
			})
		}
		if e.Ranged() && fact.Brought() {
			s.tell(fact.SearchableAt)
		}
		s.settle(at)
	}
	p.forget(e.DataPoint)
	p.single(at, id, e.ProjectID, e.DeletedAt)
	row := p.erase(at, e.DataPoint, e.ProjectID, id)
	row.factsKept, row.blobs, row.dirty = row.factsKept || e.Complete || !e.Ranged(), e.Blobs, true
}

// erase puts a data point on the finisher's list.
func (p *page) erase(at eventstore.Position, dataPoint, project, deletion uuid.UUID) *erasure {
	row := p.erasures[dataPoint]
	if row == nil {
		row = &erasure{dataPoint: dataPoint, project: project, deletion: deletion, position: at, dirty: true}
		p.erasures[dataPoint] = row
	}
	return row
}

// single makes the row of a deletion that has no commit of its own, for it takes one data point only.
func (p *page) single(at eventstore.Position, id, project uuid.UUID, accepted time.Time) {
	if p.deletions[id] == nil {
		p.deletions[id] = &deletionRow{
			id: id, project: project, acceptedAt: unnest.Instant(accepted), fannedOut: true, position: at, dirty: true,
		}
	}
}

// deletionAccepted applies the commit of a deletion of several ids, or of a send.
func (p *page) deletionAccepted(at eventstore.Position, id uuid.UUID, e *deletion.Accepted) {
	if p.deletions[id] == nil {
		p.deletions[id] = &deletionRow{
			id: id, project: e.ProjectID, send: e.IngestionID, acceptedAt: unnest.Instant(e.AcceptedAt), position: at, dirty: true,
		}
	}
}

// deletionFannedOut applies the end of a deletion's fan-out. A send that is deleted is done, and what it brought and that
// lives on has left its list.
func (p *page) deletionFannedOut(at eventstore.Position, id uuid.UUID) error {
	row := p.deletions[id]
	if row == nil {
		return fmt.Errorf("fan-out of a deletion that was not committed")
	}
	if row.fannedOut {
		return nil // applied before
	}
	row.fannedOut, row.dirty = true, true
	if row.send == uuid.Nil {
		return nil
	}
	if s := p.send(row.send, row.project); s.deletedAt == nil {
		s.deletedAt, s.dirty = &row.acceptedAt, true
		s.settle(at)
	}
	return nil
}

// deletionCleaned applies the end of a deletion: the finisher has nothing more to do.
func (p *page) deletionCleaned(id uuid.UUID) error {
	row := p.deletions[id]
	if row == nil {
		return fmt.Errorf("end of a deletion that took nothing")
	}
	row.cleaned, row.dirty = true, true
	p.cleaned.add(id)
	return nil
}
