package server

import (
	"context"

	"github.com/annals-project/annals/commands/reads"
	"github.com/annals-project/annals/projections/trace"
)

// buildReads makes what records who was shown which texts.
func buildReads(_ context.Context, s *Server) (adds, error) {
	s.reads = reads.New(reads.Config{
		Journal: s.journal.Journal, Namespaces: s.journal.Namespaces, Leaves: trace.Leaves{DB: s.storage.work},
		Logger: s.cfg.Logger, Now: s.cfg.now,
	})
	return adds{watch: []task{{"read records", s.reads.Run}}}, s.reads.Register(s.registry)
}
