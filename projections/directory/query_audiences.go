package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pgarray"
)

// Audience is an audience with its definition and counters.
type Audience struct {
	Slug string
	Name string
	Kind audience.Kind
	// MemberCount counts the identities that belong to it now, MemoryCount the memories scoped to
	// it.
	MemberCount int64
	MemoryCount int64
	// ReachesNobody is true for a named audience without members.
	ReachesNobody bool
	// RecomputedAt is when it was last put or recomputed, nil for the default audience.
	RecomputedAt *time.Time
	CreatedAt    time.Time
	// Identities are the members of a fixed audience in byte order, nil for others.
	Identities []string
	// Rule is an audience.Rule as JSON, nil without a rule.
	Rule json.RawMessage

	id uuid.UUID
	// outdated is true while a recount of a new rule runs: MemberCount is of the rule before.
	outdated bool
}

const (
	// selectAudienceSizes lists the audiences of a project, or the one of a slug, with the size of
	// each definition: the bytes of its rule, or its members.
	selectAudienceSizes = `select a.id, coalesce(octet_length(a.rule), 0), case when a.rule is null then
			(select count(*) from directory.members m where m.audience_id = a.id) else 0 end
		from directory.audiences a where a.project_id = $1 and ($2::text is null or a.slug = $2) order by a.created_at,
			a.id`
	selectAudiencesByID = `select a.id, a.slug, a.name, a.kind, a.rule, a.recomputed_at, a.created_at, a.member_count, a.outdated,
			case when a.rule is null then array(
				select i.identity from directory.members m join directory.identities i on i.id = m.identity_id
					and i.project_id = a.project_id
				where m.audience_id = a.id and i.identity is not null order by i.identity collate "C") end
		from directory.audiences a where a.project_id = $1 and a.id = any($2::uuid[]) order by a.created_at, a.id`
)

const (
	// maxGroupBytes is about the most bytes of definitions that are in memory at once.
	maxGroupBytes = 4 << 20
	// memberBytes is the estimated size of a member before its name is read. Names have at most 800
	// bytes.
	memberBytes = 256
	// audienceBytes is the estimated size of an audience without its definition.
	audienceBytes = 1 << 10
)

// audienceSize is an audience before its definition is read.
type audienceSize struct {
	id    uuid.UUID
	bytes int64
}

func scanAudience(row pgx.CollectableRow) (a Audience, err error) {
	var (
		rule       *string
		recomputed time.Time
	)
	err = row.Scan(&a.id, &a.Slug, &a.Name, &a.Kind, &rule, &recomputed, &a.CreatedAt, &a.MemberCount, &a.outdated,
		&a.Identities)
	if err != nil {
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

// Audiences lists the audiences of a project once the projection has applied the head of the log:
// the default one first, then by creation. It reads definitions in groups while the caller
// iterates, and reserves their bytes before. An audience that is removed meanwhile is left out. An
// error ends the list: service-unavailable if the projection is stopped or late, or if too many
// bytes of responses are in flight.
func (q *Queries) Audiences(ctx context.Context, project auth.Project) iter.Seq2[Audience, error] {
	return func(yield func(Audience, error) bool) {
		at, err := q.atHead(ctx, "audiences")
		if err != nil {
			yield(Audience{}, err)
			return
		}
		if err := at.audiences(ctx, project, true, nil, func(a Audience) bool { return yield(a, nil) }); err != nil {
			yield(Audience{}, fmt.Errorf("list audiences: %w", err))
		}
	}
}

// AudienceList collects Audiences.
func (q *Queries) AudienceList(ctx context.Context, project auth.Project) (list []Audience, err error) {
	for a, err := range q.Audiences(ctx, project) {
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// Audience finds an audience of a project by its slug once the projection has applied the head of
// the log. audience.Default is the slug of the default one. The faults are those of Audiences.
func (q *Queries) Audience(ctx context.Context, project auth.Project, slug string) (a Audience, ok bool, err error) {
	at, err := q.atHead(ctx, "audiences")
	if err != nil {
		return Audience{}, false, err
	}
	err = at.audiences(ctx, project, slug == audience.Default, &slug, func(found Audience) bool {
		a, ok = found, true
		return false
	})
	if err != nil {
		return Audience{}, false, fmt.Errorf("find an audience: %w", err)
	}
	return a, ok, nil
}

// audiences yields the default audience if byDefault is true, then those of a slug, or all if slug
// is nil, until yield returns false.
func (r *readAtHead) audiences(
	ctx context.Context, project auth.Project, byDefault bool, slug *string, yield func(Audience) bool,
) error {
	var (
		first Audience
		list  []audienceSize
	)
	err := r.snapshot(ctx, func(ctx context.Context, db replica.Snapshot) (err error) {
		if byDefault {
			if first, err = defaultAudience(ctx, db, project.ID); err != nil {
				return err
			}
		}
		list, err = audienceSizes(ctx, db, project.ID, slug)
		return err
	})
	if err != nil || !byDefault && len(list) == 0 {
		return err
	}
	scopes, err := r.q.scopes.Scopes(ctx, project)
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
		more, err := r.yieldGroup(ctx, project.ID, list[:n], bytes, func(a Audience) bool {
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

// yieldGroup yields the audiences of a group. It returns the bytes that it reserved once the caller
// asks for the next group.
func (r *readAtHead) yieldGroup(
	ctx context.Context, project uuid.UUID, list []audienceSize, bytes int64, yield func(Audience) bool,
) (more bool, err error) {
	if err := allowance.Reserve(ctx, answerCopies*bytes); err != nil {
		return false, err
	}
	ids := pgarray.IDs(list, func(s audienceSize) uuid.UUID { return s.id })
	var shown []Audience
	err = r.do(ctx, func(ctx context.Context, db replica.Snapshot) error {
		rows, err := db.Query(ctx, selectAudiencesByID, project, ids)
		if err != nil {
			return err
		}
		if shown, err = pgx.CollectRows(rows, scanAudience); err != nil {
			return err
		}
		// The replica may have applied the head of the log, and lag the recount, which is not in the log.
		if !r.primary && slices.ContainsFunc(shown, func(a Audience) bool { return a.outdated }) {
			return replica.ErrDeclined
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for n := range shown {
		if !yield(shown[n]) {
			return false, nil
		}
		shown[n] = Audience{} // already written
	}
	allowance.FromContext(ctx).Return(answerCopies * bytes)
	return true, nil
}

func defaultAudience(ctx context.Context, db replica.Snapshot, project uuid.UUID) (Audience, error) {
	a := Audience{Slug: audience.Default, Name: "Project", Kind: audience.KindDefault}
	row := db.QueryRow(ctx, `select created_at, identities from directory.projects where project_id = $1`, project)
	err := row.Scan(&a.CreatedAt, &a.MemberCount)
	if errors.Is(err, pgx.ErrNoRows) {
		return Audience{}, fmt.Errorf("project %s was not created", project)
	}
	a.CreatedAt = a.CreatedAt.UTC()
	return a, err
}

func audienceSizes(ctx context.Context, db replica.Snapshot, project uuid.UUID, slug *string) ([]audienceSize, error) {
	rows, err := db.Query(ctx, selectAudienceSizes, project, slug)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s audienceSize, err error) {
		var rule, members int64
		err = row.Scan(&s.id, &rule, &members)
		s.bytes = rule + members*memberBytes + audienceBytes
		return s, err
	})
}

// RulePreview is what a rule that is not stored would reach.
type RulePreview struct {
	Members int64
	// Sample are some of them, sorted.
	Sample []string
	// Looked counts the identities that it was compared with. More is true if there are others.
	Looked int64
	More   bool
	// Gained are some of those that belong to the rule and not to the one before, Lost of those that no longer do.
	// Gains and Losses count them. They are compared if there is a rule before.
	Gains, Losses int64
	Gained, Lost  []string
}

const (
	// maxPreviewed and previewTime bound what a preview looks at. previewSample is how many members it names.
	maxPreviewed  = 200_000
	previewTime   = 2 * time.Second
	previewSample = 20
)

// PreviewRule compares a rule with the identities of a project, one preview of a project at a time. The fault is
// audience-rule-invalid.
func (q *Queries) PreviewRule(
	ctx context.Context, project auth.Project, rule audience.Rule,
) (p RulePreview, err error) {
	return q.PreviewChange(ctx, project, nil, rule)
}

// PreviewChange is PreviewRule for a rule that takes the place of another one, nil for none.
func (q *Queries) PreviewChange(
	ctx context.Context, project auth.Project, before *audience.Rule, rule audience.Rule,
) (p RulePreview, err error) {
	if err := rule.Check(); err != nil {
		return p, err
	}
	now, err := selectorOf(project, rule)
	if err != nil {
		return p, err
	}
	was := (*audience.Selector)(nil)
	if before != nil {
		if was, err = selectorOf(project, *before); err != nil {
			return p, err
		}
	}
	release, err := q.previews.acquire(ctx, project.ID)
	if err != nil {
		return p, err
	}
	defer release()
	within, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	err = q.preview(within, project, was, now, &p)
	if err != nil && errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		p.More, err = true, nil
	}
	if err != nil {
		return RulePreview{}, fmt.Errorf("preview a rule: %w", err)
	}
	slices.Sort(p.Sample)
	slices.Sort(p.Gained)
	slices.Sort(p.Lost)
	return p, nil
}

// selectorOf selects the identities that belong to a rule.
func selectorOf(project auth.Project, rule audience.Rule) (*audience.Selector, error) {
	var m audience.Matcher
	if err := m.Add(uuid.Nil, audience.Compile(project.ID, rule)); err != nil {
		return nil, err
	}
	return audience.NewSelector(&m), nil
}

// take adds what two rules select among some identities; was is nil for no rule before.
func (p *RulePreview) take(was, now *audience.Selector, names []string) {
	matching := now.Take()
	p.Members, p.Looked = p.Members+int64(len(matching)), p.Looked+int64(len(names))
	p.Sample = sampled(p.Sample, matching, names)
	if was == nil {
		return
	}
	former := was.Take()
	gained, lost := without(matching, former), without(former, matching)
	p.Gains, p.Losses = p.Gains+int64(len(gained)), p.Losses+int64(len(lost))
	p.Gained, p.Lost = sampled(p.Gained, gained, names), sampled(p.Lost, lost, names)
}

// sampled adds some names to a sample, by their places.
func sampled(sample []string, places []int, names []string) []string {
	for _, place := range places[:min(len(places), previewSample-len(sample))] {
		sample = append(sample, names[place])
	}
	return sample
}

// without returns the places of one list that another one does not have. Both are sorted.
func without(list, other []int) (rest []int) {
	for _, place := range list {
		if _, has := slices.BinarySearch(other, place); !has {
			rest = append(rest, place)
		}
	}
	return rest
}

func (q *Queries) preview(
	ctx context.Context, project auth.Project, was, now *audience.Selector, p *RulePreview,
) error {
	rows, err := q.db.Query(ctx, `select identity, marks from directory.identities
		where project_id = $1 and identity is not null limit $2`, project.ID, q.previewed+1)
	if err != nil {
		return err
	}
	var (
		name  string
		marks pgtype.DriverBytes
		names []string
		take  = func() {
			p.take(was, now, names)
			names = names[:0]
		}
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &marks}, func() error {
		if p.Looked+int64(len(names)) == int64(q.previewed) {
			p.More = true
			return nil
		}
		if was != nil {
			was.Add(audience.TraitKeys(marks)) // it is full with the other one
		}
		if names = append(names, name); now.Add(audience.TraitKeys(marks)) {
			take()
		}
		return nil
	})
	take()
	return err
}
