package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

type ids map[uuid.UUID]struct{}

func (s ids) add(id uuid.UUID) { s[id] = struct{}{} }

func (s ids) has(id uuid.UUID) bool { _, has := s[id]; return has }

// keys are the rows that the events of a page touch. load also finds rows that are only reachable
// from these.
type keys struct {
	items      map[itemKey]struct{}
	itemsOf    ids // data points whose items with a revision are touched
	failedOf   ids // data points whose failed items a newer revision overtakes
	allItems   ids // sends whose items are all touched
	endedItems ids // sends whose captured and failed items are touched
	unsure     ids // sends that a retained fact makes unsearchable again
	sends      ids
	dataPoints ids
	deletions  ids
	erasures   ids
	batches    ids
	// searchable is the highest position of the watermarks of the page, 0 if it has none. The
	// captured sends up to it are loaded.
	searchable eventstore.Position
}

func newKeys() *keys {
	return &keys{
		items: map[itemKey]struct{}{}, itemsOf: ids{}, failedOf: ids{}, allItems: ids{}, endedItems: ids{}, unsure: ids{},
		sends: ids{}, dataPoints: ids{}, deletions: ids{}, erasures: ids{}, batches: ids{},
	}
}

func (k *keys) item(send uuid.UUID, ordinal int) {
	k.items[itemKey{Send: send, Ordinal: ordinal}] = struct{}{}
	k.sends.add(send)
}

// add collects the rows that an event touches.
func (k *keys) add(decoded eventstore.DecodedEvent) {
	owner := stream.Owner(decoded.Stream)
	if send, _, ok := datapoint.SendOf(decoded.Event); ok {
		k.item(send.IngestionID, send.Ordinal)
		k.dataPoints.add(owner)
		return
	}
	switch e := decoded.Event.(type) {
	case *datapoint.Deleted:
		k.itemsOf.add(owner)
		k.dataPoints.add(owner)
		k.erasures.add(owner)
		k.deletions.add(e.DeletionID)
	case *memory.DerivationStarted:
		k.item(e.IngestionID, e.Ordinal)
	case *memory.Derived:
		k.item(e.IngestionID, e.Ordinal)
		k.dataPoints.add(owner)
		k.failedOf.add(owner)
	case *memory.Embedded:
		k.dataPoints.add(owner)
	case *memory.Failed:
		k.item(e.IngestionID, e.Ordinal)
		k.dataPoints.add(owner)
	case *ingestion.Accepted:
		k.sends.add(owner)
	case *ingestion.FannedOut:
		k.sends.add(owner)
		k.allItems.add(owner)
		k.batches.add(owner)
	case *ingestion.Indexed:
		k.sends.add(owner)
	case *pipeline.Searchable:
		k.searchable = max(k.searchable, eventstore.Position(e.Position))
	case *ingestion.Failed:
		k.sends.add(owner)
		if e.Code == ingestion.IndexUnavailable {
			k.endedItems.add(owner)
		}
	case *ingestion.Retried:
		k.sends.add(owner)
		k.endedItems.add(owner)
	case *deletion.Accepted:
		k.deletions.add(owner)
		if e.IngestionID != uuid.Nil {
			k.sends.add(e.IngestionID) // its fan-out may end within the page
		}
	case *deletion.FannedOut, *deletion.Cleaned:
		k.deletions.add(owner)
	case *eventstore.Tombstoned:
		if isOfDataPoint(e.Stream) {
			k.dataPoints.add(stream.Owner(e.Stream))
		}
	case *eventstore.MetadataWritten:
		if isOfDataPoint(e.Stream) {
			k.dataPoints.add(stream.Owner(e.Stream))
		}
	case *deletion.FactsKept:
		k.deletions.add(owner)
		k.erasures.add(e.DataPoint)
		k.dataPoints.add(e.DataPoint)
		for _, fact := range e.Facts {
			k.item(fact.IngestionID, fact.Ordinal)
			if fact.CreatedRevision() && fact.SearchableAt.IsZero() {
				k.unsure.add(fact.IngestionID)
			}
		}
	}
}
