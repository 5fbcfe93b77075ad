package why

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
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

const (
	// pastPage is how many events of a data point are read at once, pastEvents how many are looked at: each may hold a
	// text.
	pastPage   = 25
	pastEvents = 500
)

// The reasons of a time in the past, with which the identity might not read the data point, or nobody knows any more.
const (
	ReasonNotYetSent     Reason = "not-yet-sent"
	ReasonPointErased    Reason = "point-erased"    // it was deleted later
	ReasonIdentityErased Reason = "identity-erased" // it was erased later
	ReasonNotLooked      Reason = "not-looked"      // too much happened since
)

// Past reads where data points were.
type Past struct {
	DB   *pgxpool.Pool
	Head projections.Head
	Log  interface {
		Read(
			ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
		) ([]eventstore.DecodedEvent, error)
	}
}

// PastPlacement is where a data point was at a time.
type PastPlacement struct {
	datapoints.Placement
	// Sent is false if it was first sent later, IsKnown if more happened since than is looked at.
	Sent, IsKnown bool
}

// PlacementAt finds where a data point was at a time, by the events of its stream. Of a data point that was deleted
// meanwhile it finds nothing.
func (p Past) PlacementAt(ctx context.Context, id uuid.UUID, at time.Time) (found PastPlacement, err error) {
	found.IsKnown = true
	var newest uint64
	from, name := eventstore.EndOfStream, stream.Name(stream.DataPoint, id)
	for looked := 0; looked < pastEvents; looked += pastPage {
		page, err := p.Log.Read(ctx, name, from, eventstore.Backwards, pastPage)
		if errors.Is(err, eventstore.ErrDeleted) { // the deletion is newer than the call
			found.IsKnown = false
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read the events of a data point: %w", err)
		}
		for _, e := range page {
			from = e.Revision - 1
			send, states, ok := datapoint.SendOf(e.Event)
			if !ok || send.AcceptedAt.After(at) {
				continue
			}
			effect := uint64(e.Position)
			if send.Commit > 0 { // an item of a batch
				effect = send.Commit
			}
			if !found.Sent || effect > newest {
				found.Sent, newest = true, effect
				found.Placement = datapoints.Placement{
					Revision: states.Effect.Revision, Captured: states.Effect.Revision, Audience: states.Effect.Audience,
					OccurredAt: states.Effect.OccurredAt.UTC(),
				}
			}
			if !states.Historic() { // what is before it in the stream took effect before
				return found, nil
			}
		}
		if from < 0 || len(page) == 0 {
			return found, nil
		}
	}
	found.IsKnown = false
	return found, nil
}

// DeletedAt is when a data point was deleted, which the projection of data points knows already.
func (p Past) DeletedAt(ctx context.Context, project auth.Project, id uuid.UUID) (at time.Time, err error) {
	_, err = again(ctx, p.Head, func() (bool, error) {
		err := p.DB.QueryRow(ctx, `select deleted_at from trace.deleted where data_point = $1 and project_id = $2`, id,
			project.ID).Scan(&at)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	}, projection.Trace)
	if err != nil {
		return at, fmt.Errorf("look for a deleted data point: %w", err)
	}
	return at.UTC(), nil
}

// ExplainAt explains whether an identity could read the data point with a source id at a time: what recall would have
// checked then, of the texts, audiences and traits of then.
func (a Access) ExplainAt(
	ctx context.Context, project auth.Project, identity, sourceID string, at time.Time,
) (read Reading, err error) {
	id := stream.DataPointID(project.Namespace, sourceID)
	now, sent, err := a.Points.Placement(ctx, project, id)
	read = Reading{At: &at}
	if err != nil || !sent {
		read.Reason = ReasonNeverSent
		return read, err
	}
	was, err := a.Past.PlacementAt(ctx, id, at)
	if err != nil {
		return read, err
	}
	if now.Deleted {
		deleted, err := a.Past.DeletedAt(ctx, project, id)
		if read.Deleted, read.Reason = true, ReasonDeleted; deleted.After(at) {
			read.Reason, read.ErasedAt = ReasonPointErased, &deleted
		}
		return read, err
	}
	read.Placement = was.Placement
	switch {
	case !was.IsKnown:
		read.Reason = ReasonNotLooked
	case !was.Sent:
		read.Reason = ReasonNotYetSent
	case was.Audience == uuid.Nil:
		read.Reason, read.MayRead = ReasonProjectVisible, true
	default:
		j, err := a.Directory.JudgeAt(ctx, project, identity, was.Audience, at)
		if err != nil {
			return read, err
		}
		read.Judgement, read.MayRead, read.Reason = &j, j.IsMember, reasonOf(j)
		switch {
		case j.Past.ErasedAt != nil:
			read.Reason, read.ErasedAt = ReasonIdentityErased, j.Past.ErasedAt
		case !j.Past.IsKnown:
			read.Reason = ReasonNotLooked
		}
	}
	if read.MayRead && was.OccurredAt.After(at) {
		read.MayRead, read.Reason = false, ReasonLater
	}
	return read, nil
}
