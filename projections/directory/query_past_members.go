package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/pgarray"
)

// PastListing asks for the members of an audience at a time, in the order of their ids, after a place.
type PastListing struct {
	At time.Time
	// Lost limits them to who belonged to the audience then or later and does not now.
	Lost  bool
	After uuid.UUID
	Limit int
}

// PastMembers are members of an audience at a time.
type PastMembers struct {
	List []Member
	// Definition is what the audience was then, nil if there was none. Rule is the rule of it.
	Definition *audience.Kind
	Rule       *audience.Rule
	// Erased counts the identities that were erased since, at most MaxTotal+1: nobody knows whether they were members.
	Erased int64
	// Next reports whether there may be others after End. The list may end early where many identities were looked at.
	Next bool
	End  uuid.UUID
}

const (
	pastSlice   = 1024
	pastCost    = 4 // times what an identity of the present costs
	countErased = `select count(*) from (select from directory.heads where project_id = $1 and erased_at > $2 limit $3) e`
	selectNext  = `select id from directory.identities
		where project_id = $1 and identity is not null and id > $2 and ($4::uuid[] is null or id = any($4)) order by id limit $3`
)

// MembersAt lists the members of a named audience at a time. ok is false if there is none of that slug now.
func (q *Queries) MembersAt(
	ctx context.Context, project auth.Project, slug string, l PastListing,
) (page PastMembers, ok bool, err error) {
	l.At = pgarray.Instant(l.At)
	a, ok, err := q.AudienceHead(ctx, project, slug)
	if err != nil || !ok {
		return page, ok, err
	}
	err = switchover.Snapshot(ctx, q.db, []string{Name}, func(ctx context.Context, tx pgx.Tx) error {
		page = PastMembers{End: l.After}
		if err := tx.QueryRow(ctx, countErased, project.ID, l.At, MaxTotal+1).Scan(&page.Erased); err != nil {
			return fmt.Errorf("count erased identities: %w", err)
		}
		lines, err := readTimelines(ctx, tx, project.ID, l.At, maxPast, a.ID)
		if err != nil {
			return err
		}
		t := lines[a.ID]
		if d := t.at(l.At); d != nil && d.Kind != kindRemoved {
			if _, err := t.load(ctx, d); err != nil {
				return err
			}
			page.Definition, page.Rule = new(audience.Kind(d.Kind)), d.rule
		} else if !l.Lost {
			return nil
		}
		if err := page.read(ctx, tx, project, t, l, q.matched/pastCost); err != nil {
			return err
		}
		return page.complete(ctx, tx, project, t, l)
	})
	return page, true, err
}

// read looks at the next identities until the page is full, or until it has looked at so many.
func (p *PastMembers) read(
	ctx context.Context, tx pgx.Tx, project auth.Project, t *timeline, l PastListing, most int,
) error {
	window := slices.DeleteFunc(slices.Clone(t.definitions), func(d *definition) bool {
		return d.From.Before(l.At) && d != t.at(l.At) || d.From.After(l.At) && !l.Lost
	})
	listed, err := t.listed(ctx, window)
	if err != nil {
		return err
	}
	before, after := 1, 0
	if l.Lost {
		before, after = maxPast, maxPast
	}
	for looked := 0; looked < most; looked += pastSlice {
		chunk := listed
		if listed != nil {
			n := sort.Search(len(listed), func(n int) bool { return bytes.Compare(listed[n][:], p.End[:]) > 0 })
			chunk = listed[n:min(len(listed), n+pastSlice)]
			if len(chunk) == 0 {
				return nil
			}
		}
		ids, err := nextIDs(ctx, tx, project.ID, p.End, chunk)
		if err != nil {
			return err
		}
		pasts, err := readPasts(ctx, tx, project.ID, ids, l.At, before, after)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if r := pasts[id]; r != nil {
				if full, err := p.add(ctx, t, r, l); err != nil || full {
					p.Next = full
					return err
				}
			}
			p.End = id
		}
		switch {
		case listed == nil && len(ids) < pastSlice:
			return nil
		case listed != nil:
			p.End = chunk[len(chunk)-1]
		}
	}
	p.Next = true
	return nil
}

// listed returns the identities that definitions list, sorted, nil if one of these is a rule.
func (t *timeline) listed(ctx context.Context, definitions []*definition) ([]uuid.UUID, error) {
	all := []uuid.UUID{}
	for _, d := range definitions {
		if d.Kind == string(audience.KindRule) {
			return nil, nil
		}
		if ok, err := t.load(ctx, d); err != nil || !ok {
			return nil, err
		}
		for n := 0; n < len(d.list); n += 16 {
			all = append(all, uuid.UUID(d.list[n:n+16]))
		}
	}
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all), nil
}

// nextIDs returns the next identities of a project, of some of them unless these are nil.
func nextIDs(ctx context.Context, tx pgx.Tx, project, after uuid.UUID, of []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, selectNext, project, after, pastSlice, of)
	if err != nil {
		return nil, fmt.Errorf("list identities: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list identities: %w", err)
	}
	return ids, nil
}

// add adds a record if it belonged to the audience. It returns true if there is no room.
func (p *PastMembers) add(ctx context.Context, t *timeline, r *recordPast, l PastListing) (full bool, err error) {
	when := l.At
	is, err := t.standing(ctx, r, l.At)
	if err != nil {
		return false, err
	}
	if l.Lost {
		last := is
		for _, change := range t.changes(r) {
			if !change.After(l.At) {
				continue
			}
			if last, err = t.standing(ctx, r, change); err != nil {
				return false, err
			}
			if last == inside {
				is, when = inside, change
			}
		}
		if last != outside {
			return false, nil
		}
	}
	if is != inside {
		return false, nil
	}
	if len(p.List) == l.Limit {
		return true, nil
	}
	p.List = append(p.List, Member{Identity: r.name, id: r.id, Since: when})
	return false, nil
}

// complete sets since when and until when the listed ones were members. Since is a time at which each was one.
func (p *PastMembers) complete(
	ctx context.Context, tx pgx.Tx, project auth.Project, t *timeline, l PastListing,
) error {
	if len(p.List) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(p.List))
	for n, m := range p.List {
		ids[n] = m.id
	}
	pasts, err := readPasts(ctx, tx, project.ID, ids, l.At, maxPast, maxPast)
	if err != nil {
		return err
	}
	for n := range p.List {
		m, r := &p.List[n], pasts[p.List[n].id]
		at := m.Since
		if m.Since, m.Exact, err = t.since(ctx, r, at); err != nil {
			return err
		}
		if m.Until, m.UntilKnown, err = t.until(ctx, r, at); err != nil {
			return err
		}
	}
	return nil
}

// copiedTraits is how many rows of traits are read at once.
const copiedTraits = 50

// DatedTraits are the traits of an identity from a time on, as a JSON object of strings.
type DatedTraits struct {
	From   time.Time
	Traits json.RawMessage
}

// EachTraits calls do with all that the traits of an identity were, the earliest first and the present ones last.
func (q *Queries) EachTraits(ctx context.Context, project auth.Project, name string, do func(DatedTraits) error) error {
	id, after := stream.IdentityID(project.Namespace, name), time.Unix(0, 0).AddDate(-2000, 0, 0)
	for {
		rows, err := q.db.Query(ctx, `select from_at, traits from directory.past_traits p where identity_id = $1
			and from_at > $2 and exists (select from directory.identities i where i.id = $1 and i.project_id = $3)
			order by from_at limit $4`, id, after, project.ID, copiedTraits)
		if err != nil {
			return fmt.Errorf("read the traits of an identity: %w", err)
		}
		page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t DatedTraits, err error) {
			var text string
			err = row.Scan(&t.From, &text)
			t.From, t.Traits = t.From.UTC(), json.RawMessage(text)
			return t, err
		})
		if err != nil {
			return fmt.Errorf("read the traits of an identity: %w", err)
		}
		for _, t := range page {
			if err := do(t); err != nil {
				return err
			}
			after = t.From
		}
		if len(page) < copiedTraits {
			return nil
		}
	}
}

// EachMembership calls do with all audiences that an identity belongs to.
func (q *Queries) EachMembership(
	ctx context.Context, project auth.Project, name string, do func(Judgement) error,
) error {
	reach, err := q.Reach(ctx, project, name)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(reach.Audiences, maxMemberships) {
		var list []Judgement
		err := q.judging(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, _, err = judge(ctx, tx, project, name, shortRule, some...)
			return err
		})
		if err != nil {
			return err
		}
		for _, j := range list {
			if j.IsMember {
				if err := do(j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
