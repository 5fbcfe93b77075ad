package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/unnest"
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
	// Rule is an audience.Rule as JSON, nil for others.
	Rule json.RawMessage `json:"rule"`

	id uuid.UUID
}

const (
	// selectSizes lists audiences of a project, of one slug or all of them, with what a definition has: the bytes of a rule, or members.
	selectSizes = `select a.id, coalesce(octet_length(a.rule), 0), case when a.rule is null then
			(select count(*) from directory.members m where m.audience_id = a.id) else 0 end
		from directory.audiences a where a.project_id = $1 and ($2::text is null or a.slug = $2) order by a.created_at, a.id`
	selectShown = `select a.id, a.slug, a.name, a.kind, a.rule, a.recomputed_at, a.created_at, a.member_count,
			case when a.rule is null then array(
				select i.identity from directory.members m join directory.identities i on i.id = m.identity_id and i.project_id = a.project_id
				where m.audience_id = a.id and i.identity is not null order by i.identity collate "C") end
		from directory.audiences a where a.project_id = $1 and a.id = any($2::uuid[]) order by a.created_at, a.id`
)

const (
	// maxGroupBytes is about how many bytes of definitions are in memory at once, of several audiences.
	maxGroupBytes = 4 << 20
	// shownMember is what a member of a fixed audience is taken for before its name is read. Names have at most 800 bytes.
	shownMember = 256
	// shownAudience is what the rest of an audience is taken for.
	shownAudience = 1 << 10
)

// sized is an audience before its definition is read.
type sized struct {
	id    uuid.UUID
	bytes int64
}

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
		a.Rule = json.RawMessage(*rule)
	} else {
		a.MemberCount = int64(len(a.Identities))
	}
	a.ReachesNobody = a.MemberCount == 0
	return a, nil
}

// Audiences lists the audiences of a project once the projection has passed the head of the log: the default one first, then the
// others by the time of their creation. Definitions are read a few at a time, while the list is gone through, and their bytes are
// reserved before: an audience that ends meanwhile is left out. An error ends the list; it is service-unavailable where the
// projection is stopped, or late, or too many bytes of answers are in flight.
func (q *Queries) Audiences(ctx context.Context, project auth.Project) iter.Seq2[Audience, error] {
	return func(yield func(Audience, error) bool) {
		if err := q.passHead(ctx); err != nil {
			yield(Audience{}, err)
			return
		}
		if err := q.audiences(ctx, project, true, nil, func(a Audience) bool { return yield(a, nil) }); err != nil {
			yield(Audience{}, fmt.Errorf("list audiences: %w", err))
		}
	}
}

// AudienceList is Audiences as a whole.
func (q *Queries) AudienceList(ctx context.Context, project auth.Project) (list []Audience, err error) {
	for a, err := range q.Audiences(ctx, project) {
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// Audience finds an audience of a project by its slug, once the projection has passed the head of the log; audience.Default is the
// default one. The faults are those of Audiences.
func (q *Queries) Audience(ctx context.Context, project auth.Project, slug string) (a Audience, ok bool, err error) {
	if err := q.passHead(ctx); err != nil {
		return Audience{}, false, err
	}
	err = q.audiences(ctx, project, slug == audience.Default, &slug, func(found Audience) bool {
		a, ok = found, true
		return false
	})
	if err != nil {
		return Audience{}, false, fmt.Errorf("find an audience: %w", err)
	}
	return a, ok, nil
}

// audiences yields the default audience, where that is asked for, and those of a slug, or all, until yield returns false.
func (q *Queries) audiences(ctx context.Context, project auth.Project, byDefault bool, slug *string, yield func(Audience) bool) error {
	var (
		first Audience
		list  []sized
	)
	err := pgx.BeginTxFunc(ctx, q.db, snapshot, func(tx pgx.Tx) (err error) {
		if byDefault {
			if first, err = defaultAudience(ctx, tx, project.ID); err != nil {
				return err
			}
		}
		list, err = sizes(ctx, tx, project.ID, slug)
		return err
	})
	if err != nil || !byDefault && len(list) == 0 {
		return err
	}
	scopes, err := q.scopes.Scopes(ctx, project)
	if err != nil {
		return err
	}
	first.MemoryCount = scopes[uuid.Nil]
	if byDefault && !yield(first) {
		return nil
	}
	for len(list) > 0 {
		n, bytes := 1, list[0].bytes
		for ; n < len(list) && bytes+list[n].bytes <= maxGroupBytes; n++ {
			bytes += list[n].bytes
		}
		more, err := q.group(ctx, project.ID, list[:n], bytes, func(a Audience) bool {
			a.MemoryCount = scopes[a.id]
			return yield(a)
		})
		if err != nil || !more {
			return err
		}
		list = list[n:]
	}
	return nil
}

// group yields audiences of about so many bytes together. What it reserves for them is given back once the next group is asked for.
func (q *Queries) group(ctx context.Context, project uuid.UUID, list []sized, bytes int64, yield func(Audience) bool) (more bool, err error) {
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return false, err
	}
	rows, err := q.db.Query(ctx, selectShown, [16]byte(project), unnest.IDs(list, func(s sized) uuid.UUID { return s.id }))
	if err != nil {
		return false, err
	}
	shown, err := pgx.CollectRows(rows, scanAudience)
	if err != nil {
		return false, err
	}
	for n := range shown {
		if !yield(shown[n]) {
			return false, nil
		}
		shown[n] = Audience{} // it is written
	}
	allowance.FromContext(ctx).Return(answerCopies * bytes)
	return true, nil
}

func defaultAudience(ctx context.Context, tx pgx.Tx, project uuid.UUID) (Audience, error) {
	a := Audience{Slug: audience.Default, Name: "Project", Kind: audience.KindDefault}
	err := tx.QueryRow(ctx, `select p.created_at, p.identities from directory.projects p where p.project_id = $1`, [16]byte(project)).Scan(&a.CreatedAt, &a.MemberCount)
	if errors.Is(err, pgx.ErrNoRows) {
		return Audience{}, fmt.Errorf("nothing created project %s", project)
	}
	a.CreatedAt = a.CreatedAt.UTC()
	return a, err
}

func sizes(ctx context.Context, tx pgx.Tx, project uuid.UUID, slug *string) ([]sized, error) {
	rows, err := tx.Query(ctx, selectSizes, [16]byte(project), slug)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sized, err error) {
		var rule, members int64
		err = row.Scan((*[16]byte)(&s.id), &rule, &members)
		s.bytes = rule + members*shownMember + shownAudience
		return s, err
	})
}
