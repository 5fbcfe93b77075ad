package datapoints

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// deleted applies the deletion of a data point: it leaves recall at once, and none of its items
// waits any longer.
func (f *fold) deleted(at eventstore.Position, id uuid.UUID, e *datapoint.Deleted) {
	data, row := followUpData{DeletedAt: pgarray.Instant(e.DeletedAt)}, f.dataPoints[id]
	if row != nil {
		data.Newest = row.Revision
	}
	isNew, many := row != nil, f.hasMore(id, func(i *item) bool { return !i.keepsRevision() })
	for _, i := range f.itemsOf[id] {
		isNew = f.endItem(at, i, data) || isNew
	}
	if f.removeDataPoint(id); many && isNew {
		f.followUp(followUpKey{deleteItems, id}, at, e.ProjectID, data)
		delete(f.removed, id)
		f.unlisted.add(id)
	}
	f.addErasure(at, id, e.ProjectID, e.DeletionID)
	if e.Single {
		f.ensureDeletion(at, e.DeletionID, e.ProjectID, e.DeletedAt)
	}
}

// factsKept applies the retained facts of an erased data point. It sets the items from the facts
// alone, whether or not this replay read the events of the data point, so that both replays yield
// the same rows: this is the erasure law.
func (f *fold) factsKept(at eventstore.Position, id uuid.UUID, e *deletion.FactsKept) {
	deletedAt, newest := pgarray.Instant(e.DeletedAt), e.Newest
	for _, fact := range e.Facts {
		s := f.send(fact.IngestionID, e.ProjectID)
		if !s.known {
			s.known, s.Request, s.AcceptedAt, s.Items = true, fact.RequestID, pgarray.Instant(fact.AcceptedAt), fact.Items
			s.Month, s.FannedOut, s.dirty = fact.Month, true, true
			if createsRevision(fact.Outcome) {
				s.charge(fact.Bytes, fact.CreditTenths)
			}
		}
		key := itemKey{Send: fact.IngestionID, Ordinal: fact.Ordinal}
		i := f.items[key]
		if i == nil {
			i = &item{itemKey: key, Project: e.ProjectID, DataPoint: e.DataPoint, Phase: erased, Batch: s.Batch}
			f.insertItem(at, i)
		}
		switch {
		case createsRevision(fact.Outcome):
			f.changeItem(at, i, func(i *item) {
				i.Outcome, i.Revision, i.Historic = fact.Outcome, fact.Revision, fact.Historic
				i.Outdated = fact.Revision != newest
				i.markDeleted(deletedAt)
			})
		case i.Phase != done || i.Outcome != fact.Outcome || i.Revision != fact.Revision || i.Historic != fact.Historic:
			f.changeItem(at, i, func(i *item) {
				i.Outcome, i.Revision, i.Historic, i.Phase = fact.Outcome, fact.Revision, fact.Historic, done
				i.Bytes = 0
			})
		}
		if fact.CreatedRevision() {
			s.setSearchableAt(fact.SearchableAt)
		}
		s.derivePhase(at)
	}
	f.removeErased(at, e)
	f.ensureDeletion(at, id, e.ProjectID, e.DeletedAt)
	row := f.addErasure(at, e.DataPoint, e.ProjectID, id)
	row.FactsKept, row.Blobs, row.dirty = row.FactsKept || e.Complete, append([]string{}, e.Blobs...), true
}

// addErasure adds a data point to the work list of the finisher.
func (f *fold) addErasure(at eventstore.Position, dataPoint, project, deletion uuid.UUID) *erasure {
	row := f.erasures[dataPoint]
	if row == nil {
		row = &erasure{
			DataPoint: dataPoint, Project: project, Deletion: deletion, Blobs: []string{}, Position: at, dirty: true,
		}
		f.erasures[dataPoint] = row
	}
	return row
}

// ensureDeletion adds the row of a deletion of one data point, which has no separate commit.
func (f *fold) ensureDeletion(at eventstore.Position, id, project uuid.UUID, accepted time.Time) {
	if f.deletions[id] == nil {
		f.deletions[id] = &deletionRow{
			ID: id, Project: project, AcceptedAt: pgarray.Instant(accepted), FannedOut: true, Position: at, dirty: true,
		}
	}
}

// deletionAccepted applies the commit of a deletion of several data points, or of a send.
func (f *fold) deletionAccepted(at eventstore.Position, id uuid.UUID, e *deletion.Accepted) {
	if f.deletions[id] == nil {
		f.deletions[id] = &deletionRow{
			ID: id, Project: e.ProjectID, Send: e.IngestionID, AcceptedAt: pgarray.Instant(e.AcceptedAt),
			Position: at, dirty: true,
		}
	}
}

// deletionFannedOut applies the end of a deletion's fan-out. A deleted send is then done. Its items
// whose data points live on are no longer listed.
func (f *fold) deletionFannedOut(at eventstore.Position, id uuid.UUID) error {
	row := f.deletions[id]
	if row == nil {
		return fmt.Errorf("deletion was fanned out without a commit")
	}
	if row.FannedOut {
		return nil // applied before
	}
	row.FannedOut, row.dirty = true, true
	if row.Send == uuid.Nil {
		return nil
	}
	if s := f.send(row.Send, row.Project); s.DeletedAt == nil {
		s.DeletedAt, s.dirty = &row.AcceptedAt, true
		s.derivePhase(at)
	}
	return nil
}

// deletionCleaned applies the last event of a deletion: nothing is left for the finisher.
func (f *fold) deletionCleaned(id uuid.UUID) error {
	row := f.deletions[id]
	if row == nil {
		return fmt.Errorf("deletion was cleaned without a commit")
	}
	row.Cleaned, row.dirty = true, true
	f.cleaned.add(id)
	return nil
}
