// Package projection names the projections, for those that wait for one and may not import it.
package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
)

// The name of a projection is its schema, its topic, and what callers wait for.
const (
	Access      = "access"
	Audit       = "audit"
	DataPoints  = "datapoints"
	Directory   = "directory"
	Embeddings  = "embeddings"
	History     = "history"
	Memories    = "memories"
	Reads       = "reads"
	RecallIndex = "recallindex"
	Trace       = "trace"
	Usage       = "usage"
)

// Recount is the follow-up of Directory that counts the members of a rule.
const Recount = "recount"

// Names are the names of all projections.
func Names() []string {
	return []string{Access, Audit, DataPoints, Directory, Embeddings, History, Memories, Reads, RecallIndex, Trace, Usage}
}

// FollowUp is work that an event asks for and that is too much for its page: its page queues it, and the
// runner does it in slices after the page. There is one for a kind and a key.
type FollowUp struct {
	// Kind is which work it is, Key what it is done to, such as a data point.
	Kind string
	Key  uuid.UUID
	// Project is whose work it is. Projects take turns; those of a project are done in the order of Position.
	Project  uuid.UUID
	Position eventstore.Position
	// Data is what the projector has to know of the event. It holds no customer text.
	Data string
	// Cursor is what the last slice returned, "" before the first.
	Cursor string
}

// Slicer is a projector with follow-ups.
type Slicer interface {
	Name() string
	Slice(ctx context.Context, tx pgx.Tx, work FollowUp) (cursor string, done bool, err error)
}

// DoSlice does one slice of the oldest follow-up of the project after a project, by id, and of the first
// project after the last. It returns that follow-up as it was before; found is false if there is none.
// The transaction's search_path is the schema of the projector.
func DoSlice(
	ctx context.Context, tx pgx.Tx, p Slicer, after uuid.UUID,
) (work FollowUp, found, done bool, err error) {
	for _, from := range []uuid.UUID{after, uuid.Nil} {
		err = tx.QueryRow(ctx, `select kind, key, project_id, position, data, cursor from follow_ups
			where project_id > $1 order by project_id, position, kind, key limit 1 -- `+p.Name(), from).
			Scan(&work.Kind, &work.Key, &work.Project, (*uint64)(&work.Position), &work.Data, &work.Cursor)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return work, false, false, nil
	}
	if err != nil {
		return work, false, false, fmt.Errorf("read the next follow-up: %w", err)
	}
	cursor, done, err := p.Slice(ctx, tx, work)
	if err != nil {
		return work, true, false, fmt.Errorf("follow-up %s of the event at %d: %w", work.Kind, work.Position, err)
	}
	if done {
		_, err = tx.Exec(ctx, `delete from follow_ups where kind = $1 and key = $2 -- `+p.Name(), work.Kind, work.Key)
	} else {
		_, err = tx.Exec(ctx, `update follow_ups set cursor = $3 where kind = $1 and key = $2 -- `+p.Name(),
			work.Kind, work.Key, cursor)
	}
	if err != nil {
		return work, true, false, fmt.Errorf("move follow-up %s of the event at %d: %w", work.Kind, work.Position, err)
	}
	return work, true, done, nil
}
