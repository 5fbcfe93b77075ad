package why

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
)

// Access explains who may read what.
type Access struct {
	Points interface {
		Placement(ctx context.Context, project auth.Project, id uuid.UUID) (datapoints.Placement, bool, error)
	}
	Directory interface {
		Judge(ctx context.Context, project auth.Project, name string, of uuid.UUID) (directory.Judgement, error)
		JudgeAt(
			ctx context.Context, project auth.Project, name string, of uuid.UUID, at time.Time,
		) (directory.Judgement, error)
	}
	Past interface {
		PlacementAt(ctx context.Context, id uuid.UUID, at time.Time) (PastPlacement, error)
		DeletedAt(ctx context.Context, project auth.Project, id uuid.UUID) (time.Time, error)
	}
	Now func() time.Time
}

// Reason is why an identity may read a data point, or not.
type Reason string

// The reasons. With the first four it may.
const (
	ReasonProjectVisible Reason = "project-visible"
	ReasonListed         Reason = "listed"
	ReasonRuleMatches    Reason = "rule-matches"
	ReasonOwn            Reason = "own" // it is private to the identity

	ReasonNeverSent       Reason = "never-sent"
	ReasonDeleted         Reason = "deleted"
	ReasonLater           Reason = "later" // it occurs later than now
	ReasonAudienceRemoved Reason = "audience-removed"
	ReasonPrivate         Reason = "private" // to another
	ReasonNoRecord        Reason = "no-record"
	ReasonNotListed       Reason = "not-listed"
	ReasonRuleFails       Reason = "rule-fails"
)

// Reading is whether an identity may read a data point, and why.
type Reading struct {
	MayRead bool   `json:"mayRead"`
	Reason  Reason `json:"reason"`
	datapoints.Placement
	// At is the time that was asked about, nil for now. ErasedAt is when what decided then was erased.
	At       *time.Time `json:"at,omitempty"`
	ErasedAt *time.Time `json:"erasedAt,omitempty"`
	// Judgement is nil unless the data point has an audience.
	Judgement *directory.Judgement `json:"judgement"`
}

// Explain explains whether an identity may read the data point with a source id now: the same that recall checks of
// each candidate. What recall returns also depends on the query.
func (a Access) Explain(ctx context.Context, project auth.Project, identity, sourceID string) (Reading, error) {
	placed, sent, err := a.Points.Placement(ctx, project, stream.DataPointID(project.Namespace, sourceID))
	read := Reading{Placement: placed}
	switch {
	case err != nil:
		return read, err
	case !sent:
		read.Reason = ReasonNeverSent
	case placed.Deleted:
		read.Reason = ReasonDeleted
	case placed.Audience == uuid.Nil:
		read.Reason, read.MayRead = ReasonProjectVisible, true
	default:
		j, err := a.Directory.Judge(ctx, project, identity, placed.Audience)
		if err != nil {
			return read, err
		}
		read.Judgement, read.MayRead, read.Reason = &j, j.IsMember, reasonOf(j)
	}
	if read.MayRead && placed.OccurredAt.After(a.Now()) {
		read.MayRead, read.Reason = false, ReasonLater
	}
	return read, nil
}

func reasonOf(j directory.Judgement) Reason {
	rule := j.Match != ""
	switch {
	case j.PrivateTo != "" && j.IsMember:
		return ReasonOwn
	case j.PrivateTo != "":
		return ReasonPrivate
	case j.Audience == nil:
		return ReasonAudienceRemoved
	case !j.HasRecord:
		return ReasonNoRecord
	case rule && j.IsMember:
		return ReasonRuleMatches
	case rule:
		return ReasonRuleFails
	case j.IsMember:
		return ReasonListed
	default:
		return ReasonNotListed
	}
}
