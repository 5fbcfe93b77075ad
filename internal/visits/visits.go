// Package visits keeps what people did without a change, in schema ops, until it is in the log: a sign-in needs no
// append, and waits for none. Refused sign-ins are counted here, so that they are one event for each person and window.
package visits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/pg/schemas"
)

// Entry is a visit that is not in the log yet.
type Entry struct {
	// ID is the id of the command that appends it.
	ID uuid.UUID
	// Person is zero for an operator. Organization is zero for each of which the person is a member.
	Person, Organization uuid.UUID
	// Event is one of package visit, a pointer. Its organization and person, and of refused sign-ins the counts, are set
	// when it is appended.
	Event event.Event
	// Principal is who did it, "" for the person.
	Principal string
	RequestID uuid.UUID
	At        time.Time

	// Attempts and LastAt count what strangers caused, from At on.
	Attempts int
	LastAt   time.Time
}

// maxText bounds what a client calls itself.
const maxText = 200

// Clean shortens what a client sent to what an event and a table can hold.
func Clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// insert adds a row, or counts one more of a window. What is shown of several is the last one.
const insert = `insert into ops.visits as v (id, person_id, organization_id, event, payload, request_id, principal,
		attempts, window_key, window_at, visited_at, last_at, due_at)
	values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $10, $11)
	on conflict (person_id, window_key, window_at) do update
		set attempts = v.attempts + 1, payload = excluded.payload, last_at = greatest(v.last_at, excluded.last_at)`

// Add queues an entry in a batch, with which it is stored.
func Add(b *pgx.Batch, e Entry) error {
	args, err := argsOf(e)
	if err == nil {
		b.Queue(insert, args...)
	}
	return err
}

func argsOf(e Entry) ([]any, error) {
	payload, err := json.Marshal(e.Event)
	if err != nil {
		return nil, fmt.Errorf("encode a visit: %w", err)
	}
	var window *time.Time
	due := e.At
	key, counted := visit.IsCounted(e.Event)
	if counted {
		begins := e.At.UTC().Truncate(visit.RefusedTime)
		window, due = &begins, begins.Add(visit.RefusedTime)
	}
	return []any{
		uuid.New(), orNull(e.Person), orNull(e.Organization), e.Event.EventType(), string(payload), orNull(e.RequestID),
		cmp.Or(e.Principal, principalOf(e.Person)), key, window, e.At, due,
	}, nil
}

// principalOf is who did something if nobody else is named.
func principalOf(person uuid.UUID) string {
	if person == uuid.Nil {
		return "operator"
	}
	return "person:" + person.String()
}

// orNull is an id that is null if it is zero.
func orNull(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// Queue is the entries that are not in the log yet.
type Queue struct {
	DB *pgxpool.Pool
	// Decode makes the event of a payload.
	Decode func(name string, payload []byte) (event.Event, error)
}

// Add stores an entry.
func (q Queue) Add(ctx context.Context, e Entry) error {
	args, err := argsOf(e)
	if err == nil {
		_, err = q.DB.Exec(ctx, insert, args...)
	}
	if err != nil {
		return fmt.Errorf("store a visit: %w", err)
	}
	return nil
}

// oneAtATime lets one process take entries at a time, until its transaction ends, so that they are appended in order.
// The number is "visits".
const oneAtATime = `select pg_try_advisory_xact_lock(x'766973697473'::bigint # ` + schemas.LockKey + `)`

// Take calls do with the oldest entry that is due, and removes it if that succeeds. taken is false if there is none, or
// if another process takes one now.
func (q Queue) Take(ctx context.Context, now time.Time, do func(context.Context, Entry) error) (taken bool, err error) {
	err = pgx.BeginFunc(ctx, q.DB, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, oneAtATime).Scan(&mine); err != nil || !mine {
			return err
		}
		var e Entry
		var name, payload string
		var person, organization, request uuid.NullUUID
		err := tx.QueryRow(ctx, `select id, person_id, organization_id, event, payload, request_id, principal, attempts,
				visited_at, last_at from ops.visits where due_at <= $1 order by due_at, number limit 1 for update`, now).
			Scan(&e.ID, &person, &organization, &name, &payload, &request, &e.Principal, &e.Attempts, &e.At, &e.LastAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		e.Person, e.Organization, e.RequestID = person.UUID, organization.UUID, request.UUID
		e.At, e.LastAt = e.At.UTC(), e.LastAt.UTC()
		if e.Event, err = q.Decode(name, []byte(payload)); err == nil {
			err = do(ctx, e)
		}
		if err != nil {
			return err
		}
		taken = true
		_, err = tx.Exec(ctx, `delete from ops.visits where id = $1`, e.ID)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("append a visit: %w", err)
	}
	return taken, nil
}

// Forget removes the entries of a person, also from the disk.
func (q Queue) Forget(ctx context.Context, person uuid.UUID) error {
	done, err := q.DB.Exec(ctx, `delete from ops.visits where person_id = $1`, person)
	if err == nil && done.RowsAffected() > 0 {
		_, err = q.DB.Exec(ctx, `vacuum (index_cleanup on, truncate off) ops.visits`, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		return fmt.Errorf("forget the visits of a person: %w", err)
	}
	return nil
}
