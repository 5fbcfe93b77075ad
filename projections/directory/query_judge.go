package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	HasRecord bool `json:"hasRecord"`
	// Audience is nil if there is none, and for the private audience of an identity.
	Audience *AudienceHead `json:"audience"`
	// PrivateTo is the identity whose private audience it is, "" for another.
	PrivateTo string `json:"privateTo,omitempty"`
	// IsMember reports whether it belongs to the audience. Since and Exact are those of a Member then.
	IsMember bool      `json:"isMember"`
	Since    time.Time `json:"since"`
	Exact    bool      `json:"isExact"`
	// Past is set for a time in the past.
	Past *PastJudgement `json:"past,omitempty"`
	// Match and Conditions are those of a rule.
	Match      audience.Match    `json:"match,omitempty"`
	Conditions []JudgedCondition `json:"conditions"`
}

// JudgedCondition is a condition of a rule as an identity meets it.
type JudgedCondition struct {
	audience.Condition
	Holds bool `json:"holds"`
	// Value is the trait of the identity, nil for none.
	Value *string `json:"has"`
}

const (
	selectJudged = `select traits, marks, created_at, updated_at from directory.identities
		where project_id = $1 and id = $2 and identity is not null`
	selectListed = `select audience_id, since from directory.members where identity_id = $1 and audience_id = any($2::uuid[])`
)

const (
	// maxMemberships is how many audiences of an identity are explained. shortRule selects the rules of those.
	maxMemberships = 50
	shortRule      = "octet_length(a.rule) < 65536"
)

// Judge reports whether an identity belongs to an audience, as the matcher of recall decides it.
func (q *Queries) Judge(ctx context.Context, project auth.Project, name string, of uuid.UUID) (j Judgement, err error) {
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, has, err := judge(ctx, tx, project, name, "true", of)
		if j = (Judgement{HasRecord: has}); len(list) > 0 {
			j = list[0]
		}
		if err == nil && j.Audience == nil {
			_, j.PrivateTo, err = readReaders(ctx, tx, project.ID, of)
			j.IsMember = j.PrivateTo != "" && j.PrivateTo == name
		}
		return err
	})
	return j, err
}

// Memberships judges an identity for the audiences that it belongs to, in the order of their slugs. more is true if
// there are others. A long rule is not explained.
func (q *Queries) Memberships(
	ctx context.Context, project auth.Project, name string,
) (list []Judgement, more bool, err error) {
	reach, err := q.Reach(ctx, project, name)
	if err != nil {
		return nil, false, err
	}
	err = q.judging(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, _, err = judge(ctx, tx, project, name, shortRule, reach.Audiences...)
		return err
	})
	list = slices.DeleteFunc(list, func(j Judgement) bool { return !j.IsMember })
	if more = len(list) > maxMemberships; more {
		list = list[:maxMemberships]
	}
	return list, more, err
}

// judging calls read in a snapshot of the projection that has applied the head of the log.
func (q *Queries) judging(ctx context.Context, read func(ctx context.Context, tx pgx.Tx) error) error {
	at, err := q.atHead(ctx, "judge")
	if err == nil {
		err = at.atPrimary(ctx)
	}
	if err != nil {
		return err
	}
	if err := switchover.Snapshot(ctx, q.db, []string{Name}, read); err != nil {
		return fmt.Errorf("judge an identity: %w", err)
	}
	return nil
}

// judge judges an identity for audiences, those that exist. rules is SQL for which rules are read.
func judge(
	ctx context.Context, tx pgx.Tx, project auth.Project, name, rules string, of ...uuid.UUID,
) (list []Judgement, has bool, err error) {
	sql := fmt.Sprintf(selectAudienceHeads, rules, "0", "id = any($3::uuid[]) order by slug")
	rows, err := tx.Query(ctx, sql, project.ID, maxMemberships+1, of)
	if err != nil {
		return nil, false, err
	}
	heads, err := pgx.CollectRows(rows, scanAudienceHead)
	if err != nil {
		return nil, false, err
	}
	var (
		text             string
		marks            []byte
		created, updated time.Time
	)
	id := stream.IdentityID(project.Namespace, name)
	err = tx.QueryRow(ctx, selectJudged, project.ID, id).Scan(&text, &marks, &created, &updated)
	if has = err == nil; err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, false, err
	}
	listed, err := readListed(ctx, tx, id, of)
	if err != nil {
		return nil, false, err
	}
	lines, err := readTimelines(ctx, tx, project.ID, always, somePast, of...)
	if err != nil {
		return nil, false, err
	}
	pasts, err := readPasts(ctx, tx, project.ID, []uuid.UUID{id}, always, maxPast, 0)
	if err != nil {
		return nil, false, err
	}
	for _, head := range heads {
		j := Judgement{HasRecord: has, Audience: &head}
		switch since, is := listed[head.ID]; {
		case !has:
		case head.Kind != audience.KindRule:
			j.IsMember, j.Since, j.Exact = is, since, true
		default:
			j.Since, j.Exact = sinceOf(head, created.UTC(), updated.UTC())
			err = j.judgeRule(project.ID, text, marks)
		}
		if err == nil && j.IsMember {
			j.Since, j.Exact, err = lines[head.ID].beginning(ctx, pasts[id], head, j.Since, j.Exact)
		}
		if list = append(list, j); err != nil {
			return nil, false, err
		}
	}
	return list, has, nil
}

// readListed reads since when an identity is in the lists of audiences.
func readListed(ctx context.Context, tx pgx.Tx, id uuid.UUID, of []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	rows, err := tx.Query(ctx, selectListed, id, of)
	if err != nil {
		return nil, err
	}
	listed := map[uuid.UUID]time.Time{}
	var in uuid.UUID
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&in, &since}, func() error { listed[in] = since.UTC(); return nil })
	return listed, err
}

// judgeRule sets what the traits of the identity decide.
func (j *Judgement) judgeRule(project uuid.UUID, text string, marks audience.TraitKeys) error {
	if j.Audience.Rule == nil { // it is too long, and was selected by the matcher
		j.IsMember = true
		return nil
	}
	var values map[string]string
	rule, err := j.Audience.Definition()
	if err = errors.Join(err, json.Unmarshal([]byte(text), &values)); err != nil {
		return err
	}
	j.Audience.Rule = nil // the conditions have it
	return j.conditions(project, rule, values, marks)
}

// conditions sets what the traits of an identity decide about a rule.
func (j *Judgement) conditions(
	project uuid.UUID, rule audience.Rule, values map[string]string, marks audience.TraitKeys,
) error {
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
