package erasure_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/event"
)

func TestState_Evolve(t *testing.T) {
	project, record, deletion := uuid.New(), uuid.New(), uuid.New()
	requested := &erasure.Requested{ProjectID: project, RecordID: record}
	deleted := &erasure.DataPointsDeleted{ProjectID: project, DeletionID: deletion, DataPoints: 2}
	forgotten := &erasure.PersonForgotten{ProjectID: project, Record: true, Calls: 3}
	called := &erasure.PersonForgotten{ProjectID: project, Called: true, Calls: 1}
	purged := &erasure.Purged{ProjectID: project, Purge: erasure.Purge{Deletions: 1, Store: "scavenged"}}
	receipts := []erasure.Receipt{{OperationID: deletion, DataPoints: 2}}
	for name, tt := range map[string]struct {
		given []event.Event
		want  erasure.State
	}{
		"requested": {
			[]event.Event{requested},
			erasure.State{Phase: erasure.Deleting},
		},
		"some is deleted": {
			[]event.Event{requested, deleted},
			erasure.State{Phase: erasure.Deleting, Receipts: receipts},
		},
		"forgotten": {
			[]event.Event{requested, deleted, forgotten},
			erasure.State{Phase: erasure.Purging, Receipts: receipts, Record: true, Calls: 3},
		},
		"purged": {
			[]event.Event{requested, deleted, forgotten, purged},
			erasure.State{Phase: erasure.Checking, Receipts: receipts, Record: true, Calls: 3, Rounds: 1, Purge: &purged.Purge},
		},
		"the second round": {
			[]event.Event{requested, deleted, forgotten, purged, deleted, called},
			erasure.State{
				Phase: erasure.Purging, Receipts: append(receipts, receipts...), Record: true, Called: true, Calls: 4, Rounds: 1,
				Purge: &purged.Purge,
			},
		},
		"wrote again": {
			[]event.Event{requested, forgotten, purged, &erasure.Ended{ProjectID: project, WroteAgain: true}},
			erasure.State{Phase: erasure.Done, Record: true, Calls: 3, Rounds: 1, Purge: &purged.Purge, WroteAgain: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got erasure.State
			for _, e := range tt.given {
				got.Evolve(e)
			}
			tt.want.Events, tt.want.ProjectID, tt.want.RecordID = int64(len(tt.given)), project, record
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if n := 2 * len(tt.want.Receipts); got.DataPoints() != n {
				t.Errorf("%d data points, want %d", got.DataPoints(), n)
			}
		})
	}
}
