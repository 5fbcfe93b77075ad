package probe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeServer is a server whose answer a test changes.
type fakeServer struct {
	mu     sync.Mutex
	err    error
	checks int
}

func (f *fakeServer) answer(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeServer) check(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks++
	return f.err
}

func (f *fakeServer) checked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks
}

// run runs a probe of a fake server in the bubble, and returns its log.
func run(t *testing.T, f *fakeServer, every time.Duration) (s *Server, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	s = New(Config{
		Label: "model", Name: "the model", Check: f.check, Every: every,
		Describe: func(err error) Trouble { return Trouble{Cause: err.Error(), Settings: []string{"ANNALS_MODEL_KEY"}} },
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return s, log
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestServer_WrongFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{err: errors.New("status 401")}
		s, log := run(t, f, 0)
		if got, failing := s.Trouble(); !failing || got.Cause != "status 401" || got.Settings[0] != "ANNALS_MODEL_KEY" {
			t.Errorf("trouble %+v, %v", got, failing)
		}
		pass(time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "ANNALS_MODEL_KEY") {
			t.Errorf("%d warnings in an hour:\n%s", n, log)
		}
		if n := f.checked(); n < 60 || n > 150 {
			t.Errorf("%d checks in an hour", n)
		}
		f.answer(nil)
		pass(firstPause + longestPause)
		synctest.Wait()
		if _, failing := s.Trouble(); failing || !strings.Contains(log.String(), "reachable again") {
			t.Errorf("failing %v after it answers:\n%s", failing, log)
		}
	})
}

// A server that works is not called but after a failed call, and then no more often than each leastPause.
func TestServer_FailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		s, log := run(t, f, 0)
		pass(time.Hour)
		if f.checked() != 1 || log.Len() != 0 {
			t.Fatalf("%d checks of a server that works:\n%s", f.checked(), log)
		}
		for range 600 { // failed calls, although the server answers the checks: texts that it refuses
			s.Observe(true)
			pass(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := f.checked(); n < 2 || n > 8 || log.Len() != 0 {
			t.Errorf("%d checks in a minute of failed calls:\n%s", n, log)
		}
		pass(time.Hour)
		f.answer(errors.New("status 401"))
		s.Observe(true)
		synctest.Wait()
		if _, failing := s.Trouble(); !failing {
			t.Error("a failed call was not followed by a check")
		}
		pass(time.Hour)
		f.answer(nil)
		s.Observe(false)
		pass(firstPause) // which follows each check that fails
		synctest.Wait()
		if _, failing := s.Trouble(); failing {
			t.Error("a call that succeeded was not followed by a check")
		}
	})
}

// Other causes are logged too, each at most once a minute.
func TestServer_CausesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{err: errors.New("status 401")}
		s, log := run(t, f, 0)
		for i := range 6000 {
			f.answer(errors.New([]string{"status 401", "status 404"}[i%2]))
			s.Observe(false)
			pass(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "level=WARN"); n < 2 || n > 11 {
			t.Errorf("%d warnings in ten minutes", n)
		}
		if n := f.checked(); n > 601 {
			t.Errorf("%d checks in ten minutes of calls that succeed", n)
		}
	})
}

func TestServer_CheckedRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{}
		s, _ := run(t, f, leastPause)
		f.answer(errors.New("no route"))
		pass(leastPause)
		synctest.Wait()
		if _, failing := s.Trouble(); !failing {
			t.Error("a server that stopped to answer was not noticed")
		}
	})
}
