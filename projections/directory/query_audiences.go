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
	"github.com/annals-project/annals/internal/auth"
)

// Audience is an audience as the API shows it.
type Audience struct {
	Slug string        `json:"slug"`
	Name string        `json:"name"`
	Kind audience.Kind `json:"kind"`
	// MemberCount is how many identities it reaches now, MemoryCount how many memories are scoped to it.
	MemberCount int64 `json:"memberCount"`
	MemoryCount int64 `json:"memoryCount"`
	// ReachesNobody says that a named audience has no members.
	ReachesNobody bool `json:"reachesNobody"`
	// RecomputedAt is when it was put or recomputed last, nil for the default one.
	RecomputedAt *time.Time `json:"recomputedAt"`
	CreatedAt    time.Time  `json:"createdAt"`
	// Identities are the members of a fixed one, sorted by their bytes; nil for others.
	Identities []string `json:"identities"`
	// Rule is that of a rule, nil for others.
	Rule *audience.Rule `json:"rule"`

	id uuid.UUID
}

// selectShown reads audiences of a project, of one slug or all of them.
const selectShown = `select a.id, a.slug, a.name, a.kind, a.rule, a.recomputed_at, a.created_at, a.member_count,
		case when a.rule is null then array(
			select i.identity from directory.members m join directory.identities i on i.id = m.identity_id and i.project_id = a.project_id
			where m.audience_id = a.id and i.identity is not null order by i.identity collate "C") end
	from directory.audiences a where a.project_id = $1 and ($2::text is null or a.slug = $2) order by a.created_at, a.id`

func scanAudience(row pgx.CollectableRow) (a Audience, err error) {
	var (
		rule       *string
		recomputed time.Time
	)
	if err := row.Scan((*[16]byte)(&a.id), &a.Slug, &a.Name, &a.Kind, &rule, &recomputed, &a.CreatedAt, &a.MemberCount, &a.Identities); err != nil {
		return Audience{}, err
	}
	recomputed, a.CreatedAt = recomputed.UTC(), a.CreatedAt.UTC()
	a.RecomputedAt = &recomputed
	if rule != nil {
		a.Rule = &audience.Rule{}
		if err := json.Unmarshal([]byte(*rule), a.Rule); err != nil {
			return Audience{}, fmt.Errorf("decode rule: %w", err)
		}
		if a.Rule.Conditions == nil {
			a.Rule.Conditions = []audience.Condition{}
		}
		for n := range a.Rule.Conditions {
			if a.Rule.Conditions[n].Values == nil {
				a.Rule.Conditions[n].Values = []string{}
			}
		}
	} else {
		a.MemberCount = int64(len(a.Identities))
	}
	a.ReachesNobody = a.MemberCount == 0
	return a, nil
}

// Audiences lists the audiences of a project once the projection has passed the head of the log: the default one first, then the
// others by the time of their creation. The fault is service-unavailable where it is stopped, or late.
func (q *Queries) Audiences(ctx context.Context, project auth.Project) ([]Audience, error) {
	if err := q.passHead(ctx); err != nil {
		return nil, err
	}
	list, err := q.audiences(ctx, project, true, nil)
	if err != nil {
		return nil, fmt.Errorf("list audiences: %w", err)
	}
	return list, nil
}

// Audience finds an audience of a project by its slug, once the projection has passed the head of the log; audience.Default is the
// default one. The fault is service-unavailable where it is stopped, or late.
func (q *Queries) Audience(ctx context.Context, project auth.Project, slug string) (a Audience, ok bool, err error) {
	if err := q.passHead(ctx); err != nil {
		return Audience{}, false, err
	}
	list, err := q.audiences(ctx, project, slug == audience.Default, &slug)
	if err != nil {
		return Audience{}, false, fmt.Errorf("find an audience: %w", err)
	}
	if len(list) == 0 {
		return Audience{}, false, nil
	}
	return list[0], true, nil
}

// audiences reads the default audience, where that is asked for, and those of a slug, or all.
func (q *Queries) audiences(ctx context.Context, project auth.Project, byDefault bool, slug *string) (list []Audience, err error) {
	err = pgx.BeginTxFunc(ctx, q.db, snapshot, func(tx pgx.Tx) error {
		if byDefault {
			a := Audience{Slug: audience.Default, Name: "Project", Kind: audience.KindDefault}
			err := tx.QueryRow(ctx, `select p.created_at, (select count(*) from directory.identities i where i.project_id = p.project_id and i.identity is not null)
				from directory.projects p where p.project_id = $1`, [16]byte(project.ID)).Scan(&a.CreatedAt, &a.MemberCount)
			if errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("nothing created project %s", project.ID)
			}
			if err != nil {
				return err
			}
			a.CreatedAt = a.CreatedAt.UTC()
			list = append(list, a)
		}
		rows, err := tx.Query(ctx, selectShown, [16]byte(project.ID), slug)
		if err != nil {
			return err
		}
		named, err := pgx.CollectRows(rows, scanAudience)
		list = append(list, named...)
		return err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	scopes, err := q.scopes.Scopes(ctx, project)
	if err != nil {
		return nil, err
	}
	for n := range list {
		list[n].MemoryCount = scopes[list[n].id]
	}
	return list, nil
}
