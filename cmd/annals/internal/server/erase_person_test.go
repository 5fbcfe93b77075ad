package server

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	erasing "github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// No event names who sent again what others wrote, so these data points stay when the person is erased.
func TestErasePerson_Resends(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "note", "content": "Bo wrote this.", "identity": "bo"})
	h.must(own, http.MethodPost, api+"/ingest", point{"id": "note", "content": "Bo wrote this.", "identity": "ana"}, nil)

	server := operatorapi.Dial(h.dir)
	in := operatorapi.PersonRequest{Target: h.target(""), Project: "default", Identity: "ana"}
	found, err := operatorapi.FindPerson.Call(t.Context(), server, in)
	if err != nil || found.Newest+found.Earlier != 0 || !found.HasRecord {
		t.Errorf("found %+v, %v", found, err)
	}
	if s := h.erasePerson(in); len(s.Receipts) != 0 || !s.Record {
		t.Errorf("erased: %+v", s)
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

	// What is private to a person goes with her.
	h.send(own, "/ingest", "completed", point{"id": "own", "content": "The safe is green.", "identity": "eve", "private": true})
	in.Identity = "eve"
	if s := h.erasePerson(in); len(s.Receipts) != 1 || !s.Record {
		t.Errorf("erased: %+v", s)
	}
	h.wants(own, http.MethodDelete, api+"/data-points/own", nil, http.StatusNotFound, "data-point-not-found")
	var left int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) from directory.identities
		where identity = 'eve' and project_id = $1`, h.projectID("default")).Scan(&left))
	if left != 0 {
		t.Error("the record with its audience is there")
	}
}

// erasePerson begins an erasure, and returns its state once it has ended.
func (h *harness) erasePerson(in operatorapi.PersonRequest) erasing.PersonStatus {
	h.t.Helper()
	begun, err := operatorapi.ErasePerson.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.awaitErased(begun)
}

// awaitErased returns the state of an erasure once it has ended.
func (h *harness) awaitErased(begun operatorapi.PersonErasureID) (s erasing.PersonStatus) {
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
	unraced(t)
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
	in := operatorapi.PersonRequest{Target: h.target(""), Project: "default", Identity: name}
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
		s.Erased == nil || s.Erased.Store != "scavenged" || s.Erased.Left != (work.Open{}) {
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
