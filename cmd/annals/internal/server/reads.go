package server

import (
	"context"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/reads"
	readrows "github.com/annals-project/annals/projections/reads"
	readtexts "github.com/annals-project/annals/projections/reads/shown"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/why"
)

// buildReads makes what records who was shown which texts.
func buildReads(_ context.Context, s *Server) (adds, error) {
	s.reads = reads.New(reads.Config{
		Journal: s.journal.Journal, Namespaces: s.journal.Namespaces, Leaves: trace.Leaves{DB: s.storage.work},
		Logger: s.cfg.Logger, Now: s.cfg.now,
	})
	return adds{
		watch:    []task{{"read records", s.reads.Run}},
		operator: []operatorapi.Route{operatorapi.ShowReadRoute(s.shown())},
	}, s.reads.Register(s.registry)
}

// shown reads the texts that read records name.
func (s *Server) shown() readtexts.Reader {
	return readtexts.Reader{
		Reads: readrows.Queries{DB: s.storage.db}, Log: s.storage.journal(), Texts: s.trace(), Access: s.accessOf(),
		Projects: s.read.access,
	}
}

// accessOf explains who may read what.
func (s *Server) accessOf() why.Access {
	return why.Access{
		Points: s.read.dataPoints, Directory: s.read.directory, Now: s.cfg.now,
		Past: why.Past{DB: s.storage.db, Head: s.head(), Log: s.storage.journal()},
	}
}
