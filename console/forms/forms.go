// Package forms keeps what forms of the console leave: that one was sent and where its answer leads, so that none is
// sent twice, and what the page after it shows once.
package forms

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/secret"
)

// SentLife is how long a form counts as sent, ShownLife how long a page may still show what it shows once.
const (
	SentLife  = 24 * time.Hour
	ShownLife = time.Minute
	// tidySlice is how many rows a statement of Tidy deletes.
	tidySlice = 1000
)

// Store keeps what forms leave.
type Store struct {
	DB     *pgxpool.Pool
	Sealer *secret.Sealer
	Now    func() time.Time
}

// Begin reports that a form of a session is being sent. If sent is true it was sent before, and answer is where the
// browser went on to; "" if that is not known.
func (s Store) Begin(ctx context.Context, session uuid.UUID, token string) (answer string, sent bool, err error) {
	now := s.Now()
	done, err := s.DB.Exec(ctx, `insert into ops.console_forms as f (session_id, token, until) values ($1, $2, $3)
		on conflict (session_id, token) do update set answer = null, until = excluded.until where f.until <= $4`,
		session, hash(token), now.Add(SentLife), now)
	if err != nil {
		return "", false, fmt.Errorf("begin a form: %w", err)
	}
	if done.RowsAffected() == 1 {
		return "", false, nil
	}
	err = s.DB.QueryRow(ctx, `select coalesce(answer, '') from ops.console_forms where session_id = $1 and token = $2`,
		session, hash(token)).Scan(&answer)
	if errors.Is(err, pgx.ErrNoRows) { // another process released it meanwhile
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("find a form: %w", err)
	}
	return answer, true, nil
}

// Answer keeps where the browser goes on to after a form.
func (s Store) Answer(ctx context.Context, session uuid.UUID, token, answer string) error {
	_, err := s.DB.Exec(ctx, `update ops.console_forms set answer = $3 where session_id = $1 and token = $2`,
		session, hash(token), answer)
	if err != nil {
		return fmt.Errorf("keep the answer of a form: %w", err)
	}
	return nil
}

// Release forgets a form that changed nothing, so that it can be sent again.
func (s Store) Release(ctx context.Context, session uuid.UUID, token string) error {
	_, err := s.DB.Exec(ctx, `delete from ops.console_forms where session_id = $1 and token = $2 and answer is null`,
		session, hash(token))
	if err != nil {
		return fmt.Errorf("release a form: %w", err)
	}
	return nil
}

// Keep seals what the page of a path shows once, to one session.
func (s Store) Keep(ctx context.Context, id, session uuid.UUID, path, value string) error {
	sealed, err := s.Sealer.Seal(id, value)
	if err != nil {
		return err
	}
	_, err = s.DB.Exec(ctx, `insert into ops.console_shown (id, session_id, path, seal_key, sealed, until)
		values ($1, $2, $3, $4, $5, $6)`, id, session, path, sealed.Key, sealed.Data, s.Now().Add(ShownLife))
	if err != nil {
		return fmt.Errorf("keep what is shown once: %w", err)
	}
	return nil
}

// Take returns what the page of a path shows once, and forgets it. found is false if it was shown, or is not for this
// session and page, or no longer.
func (s Store) Take(ctx context.Context, id, session uuid.UUID, path string) (value string, found bool, err error) {
	var sealed secret.Sealed
	err = s.DB.QueryRow(ctx, `delete from ops.console_shown where id = $1 and session_id = $2 and path = $3 and until > $4
		returning seal_key, sealed`, id, session, path, s.Now()).Scan(&sealed.Key, &sealed.Data)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("take what is shown once: %w", err)
	}
	value, err = s.Sealer.Open(id, sealed)
	return value, err == nil, err
}

// Tidy deletes what has ended, in slices.
func (s Store) Tidy(ctx context.Context) error {
	for table, key := range map[string]string{"ops.console_shown": "id", "ops.console_forms": "session_id, token"} {
		for done := int64(tidySlice); done == tidySlice; {
			tag, err := s.DB.Exec(ctx, `delete from `+table+` where (`+key+`) in (select `+key+` from `+table+`
				where until <= $1 limit $2)`, s.Now(), tidySlice)
			if err != nil {
				return fmt.Errorf("tidy %s: %w", table, err)
			}
			done = tag.RowsAffected()
		}
	}
	return nil
}

func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
