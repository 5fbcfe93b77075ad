package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
)

// PastJudgement is what a judgement as of a time adds.
type PastJudgement struct {
	At time.Time `json:"at"`
	// ErasedAt is set if the identity was erased later: what it was before then is not known any more, and nothing else
	// is set.
	ErasedAt *time.Time `json:"erasedAt,omitempty"`
	// HadRecord reports whether the identity had a record then.
	HadRecord bool `json:"hadRecord"`
	// IsKnown is false beyond the bounds of what is looked at.
	IsKnown bool `json:"isKnown"`
	// Until is when it left the audience since, nil if it did not. UntilKnown is false beyond the bounds.
	Until      *time.Time `json:"until,omitempty"`
	UntilKnown bool       `json:"isUntilKnown"`
	// AudienceRemovedAt is set if the audience was deleted later.
	AudienceRemovedAt *time.Time `json:"audienceRemovedAt,omitempty"`
}

const (
	selectErased   = `select erased_at from directory.heads where project_id = $1 and id = $2 and erased_at > $3`
	selectTraitsAt = `select traits from directory.past_traits where identity_id = $1 and from_at <= $2
		order by from_at desc limit 1`
	selectPrivateTo = `select identity from directory.identities
		where private = $1 and project_id = $2 and identity is not null`
)

// JudgeAt reports whether an identity belonged to an audience at a time, as the matcher of recall decides it of the
// traits, the list and the rule of then.
func (q *Queries) JudgeAt(
	ctx context.Context, project auth.Project, name string, of uuid.UUID, at time.Time,
) (j Judgement, err error) {
	at = pgarray.Instant(at)
	id := stream.IdentityID(project.Namespace, name)
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		j = Judgement{Past: &PastJudgement{At: at, IsKnown: true, UntilKnown: true}}
		var erased time.Time
		err := tx.QueryRow(ctx, selectErased, project.ID, id, at).Scan(&erased)
		if err == nil {
			j.Past.ErasedAt = new(erased.UTC())
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for an erasure: %w", err)
		}
		pasts, err := readPasts(ctx, tx, project.ID, []uuid.UUID{id}, at, maxPast, maxPast)
		if err != nil {
			return err
		}
		r := pasts[id]
		if r == nil {
			r = &recordPast{id: id}
		}
		j.HasRecord = r.at(at) != nil
		j.Past.HadRecord = j.HasRecord
		lines, err := readTimelines(ctx, tx, project.ID, at, maxPast, of)
		if err != nil {
			return err
		}
		if t := lines[of]; len(t.definitions) > 0 {
			return j.past(ctx, tx, project, t, r)
		}
		err = tx.QueryRow(ctx, selectPrivateTo, of, project.ID).Scan(&j.PrivateTo)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find whose private audience it is: %w", err)
		}
		j.IsMember = j.PrivateTo != "" && j.PrivateTo == name
		return nil
	})
	return j, err
}

// past judges a record for an audience that was defined.
func (j *Judgement) past(
	ctx context.Context, tx pgx.Tx, project auth.Project, t *timeline, r *recordPast,
) (err error) {
	at := j.Past.At
	for _, d := range t.definitions {
		if d.Kind == kindRemoved && d.From.After(at) {
			j.Past.AudienceRemovedAt = &d.From
		}
	}
	d := t.at(at)
	if d == nil || d.Kind == kindRemoved {
		j.Past.IsKnown = d != nil || !t.earlier
		return nil
	}
	j.Audience = &AudienceHead{ID: d.Audience, Slug: d.Slug, Name: d.Slug, Kind: audience.Kind(d.Kind), PutAt: d.From}
	is, err := t.standing(ctx, r, at)
	if err != nil {
		return err
	}
	j.IsMember, j.Past.IsKnown = is == inside, is != unknown
	if j.IsMember {
		if j.Since, j.Exact, err = t.since(ctx, r, at); err != nil {
			return err
		}
		if j.Past.Until, j.Past.UntilKnown, err = t.until(ctx, r, at); err != nil {
			return err
		}
	}
	if d.rule == nil || r.at(at) == nil {
		return nil
	}
	var text string
	if err := tx.QueryRow(ctx, selectTraitsAt, r.id, at).Scan(&text); err != nil {
		return fmt.Errorf("read the traits of a time: %w", err)
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return fmt.Errorf("decode the traits of a time: %w", err)
	}
	return j.conditions(project.ID, *d.rule, values, r.at(at).Marks)
}
