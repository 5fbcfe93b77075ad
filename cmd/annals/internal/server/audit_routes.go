package server

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	auditpages "github.com/annals-project/annals/console/pages/audit"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/access"
	trees "github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/prove"
	auditstate "github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
	"github.com/annals-project/annals/readapi"
)

// auditReads are what reads of the audit log call.
type auditReads struct {
	trees    trees.Queries
	prover   *prove.Prover
	verifier verify.Verifier
	// policy is the text of the operator's policy, "" for none.
	policy string
}

// newAuditReads makes what reads of the audit log call.
func (s *Server) newAuditReads() (*auditReads, error) {
	r := &auditReads{trees: trees.Queries{DB: s.storage.db}}
	if file := s.cfg.Audit.Policy; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r.policy = string(text)
	}
	r.prover = &prove.Prover{
		DB: s.storage.db, Journal: s.storage.journal(), Trees: r.trees, Projects: s.read.access, Head: s.head(),
		Policy: r.policy,
	}
	r.verifier = verify.Verifier{
		Log: s.storage.journal(), Trees: trees.Queries{DB: s.storage.work}, Applied: verify.Waiting(s.read.waiter),
	}
	return r, nil
}

// routes returns what the routes of the audit log read.
func (r *auditReads) routes() readapi.Audit {
	return readapi.Audit{Trees: r.trees, Policy: r.policy, Prove: r.prove}
}

func (r *auditReads) prove(ctx context.Context, what readapi.ProofRequest) ([]zipped.File, error) {
	return r.files(ctx, prove.Request{
		Organization: what.Organization, Project: what.Project, Kind: prove.Kind(what.Kind), ID: what.ID,
	})
}

func (r *auditReads) files(ctx context.Context, what prove.Request) ([]zipped.File, error) {
	proofs, err := r.prover.Prove(ctx, what)
	files := make([]zipped.File, len(proofs))
	for i, f := range proofs {
		files[i] = zipped.File(f)
	}
	return files, err
}

func (r *auditReads) states() auditstate.Reader {
	return auditstate.Reader{Trees: r.trees, Policy: r.policy, Copies: checkpoints.Store{DB: r.trees.DB}.Placed}
}

// pages are the pages of the audit log.
func (r *auditReads) pages() web.Area {
	return auditpages.Area(auditpages.Deps{
		States: r.states(), Prove: func(ctx context.Context, what auditpages.Thing) ([]zipped.File, error) {
			return r.prove(ctx, readapi.ProofRequest(what))
		},
		Verify: r.check, Checks: admission.AuditChecks.New(),
	})
}

// check verifies the log until the time of the context is over, and returns what concerns an organization.
func (r *auditReads) check(ctx context.Context, organization uuid.UUID) (found auditpages.Verified, err error) {
	report, err := r.verifier.Verify(ctx, verify.Request{Progress: func(events int64, _, _ eventstore.Position) {
		found.Events = events
	}})
	if err != nil {
		if found.Unfinished = errors.Is(ctx.Err(), context.DeadlineExceeded); found.Unfinished {
			err = nil
		}
		return found, err
	}
	for _, t := range report.Trees {
		if t.Organization == organization {
			found.Events, found.Uncovered = t.Checked, t.Uncovered()
		}
	}
	switch f := report.Finding; {
	case f == nil:
	case f.Organization == organization:
		found.Finding = fmt.Sprintf("%s, leaf %d: %s", f.What, f.Index, f.Detail)
	default:
		found.Finding = "something of the log that is not of this organization; its operator has to look"
	}
	return found, nil
}

// auditOperations are the operations of operators on the audit log.
func (s *Server) auditOperations() operatorapi.Audit {
	return operatorapi.Audit{
		Tenancy: access.Tenancy{Queries: s.read.access, Head: s.head()}, States: s.auditReads.states(),
		Prover: s.auditReads.prover, Verify: s.auditReads.verifier.Verify,
	}
}
