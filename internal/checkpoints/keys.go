// Package checkpoints keeps what signs the checkpoints of the audit trees, and how far they are copied. None of it is
// in the log or in a backup.
package checkpoints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/secret"
)

// Store is the tables. Sealer seals the private parts of keys, with its first seal key.
type Store struct {
	DB     *pgxpool.Pool
	Sealer *secret.Sealer
}

// Key signs checkpoints of an organization.
type Key struct {
	ID           uuid.UUID
	Organization uuid.UUID
	// Origin is the name of the key, Verifier its public part.
	Origin, Verifier string
	// Signer is the private part, "" if it cannot be opened here.
	Signer string
}

// SealedTable is the table of the keys.
func SealedTable() secret.Table {
	return secret.Table{
		Name: "ops.audit_keys", Values: "keys that sign checkpoints of the audit log",
		Lost: "each audit tree goes on as another origin, with a new key that its verifiers must take up",
		ID:   "id", Key: "seal_key", Data: "sealed",
	}
}

// AddKey stores a key. It signs nothing before the log has its public part.
func (s Store) AddKey(ctx context.Context, k Key) error {
	sealed, err := s.Sealer.Seal(k.ID, k.Signer)
	if err == nil {
		_, err = s.DB.Exec(ctx, `insert into ops.audit_keys (id, organization_id, origin, verifier, seal_key, sealed)
			values ($1, $2, $3, $4, $5, $6)`, k.ID, k.Organization, k.Origin, k.Verifier, sealed.Key, sealed.Data)
	}
	if err != nil {
		return fmt.Errorf("store a key of the audit log: %w", err)
	}
	return nil
}

// Keys returns the keys of some organizations.
func (s Store) Keys(ctx context.Context, organizations []uuid.UUID) (map[uuid.UUID][]Key, error) {
	rows, err := s.DB.Query(ctx, `select id, organization_id, origin, verifier, seal_key, sealed from ops.audit_keys
		where organization_id = any($1) order by organization_id, verifier`, organizations)
	if err != nil {
		return nil, fmt.Errorf("read the keys of the audit log: %w", err)
	}
	keys, k, sealed := map[uuid.UUID][]Key{}, Key{}, secret.Sealed{}
	columns := []any{&k.ID, &k.Organization, &k.Origin, &k.Verifier, &sealed.Key, &sealed.Data}
	_, err = pgx.ForEachRow(rows, columns, func() (err error) {
		if k.Signer, err = s.Sealer.Open(k.ID, sealed); errors.Is(err, secret.ErrSealKeyUnknown) {
			k.Signer, err = "", nil
		}
		keys[k.Organization] = append(keys[k.Organization], k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys of the audit log: %w", err)
	}
	return keys, nil
}

// DropKeys removes keys that sign nothing any more.
func (s Store) DropKeys(ctx context.Context, ids []uuid.UUID) error {
	if _, err := s.DB.Exec(ctx, `delete from ops.audit_keys where id = any($1)`, ids); err != nil {
		return fmt.Errorf("remove keys of the audit log: %w", err)
	}
	return nil
}

// KeepKeysOf removes the keys that are sealed with other seal keys than those of some names, which are lost.
func KeepKeysOf(ctx context.Context, db *pgxpool.Pool, sealKeys []string) error {
	if _, err := db.Exec(ctx, `delete from ops.audit_keys where seal_key <> all($1)`, sealKeys); err != nil {
		return fmt.Errorf("remove keys of the audit log that cannot be opened: %w", err)
	}
	return nil
}

// Forget removes everything, for a log that went back: what was signed of it is not all there any more, so each tree
// begins another origin.
func Forget(ctx context.Context, db *pgxpool.Pool) error {
	for _, statement := range []string{
		`delete from ops.audit_keys`, `delete from ops.audit_signed`, `delete from ops.audit_copies`,
	} {
		if _, err := db.Exec(ctx, statement); err != nil {
			return fmt.Errorf("forget what the audit log signed: %w", err)
		}
	}
	return nil
}
