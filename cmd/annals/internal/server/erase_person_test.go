package server

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// resendAsBefore stores that an identity sent a data point again, as the first version of that event did.
func (h *harness) resendAsBefore(dataPoint, identity string) {
	h.t.Helper()
	for _, r := range h.events() {
		var e map[string]any
		if stream.Category(r.Stream) != stream.DataPoint || json.Unmarshal(r.Data, &e) != nil ||
			e["effect"].(map[string]any)["sourceId"] != dataPoint {
			continue
		}
		delete(e, "content")
		e["author"], e["creditTenths"], e["ingestionId"] = identity, 0, uuid.New()
		data, err := json.Marshal(e)
		if err != nil {
			h.t.Fatal(err)
		}
		p := eventstore.Proposed{ID: uuid.New(), Type: "datapoint.resent.v1", Data: data, Meta: r.Meta}
		if _, err := h.storage.store.Append(h.t.Context(), r.Stream, r.Revision, []eventstore.Proposed{p}); err != nil {
			h.t.Fatal(err)
		}
		return
	}
	h.t.Fatalf("no data point %s is stored", dataPoint)
}

// Who sent again what others wrote is named in the log by events of the first version only. Those data points are
// deleted if the operator asks for it.
func TestErasePerson_Resends(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	own, _ := h.keys()
	for _, id := range []string{"before", "today"} {
		h.send(own, "/ingest", "completed", point{"id": id, "content": "Bo wrote this.", "identity": "bo"})
	}
	h.resendAsBefore("before", "ana")
	h.must(own, http.MethodPost, api+"/ingest", point{"id": "today", "content": "Bo wrote this.", "identity": "ana"}, nil)

	server := operatorapi.Dial(h.dir)
	in := operatorapi.PersonRequest{Target: target(""), Project: "default", Identity: "ana"}
	for n, resends := range []bool{false, true} { // n are counted and deleted
		in.Resends = resends
		found, err := operatorapi.FindPerson.Call(t.Context(), server, in)
		if err != nil || found.Newest+found.Earlier != 0 || found.Resent != n || !found.HasRecord {
			t.Errorf("found with resends %v: %+v, %v", resends, found, err)
		}
		deleted, err := operatorapi.DeletePerson.Call(t.Context(), server, in)
		if err != nil || len(deleted.Receipts) != n || deleted.More {
			t.Errorf("deleted with resends %v: %+v, %v", resends, deleted, err)
		}
	}
	h.wants(own, http.MethodDelete, api+"/data-points/before", nil, http.StatusNotFound, "data-point-not-found")
	h.wants(own, http.MethodDelete, api+"/data-points/today", nil, http.StatusAccepted, "")
}
