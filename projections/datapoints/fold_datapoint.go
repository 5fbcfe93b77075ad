package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// sent applies a revision, a move or a re-send: to the data point, and as an item of its send.
func (p *page) sent(f eventstore.Fact, id uuid.UUID, from datapoint.Send, standing datapoint.Standing) {
	key := itemKey{send: from.IngestionID, ordinal: from.Ordinal}
	if p.items[key] != nil {
		return // applied before, or its data point is known to be erased
	}
	outcome, _ := datapoint.OutcomeOf(f.Event)
	s := p.send(from.IngestionID, from.ProjectID)
	if !s.known && from.Commit == 0 {
		s.known, s.request, s.acceptedAt, s.items = true, from.RequestID, unnest.Instant(from.AcceptedAt), from.Items
		s.month, s.fannedOut = from.Month, true
		if brought(outcome.Outcome) {
			s.charge(from.Bytes, from.CreditTenths)
		}
	}
	i := &item{
		itemKey: key, project: from.ProjectID, dataPoint: id, revision: outcome.Revision, historic: standing.Historic(),
		outcome: outcome.Outcome, phase: done,
	}
	switch {
	case !brought(outcome.Outcome):
	case standing.Historic(): // never derived, never indexed
		i.phase = captured
	default:
		i.phase = queued
	}
	p.insert(f.Position, i)
	s.settle(f.Position)
	p.stand(f, id, from, standing)
}

// stand applies an event to the data point itself. What is stored behind later effects adds to its history only.
func (p *page) stand(f eventstore.Fact, id uuid.UUID, from datapoint.Send, standing datapoint.Standing) {
	e, revised := f.Event.(*datapoint.RevisionAccepted)
	if revised {
		p.revisions = append(p.revisions, revision{dataPoint: id, event: e})
	}
	if _, moved := f.Event.(*datapoint.Moved); moved {
		p.scope(id, standing)
	}
	if standing.Historic() {
		return
	}
	row := p.points[id]
	if row == nil {
		if !revised {
			return // the revision it stands on was erased
		}
		row = &point{id: id, project: from.ProjectID}
		p.points[id] = row
	}
	switch f.Event.(type) {
	case *datapoint.RevisionAccepted:
		row.revision, row.occurredAt = standing.Effect.Revision, unnest.Instant(standing.Effect.OccurredAt)
		row.send, row.acceptedAt = from.IngestionID, unnest.Instant(from.AcceptedAt)
	case *datapoint.Moved:
	default:
		return
	}
	row.sourceID, row.audience = standing.Effect.SourceID, standing.Effect.Audience
	row.position, row.dirty = f.Position, true
}

// scope notes the audience that a move gives to the revision that it is about. A move that is stored behind later effects changes
// nothing if the revision is still the newest. If another followed, which audience was the last is not known.
func (p *page) scope(id uuid.UUID, standing datapoint.Standing) {
	key := revisionKey{id, standing.Effect.Revision}
	switch {
	case !standing.Historic():
		p.scopings[key] = &standing.Effect.Audience
	case standing.Current.Revision != key.number:
		p.scopings[key] = nil
	}
}

// forget drops what holds the text of a data point.
func (p *page) forget(id uuid.UUID) {
	if row := p.points[id]; row != nil && row.counted != nil {
		p.uncounted = append(p.uncounted, *row.counted)
	}
	delete(p.points, id)
	p.forgotten.add(id)
	kept := p.revisions[:0]
	for _, r := range p.revisions {
		if r.dataPoint != id {
			kept = append(kept, r)
		}
	}
	p.revisions = kept
	for key := range p.scopings {
		if key.dataPoint == id {
			delete(p.scopings, key)
		}
	}
}
