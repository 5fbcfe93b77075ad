package secret

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Vault stores the clear values of project keys, sealed, in ops.sealed_keys. Without it, keys still
// work but cannot be shown again.
type Vault struct {
	DB     *pgxpool.Pool
	Sealer *Sealer
}

// Keep seals and stores the clear value of a key. It does not replace a stored value.
func (v Vault) Keep(ctx context.Context, keyID uuid.UUID, clear string) error {
	sealed, err := v.Sealer.Seal(keyID, clear)
	if err != nil {
		return err
	}
	_, err = v.DB.Exec(ctx,
		`insert into ops.sealed_keys (key_id, seal_key, sealed) values ($1, $2, $3) on conflict (key_id) do nothing`, keyID,
		sealed.Key, sealed.Data)
	if err != nil {
		return fmt.Errorf("keep a sealed key: %w", err)
	}
	return nil
}

// Reveal returns the clear value of a key; ok is false if none is stored.
func (v Vault) Reveal(ctx context.Context, keyID uuid.UUID) (clear string, ok bool, err error) {
	var sealed Sealed
	err = v.DB.QueryRow(ctx, `select seal_key, sealed from ops.sealed_keys where key_id = $1`, keyID).
		Scan(&sealed.Key, &sealed.Data)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("find a sealed key: %w", err)
	}
	clear, err = v.Sealer.Open(keyID, sealed)
	return clear, err == nil, err
}

// Drop deletes the values of keys, so that a revoked key cannot be shown.
func (v Vault) Drop(ctx context.Context, keyIDs ...uuid.UUID) error {
	if _, err := v.DB.Exec(ctx, `delete from ops.sealed_keys where key_id = any($1)`, keyIDs); err != nil {
		return fmt.Errorf("drop sealed keys: %w", err)
	}
	return nil
}

// Tidy deletes the values of keys that are not live: revoked while the vault was unreachable, or
// never created. live returns the live ones of the given keys. Tidy retains a value younger than
// age, whose key may be about to be created.
func (v Vault) Tidy(
	ctx context.Context, age time.Duration, live func(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error),
) (dropped int, err error) {
	after := uuid.Nil
	for {
		ids, err := v.page(ctx, age, after)
		if err != nil {
			return dropped, err
		}
		alive, err := live(ctx, ids)
		if err != nil {
			return dropped, err
		}
		var gone []uuid.UUID
		for _, id := range ids {
			if _, ok := alive[id]; !ok {
				gone = append(gone, id)
			}
		}
		if len(gone) > 0 {
			if err := v.Drop(ctx, gone...); err != nil {
				return dropped, err
			}
			dropped += len(gone)
		}
		if len(ids) < sealPage {
			return dropped, nil
		}
		after = ids[len(ids)-1]
	}
}

// page returns the ids of values of at least an age.
func (v Vault) page(ctx context.Context, age time.Duration, after uuid.UUID) ([]uuid.UUID, error) {
	rows, err := v.DB.Query(ctx, `select key_id from ops.sealed_keys
		where kept_at < now() - $1::interval and key_id > $2 order by key_id limit $3`, age, after, sealPage)
	if err != nil {
		return nil, fmt.Errorf("list sealed keys: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list sealed keys: %w", err)
	}
	return ids, nil
}
