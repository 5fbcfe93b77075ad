package directory

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// A recount counts the members of a rule in slices, in the order of the ids of identities. A page that
// changes an identity adjusts what the recount has counted if the identity is before that place, and
// else leaves it to the recount. So the count is right wherever pages and slices meet, and a recount
// that begins again forgets what it had counted.
//
// The recounts of a project that are at the same place move on together: many rules that are put at once
// cost one pass over the identities.
//
// Recall does not use the counts: it matches the rules with the traits of the viewer.

// Recount is the kind of the follow-up that counts the members of an audience, the key.
const Recount = projection.Recount

// noIdentity is where a recount begins.
const noIdentity = `'00000000-0000-0000-0000-000000000000'::uuid`

// maxSliceBytes is about the most bytes of traits that a slice reads, and of rules.
const maxSliceBytes = 4 << 20

const (
	selectRecounts = `select id, recounted_to, outdated from audiences where project_id = any($1::uuid[]) and recounting`
	selectPlace    = `select recounted_to from audiences where id = $1 and recounting`
	// selectTogether selects the rule of an audience, and others whose recounts are at the same place.
	selectTogether = `select id, compiled from (
			select id, compiled, sum(octet_length(compiled)) over (order by id <> $3, id) - octet_length(compiled) as before
			from audiences where project_id = $1 and recounting and recounted_to = $2) found
		where before < $4 order by id`
	// selectSlice leaves out, unread, what is beyond the bytes of a slice.
	selectSlice = `select id, shown, marks from (
			select id, shown, marks, sum(octet_length(marks)) over (order by id) - octet_length(marks) as before from (
				select id, identity is not null as shown, marks from identities
				where project_id = $1 and id > $2 order by id limit $3) found) summed
		where before < $4 order by id`
	moveRecounts = `update audiences a set recounted_to = $3, recounted = a.recounted + c.count
		from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
	endRecounts = `update audiences a set member_count = a.recounted + c.count, outdated = false, recounting = false,
			recounted_to = ` + noIdentity + `, recounted = 0
		from unnest($1::uuid[], $2::bigint[]) as c (id, count) where a.id = c.id`
)

// recount is a recount that runs or waits.
type recount struct {
	// to is the last identity that it has counted, uuid.Nil for none.
	to uuid.UUID
	// outdated reports whether the count until its end is of the rule before.
	outdated bool
}

func (f *fold) readRecounts(rows pgx.Rows) error {
	for rows.Next() {
		var id uuid.UUID
		var r recount
		if err := rows.Scan(&id, &r.to, &r.outdated); err != nil {
			return err
		}
		f.recounts[id] = r
	}
	return rows.Err()
}

// followUps returns the recounts that the page asks for.
func (f *fold) followUps() (works []projections.FollowUp) {
	for _, a := range f.audiences {
		if a.needsRecount {
			works = append(works, projections.FollowUp{Kind: Recount, Key: a.ID, Project: a.Project, Position: a.Position})
		}
	}
	return works
}

// Slice implements projections.Following. The recount may have ended with others, or its audience was
// removed or is fixed now.
func (p *Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	if work.Kind != Recount {
		return "", false, fmt.Errorf("no rule for follow-up %s", work.Kind)
	}
	var after uuid.UUID
	err = tx.QueryRow(ctx, selectPlace, work.Key).Scan(&after)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read a recount: %w", err)
	}
	rules, err := readRules(ctx, tx, selectTogether, work.Project, after, work.Key, maxSliceBytes)
	if err != nil {
		return "", false, err
	}
	s, err := p.countSlice(ctx, tx, work.Project, after, rules)
	if err != nil {
		return "", false, fmt.Errorf("count identities: %w", err)
	}
	audiences := rules.Audiences()
	if s.rows < p.slice && s.bytes < p.sliceBytes {
		_, err = tx.Exec(ctx, endRecounts, audiences, s.members)
		return "", true, err
	}
	_, err = tx.Exec(ctx, moveRecounts, audiences, s.members, s.last)
	return s.last.String(), false, err
}

// slice is what a slice counted: the members by rule among its rows.
type slice struct {
	rows, bytes int
	last        uuid.UUID
	members     []int64
}

// countSlice counts the members of rules among the next identities of a project.
func (p *Projector) countSlice(
	ctx context.Context, tx pgx.Tx, project, after uuid.UUID, rules *audience.Matcher,
) (s slice, err error) {
	rows, err := tx.Query(ctx, selectSlice, project, after, p.slice, p.sliceBytes)
	if err != nil {
		return s, err
	}
	var (
		t     = audience.NewTally(rules, p.slice)
		shown bool
		keys  pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&s.last, &shown, &keys}, func() error {
		s.rows++
		s.bytes += len(keys)
		if shown {
			t.Add(audience.TraitKeys(keys), true)
		}
		return nil
	})
	s.members = t.Counts()
	return s, err
}
