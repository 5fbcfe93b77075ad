package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// selectViewer reads in one snapshot where the audiences of a project changed last, and the marks and fixed audiences of an identity.
// "offset 0" keeps the look-ups going from the identity: the planner would go through all audiences of the project.
const selectViewer = `select p.rules_at, i.id is not null, i.marks, case when i.id is null then '{}' else array(
		select a.id from (select audience_id from directory.members where identity_id = i.id offset 0) m
		cross join lateral (select id, project_id from directory.audiences where id = m.audience_id offset 0) a
		where a.project_id = p.project_id) end
	from directory.projects p
	left join directory.identities i on i.id = $2 and i.project_id = p.project_id and i.identity is not null
	where p.project_id = $1`

// viewer is what decides what an identity reaches.
type viewer struct {
	rulesAt eventstore.Position
	known   bool // there is a record
	marks   marks
	fixed   []uuid.UUID
}

// Reach is what an identity reaches now: uuid.Nil, which is what is project-visible, and then, in the order of their ids, every
// audience that it belongs to. Who has no record reaches what is project-visible only, whatever the rules say of absent traits.
//
// It is as of the last position that the projection applied, in one snapshot. The fault is service-unavailable while the
// projection is stopped.
func (q *Queries) Reach(ctx context.Context, project auth.Project, identity string) ([]uuid.UUID, error) {
	if err := q.running(ctx); err != nil {
		return nil, err
	}
	v, rules, err := q.look(ctx, project, stream.IdentityID(project.Namespace, identity))
	if err != nil {
		return nil, fmt.Errorf("find what an identity reaches: %w", err)
	}
	return v.reach(rules), nil
}

// reach are the audiences of a viewer.
func (v viewer) reach(rules *ruleSet) []uuid.UUID {
	reached := []uuid.UUID{uuid.Nil}
	if !v.known {
		return reached
	}
	reached = append(append(reached, v.fixed...), rules.reached(v.marks)...)
	slices.SortFunc(reached, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }) // uuid.Nil is the first of all
	return reached
}

// look reads a viewer and the rules of its project as of the same moment: those that are remembered where no audience of the project
// changed since.
func (q *Queries) look(ctx context.Context, project auth.Project, id uuid.UUID) (v viewer, rules *ruleSet, err error) {
	if v, err = readViewer(ctx, q.db, project.ID, id); err != nil || !v.known || v.rulesAt == 0 {
		return v, nil, err
	}
	if rules, ok := q.rules.get(project.ID, v.rulesAt); ok {
		return v, rules, nil
	}
	leave, err := q.rules.enter(ctx, project.ID)
	if err != nil {
		return viewer{}, nil, err
	}
	defer leave()
	err = pgx.BeginTxFunc(ctx, q.db, snapshot, func(tx pgx.Tx) (err error) {
		v, rules, err = q.lookIn(ctx, tx, project, id)
		return err
	})
	return v, rules, err
}

// snapshot is a transaction all of whose statements see the same moment.
var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// lookIn is look within a snapshot. The caller has entered where the rules are not kept.
func (q *Queries) lookIn(ctx context.Context, tx pgx.Tx, project auth.Project, id uuid.UUID) (v viewer, rules *ruleSet, err error) {
	if v, err = readViewer(ctx, tx, project.ID, id); err != nil || v.rulesAt == 0 {
		return v, nil, err
	}
	rules, err = q.rulesIn(ctx, tx, project.ID, v.rulesAt)
	return v, rules, err
}

// rulesIn are the rules of a project as of a snapshot, in which its audiences changed last at a position. It does not wait to enter: those
// that enter wait for a connection, which the snapshot holds.
func (q *Queries) rulesIn(ctx context.Context, tx querier, project uuid.UUID, at eventstore.Position) (*ruleSet, error) {
	return q.rules.load(project, at, func() (*ruleSet, error) { return readRules(ctx, tx, selectRulesQualified, project) })
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readViewer(ctx context.Context, db rowQuerier, project, id uuid.UUID) (v viewer, err error) {
	err = db.QueryRow(ctx, selectViewer, [16]byte(project), [16]byte(id)).Scan((*uint64)(&v.rulesAt), &v.known, (*[]byte)(&v.marks), &v.fixed)
	if errors.Is(err, pgx.ErrNoRows) {
		return viewer{}, nil
	}
	return v, err
}
