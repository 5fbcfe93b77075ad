package server

import (
	"context"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/access"
	trees "github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/readapi"
)

// trees are the trees of the audit log.
func (s *Server) trees() trees.Queries { return trees.Queries{DB: s.storage.db} }

// auditRoutes returns what the routes of the audit log read.
func (s *Server) auditRoutes() readapi.Audit {
	return readapi.Audit{Trees: s.trees(), Witnesses: audit.NoWitnesses, Prove: s.prove}
}

// auditOperations are the operations of operators on the audit log.
func (s *Server) auditOperations() operatorapi.Audit {
	return operatorapi.Audit{
		Tenancy: access.Tenancy{Queries: s.read.access, Head: s.head()},
		States:  state.Reader{Trees: s.trees(), Witnesses: audit.NoWitnesses},
	}
}

func (s *Server) prove(context.Context, readapi.ProofRequest) ([]readapi.ProofFile, error) {
	return nil, fault.New(fault.NotFound, fault.CodeNotFound, "no checkpoint covers it yet")
}
