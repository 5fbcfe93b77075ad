package explained

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recall"
)

// MaxSources is the most source ids of one Request.
const MaxSources = 100

// maxRecall is the most bytes of a recall, as of its body in the API.
const maxRecall = 1 << 20

// Request is a recall to explain. It names the project by slug, with Organization, a name or an
// id, if several have it, or by KeyHash, the SHA-256 of one of its keys.
type Request struct {
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project,omitempty"`
	KeyHash      []byte `json:"keyHash,omitempty"`
	// Recall is the body of a recall, as the API takes it.
	Recall json.RawMessage `json:"recall"`
	// SourceIDs are the sources to find, at most MaxSources.
	SourceIDs []string `json:"sourceIds,omitempty"`
}

// Explainer explains recalls in the projects of any organization, for operators.
type Explainer struct {
	Access interface {
		OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
		KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error)
		OrganizationByID(ctx context.Context, id uuid.UUID) (access.Organization, bool, error)
	}
	Recall interface {
		Explain(ctx context.Context, q recall.Query, sourceIDs []string) (Explanation, error)
	}
	Plans metering.PlanTerms
}

// Explain explains how a recall is answered, and where sources were lost. It appends nothing, charges nothing and logs
// no call. Its answer names what the viewer may not read. The faults are those of a recall, not-found and conflict.
func (e Explainer) Explain(ctx context.Context, in Request) (Explanation, error) {
	if err := in.check(); err != nil {
		return Explanation{}, err
	}
	q, err := recall.ParseQuery(in.Recall)
	if f, is := errors.AsType[*fault.Error](err); is {
		err = fault.New(f.Kind, f.Code, "%v", f) // an operator reads the code too
	}
	if err != nil {
		return Explanation{}, err
	}
	var plan metering.Plan
	if q.Project, plan, err = e.project(ctx, in); err != nil {
		return Explanation{}, err
	}
	q.Budget = min(q.Budget, e.Plans.Of(plan).EvidenceCeiling)
	return e.Recall.Explain(ctx, q, in.SourceIDs)
}

// check checks the limits of a request, which for the recall are those of the API.
func (in Request) check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, format, args...)
	}
	if len(in.SourceIDs) > MaxSources {
		return invalid("%d source ids: want at most %d", len(in.SourceIDs), MaxSources)
	}
	for _, id := range in.SourceIDs {
		if err := fields.CheckName(id, 1, limit.SourceID); err != nil {
			return invalid("the source id %.100q %v", id, err)
		}
	}
	if len(in.Recall) > maxRecall {
		return invalid("the recall has %d bytes: want at most %d", len(in.Recall), maxRecall)
	}
	if err := rawjson.Check(in.Recall); err != nil {
		return invalid("the recall cannot be read: %v", err)
	}
	return nil
}

// project finds the project of the request, and the plan of its organization.
func (e Explainer) project(ctx context.Context, in Request) (auth.Project, metering.Plan, error) {
	if in.Project != "" {
		found, err := e.Access.OnlyProject(ctx, in.Organization, in.Project)
		if err != nil {
			return auth.Project{}, "", err
		}
		organization, ok, err := e.Access.OrganizationByID(ctx, found.OrganizationID)
		if err == nil && !ok {
			err = fault.New(fault.NotFound, fault.CodeNotFound, "the organization of project %q is not there", in.Project)
		}
		return found.Project, organization.Plan, err
	}
	if len(in.KeyHash) != len([32]byte{}) {
		return auth.Project{}, "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"name a project, or one of its keys by its SHA-256")
	}
	holder, ok, err := e.Access.KeyByHash(ctx, auth.ProjectKey, [32]byte(in.KeyHash))
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound,
			"no project of this server has the key: is it of another server? --project names one")
	}
	return holder.Project, holder.Limits.Plan, err
}
