package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// heldQueue is a queue of derivation in which single sends of one project wait for long, while there is one.
type heldQueue struct {
	derivationQueue
	of atomic.Pointer[uuid.UUID]
}

func (q *heldQueue) Waiting(context.Context, eventstore.Position, int) (datapoints.Waiting, error) {
	if q.of.Load() == nil {
		return datapoints.Waiting{}, nil
	}
	since := time.Now().Add(-2 * waitLimit)
	return datapoints.Waiting{Item: since, Backlogged: since}, nil
}

func (q *heldQueue) WaitingByProject(context.Context, eventstore.Position, int) (map[uuid.UUID]int, error) {
	if of := q.of.Load(); of != nil {
		return map[uuid.UUID]int{*of: 2 * minBacklog}, nil
	}
	return map[uuid.UUID]int{}, nil
}

// secondProject creates a project, and returns its key.
func (h *harness) secondProject(management string) string {
	h.t.Helper()
	var project struct{ Slug string }
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Second"}, &project)
	var key struct{ Key string }
	h.must(management, http.MethodPost, api+"/projects/"+project.Slug+"/keys", point{"name": "app"}, &key)
	return key.Key
}

// projectOf returns the id of the project of a key.
func (h *harness) projectOf(key string) uuid.UUID {
	h.t.Helper()
	var id uuid.UUID
	if err := h.storage.db.QueryRow(h.t.Context(), `select p.id from access.projects p join access.keys k on k.project_id = p.id
		where k.prefix = left($1, length(k.prefix))`, key).Scan(&id); err != nil {
		h.t.Fatal(err)
	}
	return id
}

// waitForRoom lets writes wait so long that only one that never gets room is refused, however slow the machine is.
func waitForRoom(s *Server) { s.backpressure.room = admission.NewRoom(5 * time.Minute) }

// The single sends of a project that sends more than can be derived wait, and pass once there is room. Nothing else
// waits: not another project of its organization, not what derives nothing, and no deletion.
func TestAdmission_NeighbourOfABurst(t *testing.T) {
	t.Parallel()
	q, h := &heldQueue{}, newHarness(t)
	h.arrange = func(s *Server) {
		waitForRoom(s)
		q.derivationQueue, s.backpressure.queue = s.backpressure.queue, q
	}
	h.start()
	own, management := h.keys()
	neighbour := h.secondProject(management)
	hook := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.content"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "Ana likes tea."})
	project := h.projectOf(own)
	q.of.Store(&project)
	runtest.Await(t, "the backlog is noticed", func() bool { return h.backpressure.state().held(projectsWait)[project] })

	statuses := make(chan int, 3)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		status, _ := h.call(own, http.MethodPost, api+"/ingest", point{"content": "Bo likes coffee."})
		statuses <- status
	})
	waiting.Go(func() { statuses <- h.event(hook.URL, strings.NewReader(`{"content":"Cy likes milk."}`)).status })
	runtest.Await(t, "both wait", func() bool { return h.backpressure.room.Waiting() == 2 })
	h.must(neighbour, http.MethodPost, api+"/ingest", point{"content": "Di likes water."}, nil)
	h.must(own, http.MethodPost, api+"/ingest/batch", point{"items": []point{{"content": "Ed likes juice."}}}, nil)
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Third"}, nil)
	h.must(own, http.MethodPut, api+"/identities/ana", point{"traits": point{"team": "a"}}, nil)
	h.must(own, http.MethodPut, api+"/audiences/team-a", point{
		"name": "Team A", "kind": "fixed", "identities": []string{"ana"},
	}, nil)
	h.must(own, http.MethodDelete, api+"/data-points/tea", nil, nil)
	h.must(own, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	if n := h.backpressure.room.Waiting(); n != 2 {
		t.Errorf("%d writes wait, want the two", n)
	}
	q.of.Store(nil)
	waiting.Wait()
	for range 2 {
		if status := <-statuses; status != http.StatusAccepted {
			t.Errorf("after the wait: status %d", status)
		}
	}
}

// Clients in a closed loop with batches are never refused. During their import, single sends of the same project and of
// another one, and what derives nothing, are never refused either. ANNALS_IMPORT_BATCHES sets how many batches of 1,000
// each client sends.
func TestAdmission_Import(t *testing.T) {
	t.Parallel()
	const clients = 8
	batches, items := 2, 250
	if text := os.Getenv("ANNALS_IMPORT_BATCHES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		batches, items = n, 1000
	}
	h := newHarness(t)
	h.arrange = waitForRoom
	h.start()
	own, management := h.keys()
	neighbour := h.secondProject(management)
	var importing, others sync.WaitGroup
	var waited atomic.Bool
	done, began := make(chan struct{}), time.Now()
	for client := range clients {
		importing.Go(func() {
			for batch := range batches {
				list := make([]point, items)
				for i := range list {
					list[i] = point{
						"id":      fmt.Sprintf("import-%d-%d-%d", client, batch, i),
						"content": fmt.Sprintf("Customer %d of region %d ordered %d crates of plums.", i, client, batch),
					}
				}
				h.must(own, http.MethodPost, api+"/ingest/batch", point{"items": list}, nil)
			}
		})
	}
	var mu sync.Mutex
	times := map[string][]time.Duration{}
	for name, key := range map[string]string{"own": own, "neighbour": neighbour} {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				waited.Store(waited.Load() || h.backpressure.room.Waiting() > 0)
				word, from := fmt.Sprintf("%sword%d", name, n), time.Now()
				h.must(key, http.MethodPost, api+"/ingest", point{"id": word, "content": "The code is " + word + "."}, nil)
				runtest.Await(t, word+" is recalled", func() bool {
					_, answer := h.call(key, http.MethodPost, api+"/recall", point{"query": word, "identity": "ana"})
					return strings.Contains(string(answer), `"sourceId":"`+word+`"`) || t.Failed()
				})
				mu.Lock()
				times[name] = append(times[name], time.Since(from))
				mu.Unlock()
				h.must(key, http.MethodPut, api+"/identities/ana", point{"traits": point{"n": strconv.Itoa(n)}}, nil)
				h.must(key, http.MethodDelete, api+"/data-points/"+word, nil, nil)
			}
		})
	}
	importing.Wait()
	took := time.Since(began)
	close(done)
	others.Wait()
	for name, list := range times {
		slices.Sort(list)
		t.Logf("%s: %d single sends, recalled after %s at the median and %s at the 99th percentile", name, len(list),
			list[len(list)/2], list[len(list)*99/100])
	}
	t.Logf("%d items in %s: %.0f a second; a batch waited: %t", clients*batches*items, took,
		float64(clients*batches*items)/took.Seconds(), waited.Load())
	if h.backpressure.room.Waiting() != 0 {
		t.Error("a write waits after the end")
	}
}
