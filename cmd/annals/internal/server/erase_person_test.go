package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
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
	for n, resends := range []bool{false, true} { // n are deleted
		in.Resends = resends
		found, err := operatorapi.FindPerson.Call(t.Context(), server, in)
		if err != nil || found.Newest+found.Earlier != 0 || found.Resent != 1 || found.HasRecord != (n == 0) {
			t.Errorf("found before %v: %+v, %v", resends, found, err)
		}
		if s := h.erasePerson(in); len(s.Receipts) != n || s.Record != (n == 0) {
			t.Errorf("erased with resends %v: %+v", resends, s)
		}
	}
	h.wants(own, http.MethodDelete, api+"/data-points/before", nil, http.StatusNotFound, "data-point-not-found")
	h.wants(own, http.MethodDelete, api+"/data-points/today", nil, http.StatusAccepted, "")
}

// erasePerson begins an erasure, and returns its state once it has ended.
func (h *harness) erasePerson(in operatorapi.PersonRequest) operatorapi.PersonStatus {
	h.t.Helper()
	begun, err := operatorapi.ErasePerson.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.awaitErased(begun)
}

// awaitErased returns the state of an erasure once it has ended.
func (h *harness) awaitErased(begun operatorapi.PersonErasureID) (s operatorapi.PersonStatus) {
	h.t.Helper()
	runtest.Await(h.t, "the person is erased", func() bool {
		var err error
		if s, err = operatorapi.PersonErasure.Call(h.t.Context(), operatorapi.Dial(h.dir), begun); err != nil {
			h.t.Fatal(err)
		}
		return s.Phase == erasure.Done
	})
	return s
}

// Nobody watches, and the service ends in the middle: the next one goes on. No event names the person.
func TestErasePerson_GoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	const name = "quokka@example.com"
	h := newHarness(t)
	mayPurge := false
	h.arrange = func(s *Server) {
		if !mayPurge {
			s.background.finisher.Eraser.HasIndex = func() bool { return false }
		}
	}
	h.start()
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "mine", "content": "I like tea.", "identity": name})
	h.send(own, "/ingest", "completed", point{"id": "of bo", "content": "Bo likes tea.", "identity": "bo"})
	h.must(own, http.MethodPut, api+"/identities/"+name, point{"traits": point{"city": "Lisbon"}}, nil)
	in := operatorapi.PersonRequest{Target: target(""), Project: "default", Identity: name}
	begun, err := operatorapi.ErasePerson.Call(t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		t.Fatal(err)
	}
	runtest.Await(t, "the person is forgotten", func() bool { return h.count("erasure.person-forgotten.v1") == 1 })
	h.wants(own, http.MethodGet, api+"/identities/"+name, nil, http.StatusNotFound, "")
	if h.count("erasure.purged.v1") != 0 {
		t.Error("the disk is purged already")
	}
	h.stop()
	mayPurge = true
	h.start()
	s := h.awaitErased(begun)
	if len(s.Receipts) != 1 || s.Receipts[0].DataPoints != 1 || !s.Record || !s.Called || s.Uncleaned != 0 ||
		s.Erased == nil || s.Erased.Store != "scavenged" || s.Erased.Left != (operatorapi.Pending{}) {
		t.Errorf("erased: %+v, %+v", s, s.Erased)
	}
	if n := h.count("erasure.data-points-deleted.v1"); n != 1 {
		t.Errorf("%d deletions are recorded", n)
	}
	for _, e := range h.events() {
		if strings.Contains(string(e.Data)+string(e.Meta), name) {
			t.Errorf("%s of %s names the person: %s", e.Type, e.Stream, e.Data)
		}
	}
	var kept int
	if err := h.storage.db.QueryRow(t.Context(), `select count(*) from ops.person_erasures`).Scan(&kept); err != nil || kept > 0 {
		t.Errorf("%d names are kept, %v", kept, err)
	}
	h.wants(own, http.MethodDelete, api+"/data-points/mine", nil, http.StatusNotFound, "data-point-not-found")
	h.wants(own, http.MethodDelete, api+"/data-points/of%20bo", nil, http.StatusAccepted, "")
}
