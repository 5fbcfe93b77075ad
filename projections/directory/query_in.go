package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// Belongs reports whether an identity belongs to the audience of a slug now. It is false for a slug without an
// audience. The fault is service-unavailable while the projection is stopped.
func (q *Queries) Belongs(ctx context.Context, project auth.Project, identity, slug string) (bool, error) {
	reach, err := q.Reach(ctx, project, identity)
	if err != nil {
		return false, err
	}
	var id uuid.UUID
	err = q.db.QueryRow(ctx, `select id from directory.audiences where project_id = $1 and slug = $2`, project.ID, slug).
		Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find an audience: %w", err)
	}
	return slices.Contains(reach.Audiences, id), nil
}

// Readers names who reads what is in an audience: its slug or, of the private audience of an identity, the identity.
// Both are "" for an audience that was removed. The fault is service-unavailable while the projection is stopped.
func (q *Queries) Readers(
	ctx context.Context, project auth.Project, of uuid.UUID,
) (slug, identity string, err error) {
	if err := q.requireRunning(ctx); err != nil {
		return "", "", err
	}
	return readReaders(ctx, q.db, project.ID, of)
}

const selectReaders = `select slug, '' from directory.audiences where project_id = $1 and id = $2
	union all select '', identity from directory.identities
		where project_id = $1 and private = $2 and identity is not null`

func readReaders(ctx context.Context, db rowQuerier, project, of uuid.UUID) (slug, identity string, err error) {
	err = db.QueryRow(ctx, selectReaders, project, of).Scan(&slug, &identity)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("find who reads an audience: %w", err)
	}
	return slug, identity, nil
}
