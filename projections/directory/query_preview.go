package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/auth"
)

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
