// Package probe checks the servers that background work calls. It logs when one cannot be used, with the settings that
// may be wrong, and when it can be used again.
package probe

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

const (
	// callTimeout bounds one check.
	callTimeout = 30 * time.Second
	// firstPause follows a failed check. The pauses grow up to longestPause, which also bounds how often a server that
	// cannot be used is logged.
	firstPause   = time.Second
	longestPause = time.Minute
	// leastPause is the least time between two checks of a server that works.
	leastPause = 10 * time.Second
)

// Trouble is why a server cannot be used.
type Trouble struct {
	// Cause is the error, without secrets and without text of customers.
	Cause string
	// Settings are the settings that may be wrong, none if the error points to none.
	Settings []string
}

// Config is what a Server is made of. All fields but Every are required.
type Config struct {
	// Label names the server in metrics, Name in sentences.
	Label, Name string
	// Check makes a call as the work makes it.
	Check func(ctx context.Context) error
	// Describe returns what operators read of an error of Check.
	Describe func(error) Trouble
	// Every is the pause between two checks while the server works. 0 checks it at the start and after a failed call.
	Every  time.Duration
	Logger *slog.Logger
}

// Server is a server that background work calls.
type Server struct {
	Config
	trouble atomic.Pointer[Trouble]
	wake    chan struct{}
	// logged is the cause that was logged last, at its time. Only Run uses them.
	logged string
	at     time.Time
}

// New makes a server that is not checked yet.
func New(c Config) *Server { return &Server{Config: c, wake: make(chan struct{}, 1)} }

// Observe notes how a call of the work ended, so that the server is checked soon if that differs from the last check.
func (s *Server) Observe(failed bool) {
	if failed == (s.trouble.Load() != nil) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Trouble returns why the server cannot be used, false if the last check succeeded or none has ended.
func (s *Server) Trouble() (Trouble, bool) {
	if t := s.trouble.Load(); t != nil {
		return *t, true
	}
	return Trouble{}, false
}

// Run checks the server until the context ends.
func (s *Server) Run(ctx context.Context) error {
	retry := backoff.Backoff{First: firstPause, Longest: longestPause}
	for ctx.Err() == nil {
		err := s.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		select { // what the work observed before the end of the check is answered by it
		case <-s.wake:
		default:
		}
		if err != nil {
			// Calls that succeed wake the probe. The first pause bounds how many checks they can cause.
			_ = backoff.Pause(ctx, firstPause, nil)
			_ = backoff.Pause(ctx, retry.Next(), s.wake)
			continue
		}
		retry.Reset()
		_ = backoff.Pause(ctx, leastPause, nil)
		s.await(ctx)
	}
	return nil
}

// await waits until a server that works is to be checked again.
func (s *Server) await(ctx context.Context) {
	if s.Every > leastPause {
		_ = backoff.Pause(ctx, s.Every-leastPause, s.wake)
		return
	}
	if s.Every > 0 {
		return
	}
	select {
	case <-s.wake:
	case <-ctx.Done():
	}
}

// check makes one check, and logs what changed.
func (s *Server) check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.Check(limited)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		if s.trouble.Swap(nil) != nil {
			s.logged = ""
			s.Logger.InfoContext(ctx, "a server is reachable again", "server", s.Name)
		}
		return nil
	}
	t := s.Describe(err)
	s.trouble.Store(&t)
	if t.Cause != s.logged && (s.logged == "" || time.Since(s.at) >= longestPause) {
		s.logged, s.at = t.Cause, time.Now()
		s.Logger.WarnContext(ctx, "a server cannot be used, will retry",
			"server", s.Name, "settings", t.Settings, "err", t.Cause)
	}
	return err
}
