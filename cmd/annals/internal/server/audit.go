package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/audit"
	auditpages "github.com/annals-project/annals/console/pages/audit"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/zipped"
	"github.com/annals-project/annals/projections/access"
	trees "github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/prove"
	auditstate "github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/readapi"
)

// AuditConfig is the configuration of the audit log. All may be zero.
type AuditConfig struct {
	// Anchor is the folder or the URL that its files are copied to, TokenFile the file with the token for that. Policy
	// is the file that names the witnesses.
	Anchor, TokenFile, Policy string
	// Every is the time between two looks for what to sign and to copy, 0 for 5 s.
	Every time.Duration
	// Public serves checkpoints and tiles of organizations without a key.
	Public bool
}

const (
	auditEvery = 5 * time.Second
	// checkpointLate and copyLate are the ages from which an operator should know that something waits.
	checkpointLate = 2 * time.Minute
	copyLate       = 10 * time.Minute
)

// auditLog signs checkpoints of the audit trees and copies them, in processes with the role pipeline.
type auditLog struct {
	signer    *audit.Signer
	anchor    *audit.Anchor    // nil without one
	witnesses *audit.Witnesses // nil without any
	now       func() time.Time
}

// buildAudit makes what signs checkpoints. The keys are sealed with the seal keys, which a process that writes has
// opened; another one has them from its settings.
func buildAudit(ctx context.Context, s *Server) (a adds, err error) {
	cfg := s.cfg
	of := audit.Copier{
		Trees: auditTrees{trees.Queries{DB: s.storage.work}}, Kept: checkpoints.Store{DB: s.storage.work},
		Holder: uuid.New(), Logger: cfg.Logger, Now: cfg.now,
	}
	if of.Kept.Sealer, err = s.auditSealer(ctx); err != nil {
		return adds{}, err
	}
	s.audit = &auditLog{now: cfg.now, signer: &audit.Signer{
		Journal: s.journal.Journal, Trees: of.Trees, Kept: of.Kept, LogID: runner.LogIDOf(s.storage.store, s.storage.codec),
		Holder: of.Holder, Logger: cfg.Logger, Now: cfg.now,
	}}
	every := cfg.Audit.Every
	if every == 0 {
		every = auditEvery
	}
	add := func(name string, pass func(context.Context) error) {
		a.work = append(a.work, task{name, func(ctx context.Context) error {
			return audit.Run(ctx, cfg.Logger, name, every, pass)
		}})
	}
	add("checkpoints", s.audit.signer.Pass)
	if cfg.Audit.Anchor != "" {
		to, err := audit.OpenPlace(cfg.Audit.Anchor, cfg.Audit.TokenFile)
		if err != nil {
			return adds{}, err
		}
		s.audit.anchor = audit.NewAnchor(&of, to)
		add("anchor", s.audit.anchor.Pass)
	}
	if cfg.Audit.Policy != "" {
		list, err := audit.ReadPolicy(cfg.Audit.Policy)
		if err != nil {
			return adds{}, err
		}
		if len(list) > 0 {
			s.audit.witnesses = audit.NewWitnesses(&of, s.journal.Journal, list)
			add("witnesses", s.audit.witnesses.Pass)
		}
	}
	tenancy := access.Tenancy{Queries: s.read.access, Head: s.head()}
	a.operator = append(a.operator, operatorapi.AuditKeyRoute(tenancy, s.audit.signer.Rotate))
	return a, s.registry.Register(s.audit)
}

// auditSealer returns what seals the keys, nil in a process that knows no seal key: then another one must sign.
func (s *Server) auditSealer(ctx context.Context) (*secret.Sealer, error) {
	if s.write != nil {
		return s.write.vault.Sealer, nil
	}
	known, err := s.cfg.Data.KnownSealKeys()
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		s.cfg.Logger.WarnContext(ctx, "this process signs no checkpoints of the audit log, since it has no seal key: "+
			"set ANNALS_SEAL_KEY")
		return nil, nil //nolint:nilnil // it still copies what others sign
	}
	return secret.NewSealer(known...)
}

// auditTrees are the trees as the commands read them.
type auditTrees struct{ trees.Queries }

func (t auditTrees) Tree(ctx context.Context, organization uuid.UUID) (audit.Tree, bool, error) {
	one, ok, err := t.Queries.Tree(ctx, organization)
	return auditTree(one), ok, err
}

func (t auditTrees) Trees(ctx context.Context, after *uuid.UUID, limit int) ([]audit.Tree, error) {
	return allAuditTrees(t.Queries.Trees(ctx, after, limit))
}

func (t auditTrees) Due(ctx context.Context, limit int) ([]audit.Tree, error) {
	return allAuditTrees(t.Queries.Due(ctx, limit))
}

func allAuditTrees(list []trees.Tree, err error) ([]audit.Tree, error) {
	all := make([]audit.Tree, len(list))
	for i, t := range list {
		all[i] = auditTree(t)
	}
	return all, err
}

func auditTree(t trees.Tree) audit.Tree {
	return audit.Tree{
		Organization: t.Organization, Size: t.Size, Position: t.Position, Since: t.Since, Origin: t.Origin,
		Verifiers: t.Verifiers, Checkpoint: t.Checkpoint, CheckpointSize: t.CheckpointSize,
	}
}

// age is how long something waits, 0 if nothing does.
func (a *auditLog) age(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, a.now().Sub(since))
}

// conditions returns what is late, and the trees that do not match what was signed of them.
func (a *auditLog) conditions() (list condition.List) {
	if a == nil {
		return nil
	}
	if differs := a.signer.Differs(); len(differs) > 0 {
		var details []string
		for _, id := range slices.SortedFunc(maps.Keys(differs), compareIDs) {
			details = append(details, fmt.Sprintf("organization %s: %s", id, differs[id]))
		}
		c := withCause(condition.AuditTreesDiffer, "audit trees do not match their checkpoints, and are not signed any more",
			strings.Join(details[:min(len(details), maxNamed)], "; "))
		c.Count = len(differs)
		list = append(list, c)
	}
	late := func(since time.Time, limit time.Duration, of, words, private string) {
		if a.age(since) < limit {
			return
		}
		c := remark(condition.AuditLate, words)
		c.Of, c.Since, c.Private = of, since, private
		list = append(list, c)
	}
	const unsigned = "events of the audit log wait for a checkpoint"
	late(a.signer.Waiting(), checkpointLate, "checkpoints", unsigned, unsigned)
	if a.anchor != nil {
		const waits = "checkpoints of the audit log wait to be copied to the anchor"
		late(a.anchor.Since(), copyLate, "anchor", waits, waits+" "+a.anchor.To.String())
	}
	if a.witnesses != nil {
		const waits = "checkpoints of the audit log wait for a witness"
		since := a.witnesses.Since()
		for _, name := range slices.Sorted(maps.Keys(since)) {
			late(since[name], copyLate, "witness "+name, waits, waits+": "+name)
		}
	}
	return list
}

func compareIDs(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }

var (
	checkpointLagMetric = prometheus.NewDesc("annals_audit_checkpoint_lag_seconds",
		"Age of the oldest event that no checkpoint of its audit tree covers. 0 for none.", nil, nil)
	anchorLagMetric = prometheus.NewDesc("annals_audit_anchor_lag_seconds",
		"How long a checkpoint has waited to be copied to the anchor. 0 for none.", nil, nil)
	witnessLagMetric = prometheus.NewDesc("annals_audit_witness_lag_seconds",
		"How long a checkpoint has waited for a witness. 0 for none.", []string{"witness"}, nil)
	treesDifferMetric = prometheus.NewDesc("annals_audit_trees_differ",
		"Audit trees that do not match their checkpoints, for which nothing is signed.", nil, nil)
)

// Describe implements prometheus.Collector. It describes nothing: the registry checks what is collected.
func (a *auditLog) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (a *auditLog) Collect(out chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	gauge(checkpointLagMetric, a.age(a.signer.Waiting()).Seconds())
	gauge(treesDifferMetric, float64(len(a.signer.Differs())))
	if a.anchor != nil {
		gauge(anchorLagMetric, a.age(a.anchor.Since()).Seconds())
	}
	if a.witnesses != nil {
		for name, since := range a.witnesses.Since() {
			gauge(witnessLagMetric, a.age(since).Seconds(), name)
		}
	}
}

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
