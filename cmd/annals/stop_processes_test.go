package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// A process that is asked to stop is no longer ready, and serves calls until the delay is over. A second signal ends it
// at once. A delay ends by itself, and the process ends well.
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
		t.Fatal("a second signal did not end the process")
	}
	s.args = []string{"--stop-delay-seconds", "1", "--log-level", "info"}
	s.start()
	s.signal(os.Interrupt)
	if err := <-s.done; err != nil || !strings.Contains(s.said.Tail(64<<10), "service stops after a delay") {
		t.Errorf("ended with %v", err)
	}
	s.cmd = nil
}

// A closed terminal is a request to stop, however often it is sent and though nobody reads the output any more: the
// process stops in order, and its Postgres with it.
func TestServe_HangUp(t *testing.T) {
	t.Parallel()
	dir, addr, clock := t.TempDir(), runtest.FreeAddress(t), filepath.Join(t.TempDir(), "clock")
	writeClock(t, clock, time.Now())
	output, terminal, err := os.Pipe()
	runtest.Must(t, err)
	cmd := exec.Command(os.Args[0], "serve", "--data-dir", dir, "--api-addr", addr, "--console-addr", "127.0.0.1:0",
		"--min-free-disk", "0", "--log-level", "info")
	cmd.Env = append(os.Environ(), clockFile+"="+clock)
	cmd.Stdout, cmd.Stderr = terminal, terminal
	// A process inherits that a signal is ignored, as under nohup, but not one that its parent waits for.
	hungUp := make(chan os.Signal, 1)
	signal.Notify(hungUp, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hungUp) })
	runtest.Must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill() // it may have ended
		}
	})
	runtest.Must(t, terminal.Close())
	said := &runtest.Output{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(said, output) // until it is closed
	}()
	runtest.Await(t, "the process is ready", func() bool {
		select {
		case err := <-done:
			t.Fatalf("the process ended: %v\n%s", err, said)
		default:
		}
		res, err := http.Get("http://" + addr + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	lock, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	runtest.Must(t, err)
	first, _, _ := strings.Cut(string(lock), "\n")
	postgres, err := strconv.Atoi(first)
	runtest.Must(t, err)
	runtest.Must(t, output.Close())
	<-read
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the process ended with %v\n%s", err, said)
		}
	case <-time.After(runtest.Timeout):
		t.Fatal("the process does not end")
	}
	if err := syscall.Kill(postgres, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("Postgres runs on: %v", err)
	}
}

// nohup has a process go on when its terminal is closed: the signal stays ignored.
func TestNode_Nohup(t *testing.T) {
	t.Parallel()
	nohup, err := exec.LookPath("nohup")
	if _, noProc := os.Stat("/proc/self/status"); err != nil || noProc != nil {
		t.Skip("this system has no nohup, or does not show which signals a process ignores")
	}
	clock := filepath.Join(t.TempDir(), "clock")
	writeClock(t, clock, time.Now())
	cmd := exec.Command(nohup, os.Args[0], "node", "--data-dir", t.TempDir(), "--addr", "127.0.0.1:0", "--insecure")
	cmd.Env = append(os.Environ(), clockFile+"="+clock)
	out, err := cmd.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, cmd.Start())
	if lines := bufio.NewScanner(out); !lines.Scan() || !strings.HasPrefix(lines.Text(), "annals node is ready") {
		t.Errorf("printed %q, %v", lines.Text(), lines.Err())
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status"))
	runtest.Must(t, err)
	_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	if ignored, err := strconv.ParseUint(mask, 16, 64); err != nil || ignored&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("the process ignores the signals %q: a hang-up is not one of them, %v", mask, err)
	}
	runtest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
