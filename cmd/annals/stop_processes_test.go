package main

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// A process that is asked to stop is no longer ready, and serves calls until the delay is over. A second signal ends it
// at once.
func TestServe_StopDelay(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--stop-delay-seconds", "300"}
	s.start()
	s.signal(syscall.SIGTERM)
	runtest.Await(t, "the process is not ready", func() bool {
		status, body := s.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "the service is stopping")
	})
	if _, err := s.client().Ingest(t.Context(), client.DataPoint{ID: "a", Content: "Ana likes tea."}); err != nil {
		t.Errorf("a call during the delay: %v", err)
	}
	if status, _ := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz during the delay: %d", status)
	}
	s.signal(syscall.SIGTERM)
	select {
	case <-s.done: //nolint:errcheck // a signal ended it
		s.cmd = nil
	case <-time.After(runtest.Timeout):
		t.Error("a second signal did not end the process")
	}
}

// The delay ends by itself, and the process ends well.
func TestServe_StopDelayEnds(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--stop-delay-seconds", "1", "--log-level", "info"}
	s.start()
	s.signal(os.Interrupt)
	if err := <-s.done; err != nil || !strings.Contains(s.said.Tail(64<<10), "service stops after a delay") {
		t.Errorf("ended with %v", err)
	}
	s.cmd = nil
}
