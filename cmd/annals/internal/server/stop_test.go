package server

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"
)

// A service that is ready waits before it stops, and is not ready meanwhile. One that is not ready, or that has no
// delay, stops at once. What fails meanwhile ends the delay.
func TestServer_DelayStop(t *testing.T) {
	for name, c := range map[string]struct {
		delay       time.Duration
		open, waits bool
	}{
		"ready":     {time.Hour, true, true},
		"starting":  {time.Hour, false, false},
		"no delay":  {0, true, false},
		"ends soon": {time.Millisecond, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{
				cfg: Config{StopDelay: c.delay, Logger: slog.New(slog.DiscardHandler)}, web: &webServer{admission: &opening{}},
			}
			s.web.admission.open.Store(c.open)
			ctx, stop := context.WithCancel(t.Context())
			later, end := s.delayStop(ctx)
			defer end()
			if later.Err() != nil || s.web.admission.draining.Load() {
				t.Fatal("stopped before the signal")
			}
			stop()
			if !c.waits {
				<-later.Done()
				return
			}
			for !s.web.admission.draining.Load() {
				runtime.Gosched()
			}
			if later.Err() != nil {
				t.Error("stopped without a delay")
			}
			end()
			<-later.Done()
		})
	}
}
