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

// keys is which rows the events of a page touch. A row that only other rows lead to is found while loading.
type keys struct {
	items     map[itemKey]struct{}
	itemsOf   ids // data points whose items that brought a revision are touched
	stoppedOf ids // data points whose failed items a newer revision makes moot
	whole     ids // sends all of whose items are touched
	ended     ids // sends whose captured and failed items are touched
	sends     ids
	points    ids
	deletions ids
	erasures  ids
	batches   ids
	// searchable is the highest position of the watermarks of the page, 0 if there is none: the
	// captured sends up to it are loaded.
	searchable eventstore.Position
}

func newKeys() *keys {
	return &keys{
		items: map[itemKey]struct{}{}, itemsOf: ids{}, stoppedOf: ids{}, whole: ids{}, ended: ids{},
		sends: ids{}, points: ids{}, deletions: ids{}, erasures: ids{}, batches: ids{},
	}
}

func (k *keys) item(send uuid.UUID, ordinal int) {
	k.items[itemKey{send: send, ordinal: ordinal}] = struct{}{}
	k.sends.add(send)
}

// add notes what an event touches.
func (k *keys) add(f eventstore.Fact) {
	owner := stream.Owner(f.Stream)
	if send, _, ok := datapoint.SendOf(f.Event); ok {
		k.item(send.IngestionID, send.Ordinal)
		k.points.add(owner)
		return
	}
	switch e := f.Event.(type) {
	case *datapoint.Deleted:
		k.itemsOf.add(owner)
		k.points.add(owner)
		k.erasures.add(owner)
		k.deletions.add(e.DeletionID)
	case *memory.DerivationStarted:
		k.item(e.IngestionID, e.Ordinal)
	case *memory.Derived:
		k.item(e.IngestionID, e.Ordinal)
		k.points.add(owner)
		k.stoppedOf.add(owner)
	case *memory.Failed:
		k.item(e.IngestionID, e.Ordinal)
		k.points.add(owner)
	case *ingestion.Accepted:
		k.sends.add(owner)
	case *ingestion.FannedOut:
		k.sends.add(owner)
		k.whole.add(owner)
		k.batches.add(owner)
	case *ingestion.Indexed:
		k.sends.add(owner)
	case *pipeline.Searchable:
		k.searchable = max(k.searchable, eventstore.Position(e.Position))
	case *ingestion.Failed:
		k.sends.add(owner)
		if e.Code == ingestion.IndexUnavailable {
			k.ended.add(owner)
		}
	case *ingestion.Retried:
		k.sends.add(owner)
		k.ended.add(owner)
	case *deletion.Accepted:
		k.deletions.add(owner)
		if e.IngestionID != uuid.Nil {
			k.sends.add(e.IngestionID) // its fan-out may end within the page
		}
	case *deletion.FannedOut, *deletion.Cleaned:
		k.deletions.add(owner)
	case *deletion.FactsKept:
		k.deletions.add(owner)
		k.erasures.add(e.DataPoint)
		k.points.add(e.DataPoint)
		for _, fact := range e.Facts {
			k.item(fact.IngestionID, fact.Ordinal)
		}
	}
}
