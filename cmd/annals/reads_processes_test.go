package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// provedRecalls is how many recalls are answered, by default. The process is killed once in so many.
const provedRecalls = 300

// While its reads are proved a project has no answered recall without its record in the log, though the process was
// killed among them.
func TestReads_ProvedThroughAKill(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--rate-limit-per-minute", "0"}
	s.start()
	if status, _, answer := s.send(http.MethodPost, "/ingest",
		`{"id":"a","content":"The code word of spring is marigold.","identity":"ana"}`); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	runtest.Await(t, "it is recalled", func() bool { return s.finds("marigold") })
	log := d.prove()
	key := s.key()
	runtest.Await(t, "reads are proved", func() bool {
		id, ok := s.recallOnce(key)
		return ok && log.records(t)[id]
	})

	recalls := int64(provedRecalls)
	if text := os.Getenv("ANNALS_PROVED_RECALLS"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		runtest.Must(t, err)
		recalls = n
	}
	var answered atomic.Int64
	var mu sync.Mutex
	var ids []uuid.UUID
	var up sync.RWMutex // it is locked while the process is down
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for failures := 0; answered.Load() < recalls; {
				id, ok := s.recallOnce(key)
				if !ok {
					if failures++; failures > 6000 {
						t.Error("recalls fail")
						return
					}
					up.RLock()
					up.RUnlock() //nolint:staticcheck // only the wait matters
					<-time.After(10 * time.Millisecond)
					continue
				}
				failures = 0
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
				answered.Add(1)
			}
		})
	}
	for next := int64(provedRecalls / 2); next < recalls; next += provedRecalls {
		runtest.Await(t, "recalls are answered", func() bool { return answered.Load() >= next })
		up.Lock()
		s.kill()
		s.start()
		up.Unlock()
	}
	group.Wait()
	stored := log.records(t)
	for _, id := range ids {
		if !stored[id] {
			t.Errorf("recall %s was answered, and there is no record of it", id)
		}
	}
}

// recallOnce recalls, and returns the id of the request once all of its answer has arrived. ok is false without one.
func (s *served) recallOnce(key string) (id uuid.UUID, ok bool) {
	status, header, text, err := s.call(key, http.MethodPost, "/recall", `{"query":"marigold","identity":"ana"}`)
	if err != nil || status != http.StatusOK || !strings.Contains(text, "marigold") {
		return id, false
	}
	id, err = uuid.Parse(header.Get("X-Request-Id"))
	return id, err == nil
}

// readLog is the log of a deployment, with one project.
type readLog struct {
	eventstore.Journal

	project uuid.UUID
}

// prove has the reads of the one project proved.
func (d *deployment) prove() readLog {
	d.t.Helper()
	codec, err := eventstore.NewCodec(domain.Catalog)
	runtest.Must(d.t, err)
	store := openStore(d.t, d.node)
	l := readLog{Journal: eventstore.Journal{Store: store, Codec: codec, Aside: eventstore.NewSetAside(store, codec)}}
	runtest.Must(d.t, d.db.QueryRow(d.t.Context(), `select id from access.projects`).Scan(&l.project))
	name := stream.Name(stream.Project, l.project)
	last, ok, err := l.Last(d.t.Context(), name)
	if err != nil || !ok {
		d.t.Fatalf("the stream of the project: %t, %v", ok, err)
	}
	now := time.Now()
	_, err = l.Append(d.t.Context(), name, last.Revision, event.NewMeta("test", now).Of(l.project),
		&project.ReadsSet{ProjectID: l.project, Mode: project.ReadsProved, Days: 30, SetAt: now})
	runtest.Must(d.t, err)
	return l
}

// records are the requests of which the log has a record.
func (l readLog) records(t *testing.T) map[uuid.UUID]bool {
	t.Helper()
	found := map[uuid.UUID]bool{}
	for day := -1; day <= 1; day++ { // the clock of the process may have another date
		name := stream.ReadsName(l.project, time.Now().UTC().AddDate(0, 0, day).Format(time.DateOnly))
		events, err := l.ReadFrom(t.Context(), name, 0)
		if err != nil {
			t.Fatal(fmt.Errorf("read %s: %w", name, err))
		}
		for _, e := range events {
			if batch, is := e.Event.(*reads.Recorded); is {
				for _, r := range batch.Records {
					found[r.ID] = true
				}
			}
		}
	}
	return found
}
