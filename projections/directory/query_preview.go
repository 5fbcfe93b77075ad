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
	if err := rule.Check(); err != nil {
		return p, err
	}
	var m audience.Matcher
	if err := m.Add(uuid.Nil, audience.Compile(project.ID, rule)); err != nil {
		return p, err
	}
	release, err := q.previews.acquire(ctx, project.ID)
	if err != nil {
		return p, err
	}
	defer release()
	within, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	err = q.preview(within, project, &m, &p)
	if err != nil && errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		p.More, err = true, nil
	}
	if err != nil {
		return RulePreview{}, fmt.Errorf("preview a rule: %w", err)
	}
	slices.Sort(p.Sample)
	return p, nil
}

func (q *Queries) preview(ctx context.Context, project auth.Project, m *audience.Matcher, p *RulePreview) error {
	rows, err := q.db.Query(ctx, `select identity, marks from directory.identities
		where project_id = $1 and identity is not null limit $2`, project.ID, q.previewed+1)
	if err != nil {
		return err
	}
	var (
		s     = audience.NewSelector(m)
		name  string
		marks pgtype.DriverBytes
		names []string
		take  = func() {
			matching := s.Take()
			p.Members, p.Looked = p.Members+int64(len(matching)), p.Looked+int64(len(names))
			for _, place := range matching[:min(len(matching), previewSample-len(p.Sample))] {
				p.Sample = append(p.Sample, names[place])
			}
			names = names[:0]
		}
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &marks}, func() error {
		if p.Looked+int64(len(names)) == int64(q.previewed) {
			p.More = true
			return nil
		}
		if names = append(names, name); s.Add(audience.TraitKeys(marks)) {
			take()
		}
		return nil
	})
	take()
	return err
}
