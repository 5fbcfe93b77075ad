package erasure_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// The largest part of the facts of a data point fits into one append.
func TestFactsKept_LargestPart(t *testing.T) {
	const most = 1000
	at := time.Date(2026, 5, 12, 12, 0, 0, 123456000, time.UTC)
	part := &deletion.FactsKept{
		OrganizationID: uuid.New(), ProjectID: uuid.New(), DataPoint: uuid.New(), DeletedAt: at, RequestID: uuid.New(),
		From: 1 << 30, To: 1 << 30, Newest: 1 << 30, MemoriesTo: 1 << 30, Complete: true,
		Records: make(audit.KeptList, most+1), MemoryRecords: make(audit.KeptList, most),
	}
	for range most {
		part.Facts = append(part.Facts, deletion.RetainedFact{
			IngestionID: uuid.New(), Ordinal: most, Items: most, RequestID: uuid.New(), AcceptedAt: at, Bytes: math.MaxInt32,
			CreditTenths: math.MaxInt32, Month: "2026-05", Outcome: "unchanged", Revision: 1 << 30, Historic: true,
			AuthorID: uuid.New(), Batch: true, SearchableAt: at,
		})
		part.Memories = append(part.Memories, deletion.MemoryCount{Revision: 1 << 30, Count: 10_000})
	}
	for range most + 1 { // the last event adds two
		part.Blobs = append(part.Blobs, stream.BlobName(uuid.New(), uuid.New()))
	}
	p, err := eventstoretest.Codec(t).Encode(part, 0, event.NewMeta("finisher", at))
	runtest.Must(t, err)
	if n := p.Size(); n > eventstore.MaxAppend*9/10 {
		t.Errorf("%d bytes, of %d at most", n, eventstore.MaxAppend)
	}
}
