package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// postmaster returns the process id of the private Postgres, 0 while there is none.
func (s *service) postmaster() int {
	text, err := os.ReadFile(filepath.Join(s.dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return pid
}

// The private Postgres is killed under load: the service starts it again and goes on. What was acknowledged is there.
func TestPostgres_KilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	c := s.client()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acknowledged := make(chan string, 1<<16)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; ctx.Err() == nil; i++ {
			point := client.DataPoint{ID: fmt.Sprintf("p%d", i), Content: fmt.Sprintf("Visitor%d saw House%d.", i, i)}
			r, err := c.Ingest(context.WithoutCancel(ctx), point)
			if err != nil {
				t.Error(err)
				return
			}
			acknowledged <- r.IngestionID
		}
	}()
	for range 2 {
		before := len(acknowledged)
		runtest.Await(t, "sends are acknowledged", func() bool { return len(acknowledged) > before+20 })
		killed := s.postmaster()
		runtest.Must(t, syscall.Kill(killed, syscall.SIGKILL))
		runtest.Await(t, "another Postgres runs", func() bool { pid := s.postmaster(); return pid != 0 && pid != killed })
		runtest.Must(t, s.awaitReady())
	}
	before := len(acknowledged)
	runtest.Await(t, "sends are acknowledged again", func() bool { return len(acknowledged) > before+20 })
	stop()
	<-sent
	close(acknowledged)
	for id := range acknowledged {
		completed(t.Context(), t, c, id)
	}
	if lines := strings.Count(s.log.String(), "\n"); lines > 500 {
		t.Errorf("the service logged %d lines", lines)
	}
}

// A start right after a kill of the service and of its Postgres waits for what is left of them.
func TestPostgres_StartRightAfterAKillOfAll(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	for range 3 {
		runtest.Must(t, syscall.Kill(s.postmaster(), syscall.SIGKILL))
		s.kill()
		s.start()
	}
}
