package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// A process that serves reads for another one's writes reads at the replica. Paused or stopped, the replica
// changes no answer.
func TestRoles_ReplicaOfPostgres(t *testing.T) {
	t.Parallel()
	servers := pgtest.NewReplicated(t)
	d := newDeployment(t, time.Now(), 2)
	d.database = servers.Primary
	writer, rest := d.processes[0], d.processes[1]
	writer.args = []string{"--role", "write"}
	rest.args = []string{"--roles=read,projector,pipeline", "--postgres-replica", servers.Replica}
	rest.begin()
	writer.start()
	rest.ready()
	if status, body := rest.get("/metrics"); status != http.StatusOK || !strings.Contains(body, "annals_postgres_replica_up 1\n") {
		t.Errorf("the replica is not up: %d", status)
	}
	if _, body := writer.get("/metrics"); strings.Contains(body, "annals_postgres_replica_up") {
		t.Error("a process without the role read has a replica")
	}

	text := "The code word of spring is marigold." + strings.Repeat(" It is told at length.", 100)
	ingest := func(id string) {
		t.Helper()
		if _, err := writer.client().Ingest(t.Context(), client.DataPoint{ID: id, Content: text}); err != nil {
			t.Fatal(err)
		}
	}
	ingest("a")
	runtest.Await(t, "the text is recalled from the replica", func() bool {
		page, code := rest.recall("marigold")
		if code != "" || len(page.Results) == 0 {
			return false
		}
		_, body := rest.get("/metrics")
		return strings.Contains(body, `annals_postgres_replica_reads_total{kind="bodies",result="served"}`)
	})
	servers.Pause()
	if _, err := writer.client().DeleteDataPoints(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if page, code := rest.recall("marigold"); code != "" || len(page.Results) > 0 {
		t.Errorf("recalled after its deletion was acknowledged: %+v, %q", page, code)
	}
	servers.Resume()
	servers.Stop()
	ingest("b")
	runtest.Await(t, "a text is recalled without the replica", func() bool {
		page, code := rest.recall("marigold")
		return code == "" && len(page.Results) > 0
	})
	servers.Start()
	runtest.Await(t, "the replica is up again", func() bool {
		_, body := rest.get("/metrics")
		return strings.Contains(body, "annals_postgres_replica_up 1\n")
	})
}

// A replica of another cluster refuses the start in one line.
func TestServe_ReplicaOfAnotherCluster(t *testing.T) {
	t.Parallel()
	servers := pgtest.NewReplicated(t)
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--postgres-replica", servers.Replica}
	s.begin()
	select {
	case err := <-s.done:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(runtest.Timeout):
		t.Fatal("it does not end")
	}
	s.cmd = nil
	const says = "the replica that ANNALS_POSTGRES_REPLICA names cannot be used: "
	if !strings.Contains(s.said.String(), says) || !strings.Contains(s.said.String(), "another cluster") {
		t.Errorf("it printed:\n%s", s.said)
	}
}
