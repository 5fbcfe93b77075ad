package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// audienceRow is a row of table audiences. Of one that was not put within the page only what a recompute needs is known.
type audienceRow struct {
	id, project             uuid.UUID
	slug, name, kind        string
	rule                    *string
	compiled                []byte // the rule as it is matched; nil for a fixed one
	createdAt, recomputedAt time.Time
	position                eventstore.Position
	put                     bool // within the page: all of it is known
	dirty                   bool
	// anew says that who belongs is to be counted anew.
	anew bool
}

// put creates an audience or replaces its definition. Its members are those of the list whose records are there now: who is
// created again later belongs to nothing.
func (g *page) put(ctx context.Context, at eventstore.Position, e *audience.Put) error {
	project := g.projects[e.ProjectID]
	if project == nil {
		return fmt.Errorf("an audience of a project that nothing created: %s", e.ProjectID)
	}
	if a := g.audiences[e.AudienceID]; a != nil && at <= a.position {
		return nil
	}
	a := &audienceRow{
		id: e.AudienceID, project: e.ProjectID, slug: e.Slug, name: e.Name, kind: string(e.Kind),
		createdAt: unnest.Instant(e.CreatedAt), recomputedAt: unnest.Instant(e.PutAt), position: at, put: true, dirty: true,
	}
	members := ids{}
	if e.Kind == audience.KindRule {
		text, compiled, err := g.rule(ctx, e)
		if err != nil {
			return err
		}
		a.rule, a.compiled, a.anew = &text, compiled, true
	} else {
		list, err := g.list(ctx, e)
		if err != nil {
			return err
		}
		for _, id := range list {
			if g.exists(id) {
				members.add(id)
			}
		}
	}
	g.audiences[a.id], g.members[a.id], project.dirty = a, members, true
	project.rulesAt = max(project.rulesAt, at)
	delete(g.removed, a.id)
	return nil
}

// exists reports whether there is a record at this point of the log.
func (g *page) exists(id uuid.UUID) bool {
	if x := g.entries[id]; x != nil {
		return x.now != nil
	}
	return g.known.has(id)
}

// end ends an audience. One that ended before is none.
func (g *page) end(at eventstore.Position, e *audience.Removed) error {
	project := g.projects[e.ProjectID]
	if project == nil {
		return fmt.Errorf("an audience of a project that nothing created: %s", e.ProjectID)
	}
	delete(g.audiences, e.AudienceID)
	g.removed.add(e.AudienceID)
	g.members[e.AudienceID] = ids{}
	project.rulesAt, project.dirty = max(project.rulesAt, at), true
	return nil
}

// recomputed has an audience counted anew.
func (g *page) recomputed(at eventstore.Position, e *audience.Recomputed) {
	a := g.audiences[e.AudienceID]
	if a == nil || at <= a.position {
		return
	}
	a.recomputedAt, a.position, a.dirty = unnest.Instant(e.RecomputedAt), at, true
	a.anew = a.anew || a.compiled != nil
}

// rule is the rule of a put as JSON, as the API shows it, and as it is matched.
func (g *page) rule(ctx context.Context, e *audience.Put) (text string, compiled []byte, err error) {
	rule := audience.Rule{}
	switch {
	case e.RuleBlob != nil:
		if err := g.readJSON(ctx, *e.RuleBlob, "rule", &rule); err != nil {
			return "", nil, err
		}
	case e.Rule != nil:
		rule = *e.Rule
	}
	shown := audience.Rule{Match: rule.Match, Conditions: make([]audience.Condition, 0, len(rule.Conditions))}
	for _, c := range rule.Conditions {
		if c.Values == nil {
			c.Values = []string{}
		}
		shown.Conditions = append(shown.Conditions, c)
	}
	if text, err = encode(shown); err != nil {
		return "", nil, fmt.Errorf("encode rule: %w", err)
	}
	return text, compile(e.ProjectID, rule), nil
}

// list is the list of members of a put.
func (g *page) list(ctx context.Context, e *audience.Put) ([]uuid.UUID, error) {
	if e.MembersBlob == nil {
		return e.Members, nil
	}
	if list, ok := g.listed[*e.MembersBlob]; ok {
		return list, nil
	}
	list, err := g.readList(ctx, *e.MembersBlob)
	if err != nil {
		return nil, err
	}
	g.listed[*e.MembersBlob] = list
	return list, nil
}

func (g *page) readList(ctx context.Context, ref blob.Ref) ([]uuid.UUID, error) {
	data, ok, err := g.readBlob(ctx, ref, "members")
	if err != nil || !ok {
		return nil, err
	}
	list := make([]uuid.UUID, 0, len(data)/16)
	for ; len(data) >= 16; data = data[16:] {
		list = append(list, uuid.UUID(data[:16]))
	}
	return list, nil
}
