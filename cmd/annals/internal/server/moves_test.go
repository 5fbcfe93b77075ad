package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
)

func plan(audience string) point {
	return point{"id": "plan", "content": "The plan is to grow marigold.", "audience": audience}
}

var note = point{"id": "note", "content": "Cy likes figs."}

// Once a send that moves a data point to another audience returns, the new reader finds it.
func TestServer_MoveIsVisible(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	key := h.credentials()[datafolder.ProjectKeyName]
	reader := map[string]string{"red": "ana", "blue": "bo"}
	for audience, identity := range reader {
		h.must(key, http.MethodPut, api+"/identities/"+identity, point{"traits": point{}}, nil)
		fixed := point{"kind": "fixed", "name": audience, "identities": []string{identity}}
		h.must(key, http.MethodPut, api+"/audiences/"+audience, fixed, nil)
	}
	h.send(key, "/ingest", "completed", plan("red"))
	h.send(key, "/ingest", "completed", note)
	checked := 0
	for n := range 12 {
		to := []string{"blue", "red"}[n%2]
		path, body := "/ingest", any(plan(to))
		if n%4 > 1 {
			path, body = "/ingest/batch", point{"items": []point{note, plan(to)}}
		}
		status, answer := h.call(key, http.MethodPost, api+path, body)
		if status == http.StatusServiceUnavailable && strings.Contains(string(answer), `"committed":true`) {
			continue // so slow a machine gets the answer that is tested below
		}
		checked++
		if status != http.StatusOK || !strings.Contains(string(answer), `"status":"completed"`) {
			t.Fatalf("%s that moves to %s: %d %s", path, to, status, answer)
		}
		for audience, identity := range reader {
			_, found := h.call(key, http.MethodPost, api+"/recall", point{"query": "Who grows marigold?", "identity": identity})
			if is := strings.Contains(string(found), "grow marigold"); is != (audience == to) {
				t.Errorf("%s that moves to %s is answered, and the readers of %s are answered %s", path, to, audience, found)
			}
		}
	}

	if checked == 0 {
		t.Error("no move was completed within its time")
	}
}

// movesWhileIndexIsLate moves a data point while the index accepts no writes: the move is stored but not completed, and
// an unchanged item waits for nothing.
func (h *harness) movesWhileIndexIsLate(key string) {
	t := h.t
	t.Helper()
	h.must(key, http.MethodPut, api+"/identities/ana", point{"traits": point{}}, nil)
	for _, audience := range []string{"red", "blue"} {
		h.must(key, http.MethodPut, api+"/audiences/"+audience, point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	}
	h.send(key, "/ingest", "completed", plan("red"))
	h.send(key, "/ingest", "completed", note)
	held, err := h.storage.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), "lock table recallindex.data_points in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	status, answer := h.call(key, http.MethodPost, api+"/ingest", plan("blue"))
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), `"committed":true`) {
		t.Errorf("a move while the index is late: %d %s", status, answer)
	}
	status, answer = h.call(key, http.MethodPost, api+"/ingest", note)
	if status != http.StatusOK || !strings.Contains(string(answer), `"unchanged":true`) {
		t.Errorf("unchanged while the index is late: %d %s", status, answer)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtest.Await(h.t, "a send that moves it back is completed", func() bool {
		status, answer = h.call(key, http.MethodPost, api+"/ingest", plan("red"))
		return status == http.StatusOK && strings.Contains(string(answer), `"status":"completed"`)
	})
}
