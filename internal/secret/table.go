package secret

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is a table of schema ops whose rows hold a sealed value, or null.
type Table struct {
	Name string
	// Values are what the table holds, for people. Lost is what follows for them from a lost seal key.
	Values, Lost string
	// ID is an expression for the id that a value is sealed for. Key is the column with the name of its seal key, and
	// Data that of the value.
	ID, Key, Data string
}

// VaultTable is the table of a Vault.
func VaultTable() Table {
	return Table{
		Name: "ops.sealed_keys", Values: "project keys and webhooks",
		Lost: "they still work, but keys cannot be revealed, and addresses of webhooks cannot be shown",
		ID:   "key_id", Key: "seal_key", Data: "sealed",
	}
}

// sealPage is the number of values that one statement reads.
const sealPage = 500

// Reseal seals values of other seal keys with the first one, so that the others can be retired. unopened counts the
// values that no key of the sealer opens; Reseal does not change them.
func (t Table) Reseal(ctx context.Context, db *pgxpool.Pool, s *Sealer) (done, unopened int, err error) {
	for after := uuid.Nil; ; {
		page, err := t.page(ctx, db, s.First(), after)
		if err != nil {
			return done, unopened, err
		}
		var ids []uuid.UUID
		var before, now [][]byte
		for _, row := range page {
			clear, err := s.Open(row.ID, row.Sealed)
			if err != nil {
				unopened++
				continue
			}
			sealed, err := s.Seal(row.ID, clear)
			if err != nil {
				return done, unopened, err
			}
			ids, before, now = append(ids, row.ID), append(before, row.Sealed.Data), append(now, sealed.Data)
		}
		// A value that changed meanwhile stays as it is.
		changed, err := db.Exec(ctx, fmt.Sprintf(`update %s as t set %s = $1, %s = v.now_data
			from unnest($2::uuid[], $3::bytea[], $4::bytea[]) as v (sealed_for, former_data, now_data)
			where %s = v.sealed_for and t.%s = v.former_data`, t.Name, t.Key, t.Data, t.ID, t.Data),
			s.First(), ids, before, now)
		if err != nil {
			return done, unopened, fmt.Errorf("reseal %s: %w", t.Name, err)
		}
		if done += int(changed.RowsAffected()); len(page) < sealPage {
			return done, unopened, nil
		}
		after = page[len(page)-1].ID
	}
}

type sealedRow struct {
	ID     uuid.UUID
	Sealed Sealed
}

// page reads values of other seal keys than one, by id.
func (t Table) page(ctx context.Context, db *pgxpool.Pool, than string, after uuid.UUID) ([]sealedRow, error) {
	rows, err := db.Query(ctx, fmt.Sprintf(`select %[1]s, %[2]s, %[3]s from %[4]s
		where %[2]s <> $1 and %[1]s > $2 order by 1 limit $3`, t.ID, t.Key, t.Data, t.Name), than, after, sealPage)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r sealedRow, err error) {
		err = row.Scan(&r.ID, &r.Sealed.Key, &r.Sealed.Data)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	return page, nil
}

// Count counts the values of each seal key, by its name.
func (t Table) Count(ctx context.Context, db querier) (map[string]int, error) {
	rows, err := db.Query(ctx, fmt.Sprintf(`select %[1]s, count(*) from %[2]s where %[1]s is not null group by 1`, t.Key, t.Name))
	if err != nil {
		return nil, fmt.Errorf("count the values of %s: %w", t.Name, err)
	}
	counts, name, count := map[string]int{}, "", 0
	if _, err = pgx.ForEachRow(rows, []any{&name, &count}, func() error {
		counts[name] = count
		return nil
	}); err != nil {
		return nil, fmt.Errorf("count the values of %s: %w", t.Name, err)
	}
	return counts, nil
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
