package directory

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// View is what an identity reaches as of one moment, and what that rests on, so that another snapshot can be held against it.
type View struct {
	// Audiences are those of Reach.
	Audiences []uuid.UUID

	project, identity uuid.UUID
	// rules are those of the project as of rulesAt, read only where the identity has a record.
	rulesAt eventstore.Position
	rules   *ruleSet
	known   bool
}

// View is Reach with what it rests on.
func (q *Queries) View(ctx context.Context, project auth.Project, identity string) (View, error) {
	if err := q.running(ctx); err != nil {
		return View{}, err
	}
	id := stream.IdentityID(project.Namespace, identity)
	v, rules, err := q.look(ctx, project, id)
	if err != nil {
		return View{}, fmt.Errorf("find what an identity reaches: %w", err)
	}
	return viewOf(project.ID, id, v, rules), nil
}

// Snapshot is a transaction that sees one snapshot.
type Snapshot interface {
	querier
	rowQuerier
}

// ViewIn is View in the snapshot of a transaction.
func (q *Queries) ViewIn(ctx context.Context, tx Snapshot, project auth.Project, identity string) (View, error) {
	if err := q.running(ctx); err != nil {
		return View{}, err
	}
	id := stream.IdentityID(project.Namespace, identity)
	v, err := readViewer(ctx, tx, project.ID, id)
	if err != nil {
		return View{}, fmt.Errorf("find what an identity reaches: %w", err)
	}
	var rules *ruleSet
	if v.known && v.rulesAt != 0 {
		if rules, err = q.rulesIn(ctx, tx, project.ID, v.rulesAt); err != nil {
			return View{}, err
		}
	}
	return viewOf(project.ID, id, v, rules), nil
}

func viewOf(project, identity uuid.UUID, v viewer, rules *ruleSet) View {
	return View{Audiences: v.reach(rules), project: project, identity: identity, rulesAt: v.rulesAt, rules: rules, known: v.known}
}

// Confirm queues the question whether the identity reaches the very same in the snapshot that the batch sees. What is told is false
// also where that cannot be said without more questions: the rules of the project changed, or the identity appeared.
func (v View) Confirm(batch *pgx.Batch, tell func(same bool)) {
	batch.Queue(selectViewer, [16]byte(v.project), [16]byte(v.identity)).Query(func(rows pgx.Rows) error {
		var now viewer
		for rows.Next() {
			if err := rows.Scan((*uint64)(&now.rulesAt), &now.known, (*[]byte)(&now.marks), &now.fixed); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if now.known && (!v.known || now.rulesAt != v.rulesAt) {
			tell(false)
			return nil
		}
		tell(slices.Equal(now.reach(v.rules), v.Audiences))
		return nil
	})
}
