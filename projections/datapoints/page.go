package datapoints

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// page is the rows that a page of events touches: as they were loaded, and then as the events leave them.
type page struct {
	items     map[itemKey]*item
	itemsOf   map[uuid.UUID][]*item // by data point
	bySend    map[uuid.UUID][]*item
	sends     map[uuid.UUID]*send
	points    map[uuid.UUID]*point
	forgotten ids      // data points whose rows and revisions go
	uncounted []scoped // what the rows counted for that go
	revisions []revision
	scopings  map[revisionKey]*uuid.UUID // audiences by moves of the page, nil for not known
	deletions map[uuid.UUID]*deletionRow
	erasures  map[uuid.UUID]*erasure
	cleaned   ids                     // deletions whose erasures go
	batches   map[uuid.UUID][]offered // nil for one that is fanned out within the page
	opened    ids                     // batches that were committed within the page
	blobs     map[string]*blobRow     // that were begun, referred to or ended within the page
	spent     ids                     // bulk writes of identities whose rows are of no more use
}

func newPage() *page {
	return &page{
		items: map[itemKey]*item{}, itemsOf: map[uuid.UUID][]*item{}, bySend: map[uuid.UUID][]*item{},
		sends: map[uuid.UUID]*send{}, points: map[uuid.UUID]*point{}, forgotten: ids{},
		deletions: map[uuid.UUID]*deletionRow{}, erasures: map[uuid.UUID]*erasure{}, cleaned: ids{},
		batches: map[uuid.UUID][]offered{}, opened: ids{},
		blobs: map[string]*blobRow{}, spent: ids{}, scopings: map[revisionKey]*uuid.UUID{},
	}
}

// apply folds one event.
func (p *page) apply(f eventstore.Fact) error {
	owner := stream.Owner(f.Stream)
	p.refer(f.Event)
	if send, standing, ok := datapoint.SendOf(f.Event); ok {
		p.sent(f, owner, send, standing)
		return nil
	}
	switch e := f.Event.(type) {
	case *datapoint.Deleted:
		p.deleted(f.Position, owner, e)
	case *memory.DerivationStarted:
		p.started(f.Position, e)
	case *memory.Derived:
		p.derived(f.Position, owner, e)
	case *memory.Failed:
		p.failed(f.Position, owner, e)
	case *memory.Embedded: // projection embeddings keeps them
	case *ingestion.Claimed: // a claim alone is no send
	case *ingestion.Accepted:
		p.committed(f.Position, owner, e)
	case *ingestion.FannedOut:
		return p.fannedOut(f.Position, owner, e)
	case *ingestion.Indexed:
		p.indexed(f.Position, owner, e)
	case *pipeline.Searchable:
		p.searchable(f.Position, e)
	case *ingestion.Failed:
		p.stopped(f.Position, owner, e)
	case *ingestion.Retried:
		p.retried(f.Position, owner, e)
	case *blob.Opened:
		p.begun(f.Position, f.Stream, e)
	case blob.Chunk, nil: // a piece of a blob; an event of the store's own
	case *eventstore.Ended:
		p.ended(e.Stream)
	case *identity.Appeared, *identity.TraitsReplaced, *identity.TraitsMerged, *identity.BulkRowApplied, *identity.Removed, *identity.Cleared,
		*identity.BulkAccepted, *audience.Put, *audience.Removed, *audience.Recomputed: // only their blobs count here
	case *identity.BulkFannedOut:
		p.bulkFannedOut(owner)
	case *deletion.Accepted:
		p.deletionAccepted(f.Position, owner, e)
	case *deletion.FannedOut:
		return p.deletionFannedOut(f.Position, owner)
	case *deletion.FactsKept:
		p.factsKept(f.Position, owner, e)
	case *deletion.Cleaned:
		return p.deletionCleaned(owner)
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

// send finds the row of a send, or makes that of one of which only its own stream is known.
func (p *page) send(id, project uuid.UUID) *send {
	s := p.sends[id]
	if s == nil {
		s = &send{id: id, project: project}
		p.sends[id] = s
	}
	return s
}

// put adds an item that has no row yet.
func (p *page) put(i *item) {
	p.items[i.itemKey] = i
	p.itemsOf[i.dataPoint] = append(p.itemsOf[i.dataPoint], i)
	p.bySend[i.itemKey.send] = append(p.bySend[i.itemKey.send], i)
}

// insert adds an item that an event brings.
func (p *page) insert(at eventstore.Position, i *item) {
	i.position, i.dirty = at, true
	p.put(i)
	s := p.sends[i.itemKey.send]
	s.count(i, +1)
	s.dirty = true
}

// change changes an item together with the counts of its send, whose phase is for the caller to settle.
func (p *page) change(at eventstore.Position, i *item, to func(*item)) *send {
	s := p.sends[i.itemKey.send]
	s.count(i, -1)
	to(i)
	s.count(i, +1)
	i.position, i.dirty, s.dirty = at, true, true
	return s
}
