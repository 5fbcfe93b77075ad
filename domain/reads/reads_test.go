package reads_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func records(n int) (list []reads.Record) {
	for i := range n {
		list = append(list, reads.Record{
			ID: uuid.New(), Part: i % 2, At: time.Date(2026, 11, 5, 9, 30, 0, 1000, time.UTC), Way: reads.Recall,
			By: "key:" + uuid.NewString(), As: uuid.New(), Question: "9f86",
			Shown: []reads.Shown{{Node: uuid.New(), Revision: i, Leaf: []byte{1, 2}, Spans: []reads.Span{{0, 7}}}},
		})
	}
	return list
}

// The path from each record to the root verifies by the rules of RFC 6962, as another program has them, from the bytes
// that the event holds.
func TestBatch_EachRecordHasAPathToTheRoot(t *testing.T) {
	codec, err := eventstore.NewCodec(domain.Catalog)
	runtest.Must(t, err)
	for _, n := range []int{1, 2, 3, 7, 64, 65} {
		list := records(n)
		rooted, recorded, err := reads.Batch(uuid.New(), uuid.New(), list)
		if err != nil || rooted.Size != n {
			t.Fatalf("%+v, %v", rooted, err)
		}
		stored, err := codec.Encode(recorded, 1, event.Meta{CommandID: uuid.New(), At: time.Unix(1, 0)})
		runtest.Must(t, err)
		for i, r := range list {
			leaf, err := r.Encode()
			if err != nil || !bytes.Contains(stored.Data, leaf) {
				t.Fatalf("the event does not hold the bytes of record %d: %v", i, err)
			}
			path, err := reads.Prove(list, i)
			runtest.Must(t, err)
			root := tlog.Hash(rooted.Root)
			if err := tlog.CheckRecord(path, int64(n), root, int64(i), tlog.RecordHash(leaf)); err != nil {
				t.Errorf("record %d of %d: %v", i, n, err)
			}
			leaf[len(leaf)/2] ^= 1
			if tlog.CheckRecord(path, int64(n), root, int64(i), tlog.RecordHash(leaf)) == nil {
				t.Errorf("record %d of %d verifies although a bit of it was changed", i, n)
			}
		}
	}
}
