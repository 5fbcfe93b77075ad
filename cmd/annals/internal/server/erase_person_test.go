package server

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
)

// No event names who sent again what others wrote, so these data points stay when the person is erased.
func TestErasePerson_Resends(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "note", "content": "Bo wrote this.", "identity": "bo"})
	h.must(own, http.MethodPost, api+"/ingest", point{"id": "note", "content": "Bo wrote this.", "identity": "ana"}, nil)

	server := operatorapi.Dial(h.dir)
	in := operatorapi.PersonRequest{Target: target(""), Project: "default", Identity: "ana"}
	found, err := operatorapi.FindPerson.Call(t.Context(), server, in)
	if err != nil || found.Newest+found.Earlier != 0 || !found.HasRecord {
		t.Errorf("found %+v, %v", found, err)
	}
	deleted, err := operatorapi.DeletePerson.Call(t.Context(), server, in)
	if err != nil || len(deleted.Receipts) != 0 || deleted.More {
		t.Errorf("deleted %+v, %v", deleted, err)
	}
	resent := 0
	for _, r := range h.events() {
		if stream.Category(r.Stream) != stream.DataPoint {
			continue
		}
		if bytes.Contains(r.Data, []byte(`"ana"`)) || bytes.Contains(r.Meta, []byte(`"ana"`)) {
			t.Errorf("%s names who sent it again", r.Type)
		}
		if r.Type == (datapoint.Resent{}).EventType() {
			resent++
		}
	}
	if resent != 1 {
		t.Errorf("%d events of sends without a revision", resent)
	}
	h.wants(own, http.MethodDelete, api+"/data-points/note", nil, http.StatusAccepted, "")
}
