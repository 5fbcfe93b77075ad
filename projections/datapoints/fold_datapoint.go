package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

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
