package server

import (
	"context"
	"os"
	"path/filepath"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/auth"
)

// status returns how the service is, for the command annals status. What Postgres holds of it is read within
// checkTimeout.
func (s *Server) status(ctx context.Context) operatorapi.Status {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	list := s.health.conditions(ctx)
	is := operatorapi.Status{
		PID: os.Getpid(), DataDir: s.cfg.Data.Dir, API: s.urls.API, Health: s.urls.API,
		FailedSends: s.health.reading.get().failedSends.Sends, Projections: s.health.projections(),
		Settings: s.cfg.InForce, Details: s.details(limited), NotReady: list.NotReady(true), Remarks: list.Remarks(true),
	}
	if dir, err := filepath.Abs(is.DataDir); err == nil {
		is.DataDir = dir
	}
	if s.listeners.console != nil {
		is.Console, is.MCP = s.urls.Console, s.urls.Console+auth.MCPPath
	}
	if s.listeners.ops != nil {
		is.Health = urlOf("http", s.listeners.ops.Addr().String())
	}
	return is
}
