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
	"github.com/annals-project/annals/internal/pg/switchover"
)

// Judgement is whether an identity belongs to an audience, and why.
type Judgement struct {
	// HasRecord is false for an identity without a record, which belongs to no audience.
	HasRecord bool
	// Audience is nil if there is none.
	Audience *AudienceHead
	// IsMember reports whether it belongs to the audience. Since and Exact are those of a Member then.
	IsMember bool
	Since    time.Time
	Exact    bool
	// Match and Conditions are those of a rule.
	Match      audience.Match
	Conditions []JudgedCondition
}

// JudgedCondition is a condition of a rule as an identity meets it.
type JudgedCondition struct {
	audience.Condition
	Holds bool
	// Value is the trait of the identity, nil for none.
	Value *string
}

const selectJudged = `select i.traits, i.marks, i.created_at, i.updated_at, m.since from directory.identities i
	left join directory.members m on m.audience_id = $3 and m.identity_id = i.id
	where i.project_id = $1 and i.id = $2 and i.identity is not null`

// Judge reports whether an identity belongs to an audience, as the matcher of recall decides it.
func (q *Queries) Judge(ctx context.Context, project auth.Project, name string, of uuid.UUID) (j Judgement, err error) {
	at, err := q.atHead(ctx, "judge")
	if err == nil {
		err = at.atPrimary(ctx)
	}
	if err != nil {
		return Judgement{}, err
	}
	err = switchover.Snapshot(ctx, q.db, []string{Name}, func(ctx context.Context, tx pgx.Tx) error {
		j, err = judge(ctx, tx, project, name, of)
		return err
	})
	if err != nil {
		return Judgement{}, fmt.Errorf("judge an identity: %w", err)
	}
	return j, nil
}

func judge(ctx context.Context, tx pgx.Tx, project auth.Project, name string, of uuid.UUID) (j Judgement, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(selectAudienceHeads, "true", "0", "id = $3"), project.ID, 1, of)
	if err != nil {
		return j, err
	}
	found, err := pgx.CollectRows(rows, scanAudienceHead)
	if err != nil {
		return j, err
	}
	if len(found) > 0 {
		j.Audience = &found[0]
	}
	var (
		text             string
		marks            []byte
		created, updated time.Time
		since            *time.Time
	)
	row := tx.QueryRow(ctx, selectJudged, project.ID, stream.IdentityID(project.Namespace, name), of)
	if err := row.Scan(&text, &marks, &created, &updated, &since); errors.Is(err, pgx.ErrNoRows) {
		return j, nil
	} else if err != nil {
		return j, err
	}
	switch j.HasRecord = true; {
	case j.Audience == nil:
		return j, nil
	case j.Audience.Kind != audience.KindRule:
		if j.IsMember, j.Exact = since != nil, true; since != nil {
			j.Since = since.UTC()
		}
		return j, nil
	}
	j.Since, j.Exact = sinceOf(*j.Audience, created.UTC(), updated.UTC())
	return j, j.judgeRule(project.ID, text, marks)
}

// judgeRule sets what the traits of the identity decide.
func (j *Judgement) judgeRule(project uuid.UUID, text string, marks audience.TraitKeys) error {
	var rule audience.Rule
	var values map[string]string
	if err := errors.Join(json.Unmarshal(j.Audience.Rule, &rule), json.Unmarshal([]byte(text), &values)); err != nil {
		return err
	}
	matches, holds, err := rule.Judge(project, marks)
	if err != nil {
		return err
	}
	j.IsMember, j.Match = matches, rule.Match
	for n, c := range rule.Conditions {
		judged := JudgedCondition{Condition: c, Holds: holds[n]}
		if value, has := values[c.Trait]; has {
			judged.Value = &value
		}
		j.Conditions = append(j.Conditions, judged)
	}
	return nil
}
