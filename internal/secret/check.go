package secret

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The check value of a database is a constant that is sealed with its seal key.
const checkValue = "the seal key of this database"

// SealKeyError reports a database with values that none of the seal keys of a process opens.
type SealKeyError struct {
	// Wanted and Known are names of keys, as Name returns them.
	Wanted, Known []string
}

// Error implements error.
func (e *SealKeyError) Error() string {
	known := "none"
	if len(e.Known) > 0 {
		known = strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("the database is sealed with the seal key %s, which is not known here (known: %s)",
		strings.Join(e.Wanted, ", "), known)
}

// Names returns the names of seal keys.
func Names(keys [][]byte) (names []string) {
	for _, key := range keys {
		names = append(names, Name(key))
	}
	return names
}

// OpenKeys returns the seal keys for a database: those that are known, or the one that generate makes where none is
// known and nothing is sealed. The first process writes the check value, with the key that opens what is there. An
// error is a *SealKeyError where the check value does not open, or where there is none yet and a value does not.
// Processes that start together wait for each other.
func OpenKeys(
	ctx context.Context, db *pgxpool.Pool, known [][]byte, generate func() ([]byte, error), tables ...Table,
) (keys [][]byte, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `lock table ops.seal_key_check in share row exclusive mode`); err != nil {
			return err
		}
		keys = known
		if found, err := check(ctx, tx, known); err != nil || found {
			return err
		}
		used, wanted, err := uses(ctx, tx, known, tables)
		if err != nil {
			return err
		}
		if len(wanted) > 0 {
			return &SealKeyError{Wanted: wanted, Known: Names(known)}
		}
		if len(known) == 0 {
			key, err := generate()
			if err != nil {
				return err
			}
			keys = [][]byte{key}
		}
		first := keys[max(0, slices.IndexFunc(keys, func(key []byte) bool { return slices.Contains(used, Name(key)) }))]
		sealer, err := NewSealer(first)
		if err != nil {
			return err
		}
		return writeCheck(ctx, tx, sealer)
	})
	if err != nil {
		return nil, fmt.Errorf("seal keys: %w", err)
	}
	return keys, nil
}

// uses returns the names of the known keys that tables use, and of those that are not known.
func uses(ctx context.Context, db querier, known [][]byte, tables []Table) (used, wanted []string, err error) {
	for _, t := range tables {
		counts, err := t.Count(ctx, db)
		if err != nil {
			return nil, nil, err
		}
		for name := range counts {
			if slices.Contains(Names(known), name) {
				used = append(used, name)
			} else if !slices.Contains(wanted, name) {
				wanted = append(wanted, name)
			}
		}
	}
	slices.Sort(wanted)
	return used, wanted, nil
}

// CheckKeys returns a *SealKeyError if none of some keys opens the check value. A database without one passes.
func CheckKeys(ctx context.Context, db *pgxpool.Pool, keys [][]byte) error {
	var exists bool
	err := db.QueryRow(ctx, `select to_regclass('ops.seal_key_check') is not null`).Scan(&exists)
	if err == nil && exists {
		_, err = check(ctx, db, keys)
	}
	if err != nil {
		return fmt.Errorf("seal keys: %w", err)
	}
	return nil
}

// Loss is what follows from a lost seal key for the values of a table.
type Loss struct {
	Values  string `json:"values"`
	Count   int    `json:"count"`
	Follows string `json:"follows"`
}

// Losses returns what follows if some seal keys are all that there are. wanted are the names of those that are missing.
// accepted reports that one of the keys opens the check value: a process starts with them.
func Losses(
	ctx context.Context, db *pgxpool.Pool, known [][]byte, tables ...Table,
) (list []Loss, wanted []string, accepted bool, err error) {
	names := Names(known)
	found, err := check(ctx, db, known)
	accepted = found && err == nil
	if unknown, is := errors.AsType[*SealKeyError](err); is {
		wanted, err = unknown.Wanted, nil
	}
	for _, t := range tables {
		counts, failed := t.Count(ctx, db)
		if err = errors.Join(err, failed); err != nil {
			return nil, nil, false, err
		}
		sum := 0
		for name, count := range counts {
			if slices.Contains(names, name) {
				continue
			}
			if sum += count; !slices.Contains(wanted, name) {
				wanted = append(wanted, name)
			}
		}
		if sum > 0 {
			list = append(list, Loss{t.Values, sum, t.Lost})
		}
	}
	slices.Sort(wanted)
	return list, wanted, accepted, err
}

// check opens the check value. found is false if there is none.
func check(ctx context.Context, db querier, keys [][]byte) (found bool, err error) {
	var sealed Sealed
	err = db.QueryRow(ctx, `select seal_key, sealed from ops.seal_key_check`).Scan(&sealed.Key, &sealed.Data)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !slices.Contains(Names(keys), sealed.Key) {
		return true, &SealKeyError{Wanted: []string{sealed.Key}, Known: Names(keys)}
	}
	sealer, err := NewSealer(keys...)
	if err != nil {
		return true, err
	}
	clear, err := sealer.Open(uuid.Nil, sealed)
	if err == nil && clear != checkValue {
		err = errors.New("the check value of the database is another one")
	}
	return true, err
}

// WriteCheck seals the check value with the first key of a sealer, once everything else is sealed with it.
func WriteCheck(ctx context.Context, db *pgxpool.Pool, s *Sealer) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return writeCheck(ctx, tx, s) })
}

func writeCheck(ctx context.Context, tx pgx.Tx, s *Sealer) error {
	sealed, err := s.Seal(uuid.Nil, checkValue)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `insert into ops.seal_key_check as c (seal_key, sealed) values ($1, $2)
		on conflict (one) do update set seal_key = $1, sealed = $2 where c.seal_key <> $1`, sealed.Key, sealed.Data); err != nil {
		return fmt.Errorf("write the check value of the seal key: %w", err)
	}
	return nil
}
