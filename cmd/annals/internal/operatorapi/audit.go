package operatorapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/audit/prove"
	"github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
	"github.com/annals-project/annals/projections/reads/shown"
)

// The operations on the audit log. AuditStatus returns the states of all trees, or that of one. Prove returns the
// proofs of a thing, and ProveWithSalt those that hold the events themselves. VerifyAudit compares the whole log with
// the trees and their checkpoints: its last value has the report. RotateAuditKey adds a key to a tree, and returns its
// public part.
var (
	AuditStatus    = Stream[AuditRequest, state.State]{"/operator/audit/status"}
	Prove          = Stream[ProveRequest, prove.File]{"/operator/audit/prove"}
	ProveWithSalt  = Stream[ProveRequest, prove.File]{"/operator/audit/prove-with-salt"}
	VerifyAudit    = Stream[VerifyRequest, Verifying]{"/operator/audit/verify"}
	RotateAuditKey = Operation[AuditRequest, AuditKey]{http.MethodPost, "/operator/audit/rotate-key"}
)

// AuditRequest names a tree: that of an organization, of the only one, or of the deployment.
type AuditRequest struct {
	Organization string `json:"organization,omitempty"`
	Deployment   bool   `json:"deployment,omitempty"`
	// All asks for all trees if no organization is named.
	All bool `json:"all,omitempty"`
}

// ProveRequest names a thing. A source needs its project.
type ProveRequest struct {
	Organization string     `json:"organization,omitempty"`
	Project      string     `json:"project,omitempty"`
	Kind         prove.Kind `json:"kind"`
	ID           string     `json:"id"`
}

// VerifyRequest has a checkpoint that the caller kept, none if it is empty.
type VerifyRequest struct {
	Since []byte `json:"since,omitempty"`
}

// Verifying is the progress of a verification, or its report.
type Verifying struct {
	// Events is how many events were read, and At up to which position, of Head.
	Events int64               `json:"events"`
	At     eventstore.Position `json:"at"`
	Head   eventstore.Position `json:"head"`
	Report *verify.Report      `json:"report,omitempty"`
}

// AuditKey is the public part of a key.
type AuditKey struct {
	Organization uuid.UUID `json:"organization"`
	Verifier     string    `json:"verifier"`
}

// Audit is what the operations call.
type Audit struct {
	Tenancy access.Tenancy
	States  state.Reader
	Prover  *prove.Prover
	// Verify is verify.Verifier.Verify.
	Verify func(ctx context.Context, in verify.Request) (verify.Report, error)
}

// AuditRoutes returns the routes of the operations that read.
func AuditRoutes(a Audit) []Route {
	return []Route{
		AuditStatus.Serve(a.status), VerifyAudit.Serve(a.verify), Prove.Serve(a.prove(false)),
		ProveWithSalt.Serve(a.prove(true)), a.exportRoute(),
	}
}

// AuditKeyRoute returns the route of RotateAuditKey.
func AuditKeyRoute(of access.Tenancy, rotate func(context.Context, uuid.UUID) (verifier string, err error)) Route {
	return RotateAuditKey.Serve(func(ctx context.Context, in AuditRequest) (key AuditKey, err error) {
		if key.Organization, _, err = treeOf(ctx, of, in); err != nil {
			return key, err
		}
		key.Verifier, err = rotate(ctx, key.Organization)
		return key, err
	})
}

// treeOf finds the organization of a tree, with its name.
func treeOf(ctx context.Context, of access.Tenancy, in AuditRequest) (id uuid.UUID, name string, err error) {
	if in.Deployment {
		return uuid.Nil, "", nil
	}
	o, err := of.Organization(ctx, in.Organization)
	return o.ID, o.Name, err
}

func (a Audit) status(ctx context.Context, in AuditRequest, _ func(), emit func(state.State) error) error {
	if in.Organization != "" || in.Deployment || !in.All {
		id, name, err := treeOf(ctx, a.Tenancy, in)
		if err != nil {
			return err
		}
		one, err := a.States.One(ctx, id)
		if err != nil {
			return err
		}
		one.Name = name
		return emit(one)
	}
	list, err := a.Tenancy.Organizations(ctx, "")
	if err != nil {
		return err
	}
	names := map[uuid.UUID]tenants.ListedOrganization{}
	for _, o := range list {
		names[o.ID] = o
	}
	return a.States.Each(ctx, func(one state.State) error {
		one.Name = names[one.Organization].Name
		return emit(one)
	})
}

func (a Audit) verify(ctx context.Context, in VerifyRequest, opened func(), emit func(Verifying) error) error {
	opened()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress := func(events int64, at, head eventstore.Position) {
		if err := emit(Verifying{Events: events, At: at, Head: head}); err != nil {
			cancel(err) // the caller has gone away
		}
	}
	report, err := a.Verify(ctx, verify.Request{Since: in.Since, Progress: progress})
	if err != nil {
		return err
	}
	return emit(Verifying{Events: report.Events, At: report.Head, Head: report.Head, Report: &report})
}

func (a Audit) prove(withSalt bool) func(context.Context, ProveRequest, func(), func(prove.File) error) error {
	return func(ctx context.Context, in ProveRequest, _ func(), emit func(prove.File) error) error {
		o, err := a.Tenancy.Organization(ctx, in.Organization)
		if err != nil {
			return err
		}
		files, err := a.Prover.Prove(ctx, prove.Request{
			Organization: o.ID, Project: in.Project, Kind: in.Kind, ID: in.ID, WithSalt: withSalt,
		})
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := emit(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// ShowRead shows what a request was shown, as the log has it.
var ShowRead = Operation[ShowReadRequest, shown.Shown]{http.MethodPost, "/operator/audit/show"}

// ShowReadRequest names a part of the record of a request, and the first of its texts.
type ShowReadRequest struct {
	Request uuid.UUID `json:"request"`
	Part    int       `json:"part,omitempty"`
	From    int       `json:"from,omitempty"`
}

const (
	// shownTexts is how many texts an answer has, and shownBytes the most of each, so that it stays below maxAnswer.
	shownTexts = 100
	shownBytes = 20 << 10
)

// ShowReadRoute returns the route of ShowRead.
func ShowReadRoute(by shown.Reader) Route {
	return ShowRead.Serve(func(ctx context.Context, in ShowReadRequest) (shown.Shown, error) {
		if in.Part < 0 || in.From < 0 {
			return shown.Shown{}, Refuse("a part and a text have numbers from 0 on")
		}
		return by.Read(ctx, shown.Query{
			Request: in.Request, Part: in.Part, From: in.From, Count: shownTexts, Bytes: shownBytes,
		})
	})
}
