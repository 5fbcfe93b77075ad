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

// sealPage is the number of values that one statement reads.
const sealPage = 500

// Reseal seals values of other seal keys with the first one, so that the others can be retired.
// unopened counts the values that no configured key opens; Reseal does not change them.
func (v Vault) Reseal(ctx context.Context) (done, unopened int, err error) {
	after := uuid.Nil
	for {
		page, err := v.page(ctx,
			`select key_id, seal_key, sealed from ops.sealed_keys where seal_key <> $1 and key_id > $2 order by key_id limit $3`,
			v.Sealer.First(), after, sealPage)
		if err != nil {
			return done, unopened, err
		}
		for _, row := range page {
			clear, err := v.Sealer.Open(row.KeyID, row.Sealed)
			if err != nil {
				unopened++
				continue
			}
			sealed, err := v.Sealer.Seal(row.KeyID, clear)
			if err != nil {
				return done, unopened, err
			}
			if _, err := v.DB.Exec(
				ctx, `update ops.sealed_keys set seal_key = $1, sealed = $2 where key_id = $3`,
				sealed.Key, sealed.Data, row.KeyID,
			); err != nil {
				return done, unopened, fmt.Errorf("reseal key: %w", err)
			}
			done++
		}
		if len(page) < sealPage {
			return done, unopened, nil
		}
		after = page[len(page)-1].KeyID
	}
}

// Tidy deletes the values of keys that are not live: revoked while the vault was unreachable, or
// never created. live returns the live ones of the given keys. Tidy retains a value younger than
// age, whose key may be about to be created.
func (v Vault) Tidy(
	ctx context.Context, age time.Duration, live func(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error),
) (dropped int, err error) {
	after := uuid.Nil
	for {
		page, err := v.page(ctx,
			`select key_id, seal_key, sealed from ops.sealed_keys where kept_at < now() - $1::interval and key_id > $2 order by key_id limit $3`,
			age, after, sealPage)
		if err != nil {
			return dropped, err
		}
		ids := make([]uuid.UUID, len(page))
		for i, row := range page {
			ids[i] = row.KeyID
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
		if len(page) < sealPage {
			return dropped, nil
		}
		after = page[len(page)-1].KeyID
	}
}

type sealedRow struct {
	KeyID  uuid.UUID
	Sealed Sealed
}

func (v Vault) page(ctx context.Context, query string, args ...any) ([]sealedRow, error) {
	rows, err := v.DB.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list sealed keys: %w", err)
	}
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r sealedRow, err error) {
		err = row.Scan(&r.KeyID, &r.Sealed.Key, &r.Sealed.Data)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list sealed keys: %w", err)
	}
	return page, nil
}
