package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/recall"
)

// ExplainRecall explains how a recall is answered, and where sources were lost. It appends nothing, charges
// nothing and logs no call. Its answer names what the viewer may not read.
var ExplainRecall = Operation[ExplainRequest, recall.Explanation]{http.MethodPost, "/operator/recall/explain"}

// MaxExplainedSources is the most source ids of one ExplainRequest.
const MaxExplainedSources = 100

// ExplainRequest is a recall to explain. It names the project by slug, with Organization, a name or an
// id, if several have it, or by KeyHash, the SHA-256 of one of its keys.
type ExplainRequest struct {
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project,omitempty"`
	KeyHash      []byte `json:"keyHash,omitempty"`
	// Recall is the body of a recall, as the API takes it.
	Recall json.RawMessage `json:"recall"`
	// SourceIDs are the sources to find, at most MaxExplainedSources.
	SourceIDs []string `json:"sourceIds,omitempty"`
}

// NewExplainRequest returns the request for a recall, in the project of a key.
func NewExplainRequest(q client.RecallRequest, key string, sourceIDs []string) (ExplainRequest, error) {
	in := ExplainRequest{SourceIDs: sourceIDs}
	if key != "" {
		hash := secret.Hash(key)
		in.KeyHash = hash[:]
	}
	var err error
	if in.Recall, err = json.Marshal(q); err != nil {
		return in, fmt.Errorf("encode query: %w", err)
	}
	return in, nil
}

// Recalls explains recalls.
type Recalls struct {
	Projects ProjectFinder
	Access   interface {
		KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error)
		OrganizationByID(ctx context.Context, id uuid.UUID) (access.Organization, bool, error)
	}
	Recall interface {
		Explain(ctx context.Context, q recall.Query, sourceIDs []string) (recall.Explanation, error)
	}
	Plans metering.PlanTerms
}

// Route returns the route of the operation.
func (r Recalls) Route() Route { return ExplainRecall.Serve(r.explain) }

func (r Recalls) explain(ctx context.Context, in ExplainRequest) (recall.Explanation, error) {
	q, err := in.query()
	if err != nil {
		return recall.Explanation{}, err
	}
	var plan metering.Plan
	if q.Project, plan, err = r.project(ctx, in); err != nil {
		return recall.Explanation{}, err
	}
	q.Budget = min(q.Budget, r.Plans.Of(plan).EvidenceCeiling)
	explained, err := r.Recall.Explain(ctx, q, in.SourceIDs)
	return explained, refusedFor(err)
}

// query reads the recall of the request with the limits of the API.
func (in ExplainRequest) query() (recall.Query, error) {
	invalid := func(format string, args ...any) (recall.Query, error) {
		return recall.Query{}, &refusedError{errInvalid, fmt.Sprintf(format, args...)}
	}
	if len(in.SourceIDs) > MaxExplainedSources {
		return invalid("%d source ids: want at most %d", len(in.SourceIDs), MaxExplainedSources)
	}
	for _, id := range in.SourceIDs {
		if err := fields.CheckName(id, 1, limit.SourceID); err != nil {
			return invalid("the source id %.100q %v", id, err)
		}
	}
	if len(in.Recall) > httpx.SmallLimit {
		return invalid("the recall has %d bytes: want at most %d", len(in.Recall), httpx.SmallLimit)
	}
	if err := rawjson.Check(in.Recall); err != nil {
		return invalid("the recall cannot be read: %v", err)
	}
	q, err := recall.ParseQuery(in.Recall)
	if f, is := errors.AsType[*fault.Error](err); is {
		return invalid("%v", f)
	}
	return q, err
}

// project finds the project of the request, and the plan of its organization.
func (r Recalls) project(ctx context.Context, in ExplainRequest) (auth.Project, metering.Plan, error) {
	if in.Project != "" {
		found, err := findProject(ctx, r.Projects, in.Organization, in.Project)
		if err != nil {
			return auth.Project{}, "", err
		}
		organization, ok, err := r.Access.OrganizationByID(ctx, found.OrganizationID)
		if err == nil && !ok {
			err = Refuse("the organization of project %q is not there", in.Project)
		}
		return found.Project, organization.Plan, err
	}
	if len(in.KeyHash) != len([32]byte{}) {
		return auth.Project{}, "", &refusedError{errInvalid, "name a project, or one of its keys by its SHA-256"}
	}
	holder, ok, err := r.Access.KeyByHash(ctx, auth.ProjectKey, [32]byte(in.KeyHash))
	if err == nil && !ok {
		err = Refuse("no project of this server has the key: is it of another server? --project names one")
	}
	return holder.Project, holder.Limits.Plan, err
}
