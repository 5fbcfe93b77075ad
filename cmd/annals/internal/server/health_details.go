package server

import (
	"context"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/runner"
)

// details returns what operators see at the console. A part that cannot be read is left out and logged.
func (s *Server) details(ctx context.Context) condition.Details {
	d := condition.Details{
		Version: build.Get().Version, Roles: s.cfg.Roles.String(), Index: "embedded", Rebuilds: []condition.Rebuild{},
	}
	if d.Roles == "" {
		d.Roles = AllRoles().String()
	}
	if s.cfg.Index != nil {
		d.Index = "Elasticsearch"
	}
	warn := func(what string, err error) {
		s.cfg.Logger.WarnContext(ctx, "health of a part cannot be read", "part", what, "err", err)
	}
	if counted := s.inventory.last.Load(); counted != nil {
		if d.Bytes = counted.bytes; counted.dataPoints >= 0 {
			d.DataPoints = &counted.dataPoints
		}
	}
	if free, required, ok := s.backpressure.disk(); ok {
		d.DiskFree, d.DiskRequired = &free, &required
	}
	if at, ok, err := datafolder.LastBackup(s.cfg.Data.Dir); err != nil {
		warn("backup", err)
	} else if ok {
		d.LastBackup = &at
	}
	if s.requests != nil {
		d.RequestLogBytes = new(s.requests.Queued())
	}
	if model := s.semantic.model(); model != "" {
		p, err := embeddings.Queries{DB: s.storage.checks}.Progress(ctx, model)
		if err != nil {
			warn("embeddings", err)
		} else {
			d.Embeddings = &condition.Embeddings{Model: p.Model, Live: p.Live, Embedded: p.Embedded, Captured: p.Captured}
		}
	}
	if open, err := work.CountOpen(ctx, s.read.dataPoints, s.read.directory, s.read.access); err != nil {
		warn("open work", err)
	} else {
		d.Open = &open
	}
	rebuilds, err := runner.Rebuilds(ctx, s.storage.checks, runner.LogIDOf(s.storage.store, s.storage.codec))
	if err != nil {
		warn("rebuilds", err)
	}
	for _, r := range rebuilds {
		d.Rebuilds = append(d.Rebuilds, condition.Rebuild{
			Projection: r.Projection, Position: uint64(r.Position), IsRunning: r.IsRunning,
		})
	}
	return d
}
