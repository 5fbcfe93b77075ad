package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
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
