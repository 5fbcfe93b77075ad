package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// Two processes of each role share an event store, a Postgres and an Elasticsearch. One of each is killed or
// frozen. What was acknowledged is recalled through either reader, and what was deleted through none.
func TestRoles_TwoOfEach(t *testing.T) {
	t.Parallel()
	index := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 8)
	d.env = append(d.env, "ANNALS_INDEX="+index.URL, "ANNALS_INDEX_CA="+index.CA, "ANNALS_INDEX_NAME="+index.Name)
	for n, s := range d.processes {
		s.args = []string{"--role", []string{"write", "read", "projector", "pipeline"}[n/2]}
	}
	d.processes[4].begin()
	d.processes[0].start() // its folder gets the keys of the first start
	for n, s := range d.processes {
		if n != 0 && n != 4 {
			s.begin()
		}
	}
	for _, s := range d.processes {
		s.ready()
	}
	writers, readers := d.processes[0:2], d.processes[2:4]
	sent := 0
	// send sends through one writer, and through the other if that does not answer.
	send := func(n int) {
		t.Helper()
		for range n {
			p := client.DataPoint{ID: fmt.Sprintf("p%d", sent), Content: fmt.Sprintf("The code word of day %d is lily%d.", sent, sent)}
			runtest.Await(d.t, "a writer takes "+p.ID, func() bool {
				for _, w := range writers {
					if !w.running() {
						continue
					}
					if _, err := w.client().Ingest(t.Context(), p); err == nil {
						return true
					}
				}
				return false
			})
			sent++
		}
	}
	found := func(s *served, n int) bool {
		page, code := s.recall(fmt.Sprintf("What is the code word lily%d?", n))
		for _, r := range page.Results {
			if len(r.Sources) > 0 && r.Sources[0].SourceID == fmt.Sprintf("p%d", n) {
				return code == ""
			}
		}
		return false
	}
	send(20)
	for _, r := range readers {
		runtest.Await(d.t, "either reader recalls the last send", func() bool { return found(r, sent-1) })
	}
	for n := 0; n < 8; n += 2 {
		victim := d.processes[n]
		victim.kill()
		send(5)
		victim.start()
	}
	for n := 1; n < 8; n += 2 {
		victim := d.processes[n]
		victim.signal(syscall.SIGSTOP)
		victim.frozen = true
		if n == 5 { // projectors
			frozen := d.now()
			runtest.Await(d.t, "the other projector has every projection", func() bool { return d.led(frozen) })
			t.Logf("every projection is led again %s after a projector froze", d.now().Sub(frozen).Round(time.Millisecond))
		}
		send(5)
		victim.signal(syscall.SIGCONT)
		victim.frozen = false
	}
	runtest.Await(d.t, "the first send is deleted", func() bool {
		_, err := writers[1].client().DeleteDataPoints(t.Context(), []string{"p0"})
		return err == nil
	})
	for _, r := range readers {
		if found(r, 0) {
			t.Error("a reader recalls what was deleted")
		}
		for n := 1; n < sent; n++ {
			runtest.Await(d.t, fmt.Sprintf("%s recalls send %d", r.dir, n), func() bool { return found(r, n) })
		}
	}
	for _, name := range []string{"datapoints", "memories", "directory"} {
		d.processes[4].operate("rebuild", name) // it fails if the rows are not as many
	}
}
