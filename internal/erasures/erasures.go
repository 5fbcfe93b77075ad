// Package erasures keeps, in schema ops, the names of the people who are being erased.
package erasures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/statement"
)

const (
	// MaxOfProject is the most people of a project who are erased at a time.
	MaxOfProject = 100
	// maxOpen bounds Open.
	maxOpen = 1000
)

// Person is a person who is being erased.
type Person struct {
	// ID is that of the erasure.
	ID        uuid.UUID
	ProjectID uuid.UUID
	Identity  string
	// By is who asked for it, at RequestedAt.
	By          string
	RequestedAt time.Time
}

// Names keeps the people.
type Names struct{ DB *pgxpool.Pool }

// Keep adds a person, and returns the id of the erasure. If the person is being erased already, that is the id of
// that erasure. The fault is conflict, if MaxOfProject people of the project are being erased.
func (n Names) Keep(ctx context.Context, p Person) (id uuid.UUID, err error) {
	err = n.DB.QueryRow(ctx, `insert into ops.person_erasures as e
			(id, project_id, identity, requested_by, requested_at, identity_key)
		select $1, $2, $3, $4, $5, sha256(convert_to($2::uuid || ' ' || $3, 'UTF8'))
		where (select count(*) from ops.person_erasures where project_id = $2 and identity <> $3) < $6
		on conflict (identity_key) do update set identity = e.identity -- returns its row
		returning e.id`, p.ID, p.ProjectID, p.Identity, p.By, p.RequestedAt, MaxOfProject).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, fault.New(fault.Conflict, fault.CodeConflict,
			"%d people of the project are being erased already: wait until some of them are", MaxOfProject)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("keep a person to erase: %w", err)
	}
	return id, nil
}

// Open lists the people who are being erased: the first of each project before the second of any. There may be more
// than it lists.
func (n Names) Open(ctx context.Context) ([]Person, error) {
	return statement.All(ctx, n.DB, pgx.RowToStructByPos[Person], `select id, project_id, identity, requested_by, requested_at
		from ops.person_erasures
		order by row_number() over (partition by project_id order by requested_at, id), project_id limit $1`, maxOpen)
}

// OfProject lists the people of a project who are being erased, the first first.
func (n Names) OfProject(ctx context.Context, project uuid.UUID) ([]Person, error) {
	return statement.All(ctx, n.DB, pgx.RowToStructByPos[Person], `select id, project_id, identity, requested_by, requested_at
		from ops.person_erasures where project_id = $1 order by requested_at, id limit $2`, project, MaxOfProject)
}

// Has reports whether the name of an erasure is kept.
func (n Names) Has(ctx context.Context, project, id uuid.UUID) (has bool, err error) {
	err = n.DB.QueryRow(ctx, `select exists (select from ops.person_erasures where project_id = $1 and id = $2)`,
		project, id).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("find a person to erase: %w", err)
	}
	return has, nil
}

// Ended is an erasure that has ended. It holds no name.
type Ended struct {
	ID      uuid.UUID `json:"id"`
	EndedAt time.Time `json:"endedAt"`
	// DataPoints counts those that it deleted.
	DataPoints int `json:"dataPoints"`
}

// Drop ends an erasure: it lists it as ended, and removes the name, also from the disk. It may be repeated.
func (n Names) Drop(ctx context.Context, e Ended) error {
	_, err := n.DB.Exec(ctx, `with gone as (delete from ops.person_erasures where id = $1 returning id, project_id)
		insert into ops.person_erasures_ended select id, project_id, $2, $3 from gone on conflict do nothing`,
		e.ID, e.EndedAt, e.DataPoints)
	if err == nil {
		_, err = n.DB.Exec(ctx, `vacuum (index_cleanup on, truncate off) ops.person_erasures`, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		return fmt.Errorf("drop the name of an erased person: %w", err)
	}
	return nil
}

// Ended lists the last erasures of a project that have ended, the last one first, at most MaxOfProject.
func (n Names) Ended(ctx context.Context, project uuid.UUID) ([]Ended, error) {
	return statement.All(ctx, n.DB, pgx.RowToStructByPos[Ended], `select id, ended_at, data_points from ops.person_erasures_ended
		where project_id = $1 order by ended_at desc, id limit $2`, project, MaxOfProject)
}
