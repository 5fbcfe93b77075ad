// Package checkpoints keeps what signs the checkpoints of the audit trees, and how far they are copied. None of it is
// in the log or in a backup.
package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

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
	rows, _ := s.DB.Query(ctx, `select id, organization_id, origin, verifier, seal_key, sealed from ops.audit_keys
		where organization_id = any($1) order by organization_id, verifier`, organizations) // ForEachRow returns the error
	keys, k, sealed := map[uuid.UUID][]Key{}, Key{}, secret.Sealed{}
	columns := []any{&k.ID, &k.Organization, &k.Origin, &k.Verifier, &sealed.Key, &sealed.Data}
	_, err := pgx.ForEachRow(rows, columns, func() (err error) {
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

// Signed is a tree that was signed, or was about to be.
type Signed struct {
	Organization uuid.UUID
	Size         int64
	Root         tlog.Hash
}

// Signed returns the largest signed tree of each of some organizations.
func (s Store) Signed(ctx context.Context, organizations []uuid.UUID) (map[uuid.UUID]Signed, error) {
	rows, _ := s.DB.Query(ctx, `select organization_id, size, root from ops.audit_signed
		where organization_id = any($1)`, organizations) // ForEachRow returns the error
	signed, one, root := map[uuid.UUID]Signed{}, Signed{}, []byte(nil)
	_, err := pgx.ForEachRow(rows, []any{&one.Organization, &one.Size, &root}, func() error {
		if copy(one.Root[:], root) != len(root) || len(root) != tlog.HashSize {
			return fmt.Errorf("the root of organization %s has %d bytes", one.Organization, len(root))
		}
		signed[one.Organization] = one
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the signed trees: %w", err)
	}
	return signed, nil
}

// KeepSigned stores trees before they are signed, and returns the organizations of those that may be: no larger one was
// stored meanwhile.
func (s Store) KeepSigned(ctx context.Context, trees []Signed) (map[uuid.UUID]bool, error) {
	var organizations []uuid.UUID
	var sizes []int64
	var roots [][]byte
	for _, t := range trees {
		organizations, sizes = append(organizations, t.Organization), append(sizes, t.Size)
		roots = append(roots, t.Root[:])
	}
	rows, _ := s.DB.Query(ctx, `insert into ops.audit_signed as s (organization_id, size, root)
		select * from unnest($1::uuid[], $2::bigint[], $3::bytea[]) as t (organization_id, size, root) order by 1
		on conflict (organization_id) do update set size = excluded.size, root = excluded.root where s.size <= excluded.size
		returning organization_id`, organizations, sizes, roots) // ForEachRow returns the error
	kept, one := map[uuid.UUID]bool{}, uuid.UUID{}
	if _, err := pgx.ForEachRow(rows, []any{&one}, func() error { kept[one] = true; return nil }); err != nil {
		return nil, fmt.Errorf("store the signed trees: %w", err)
	}
	return kept, nil
}

// Copy is how far a place outside has the tree of an organization.
type Copy struct {
	Organization uuid.UUID
	Origin       string
	// Size is that of the last checkpoint there, Note the checkpoint as the anchor has it. Tiles is up to which leaf the
	// anchor has the tiles.
	Size, Tiles int64
	Note        string
	// Since is when a newer checkpoint was first to be copied, zero if none waits.
	Since time.Time
}

// Copies returns how far a place has the trees of some organizations.
func (s Store) Copies(ctx context.Context, place string, organizations []uuid.UUID) (map[uuid.UUID]Copy, error) {
	rows, _ := s.DB.Query(ctx, `select organization_id, origin, size, tiles, note, waits_since from ops.audit_copies
		where place = $1 and organization_id = any($2)`, place, organizations) // ForEachRow returns the error
	copies := map[uuid.UUID]Copy{}
	var c Copy
	var since *time.Time
	_, err := pgx.ForEachRow(rows, []any{&c.Organization, &c.Origin, &c.Size, &c.Tiles, &c.Note, &since}, func() error {
		if c.Since = (time.Time{}); since != nil {
			c.Since = since.UTC()
		}
		copies[c.Organization] = c
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the copies of the audit log: %w", err)
	}
	return copies, nil
}

// Placed is a copy with the place that has it.
type Placed struct {
	Copy

	Place string
}

// Placed returns how far each place has the trees of some organizations, by place.
func (s Store) Placed(ctx context.Context, organizations []uuid.UUID) (map[uuid.UUID][]Placed, error) {
	rows, _ := s.DB.Query(ctx, `select organization_id, place, origin, size, waits_since from ops.audit_copies
		where organization_id = any($1) order by organization_id, place`, organizations) // ForEachRow returns the error
	copies, since := map[uuid.UUID][]Placed{}, (*time.Time)(nil)
	var c Placed
	_, err := pgx.ForEachRow(rows, []any{&c.Organization, &c.Place, &c.Origin, &c.Size, &since}, func() error {
		if c.Since = (time.Time{}); since != nil {
			c.Since = since.UTC()
		}
		copies[c.Organization] = append(copies[c.Organization], c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the copies of the audit log: %w", err)
	}
	return copies, nil
}

// KeepCopies stores how far a place has trees.
func (s Store) KeepCopies(ctx context.Context, place string, copies []Copy) error {
	batch := &pgx.Batch{}
	for _, c := range copies {
		var since *time.Time
		if !c.Since.IsZero() {
			since = &c.Since
		}
		batch.Queue(`insert into ops.audit_copies (place, organization_id, origin, size, tiles, note, waits_since)
			values ($1, $2, $3, $4, $5, $6, $7) on conflict (place, organization_id)
			do update set origin = $3, size = $4, tiles = $5, note = $6, waits_since = $7`,
			place, c.Organization, c.Origin, c.Size, c.Tiles, c.Note, since)
	}
	if err := s.DB.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store the copies of the audit log: %w", err)
	}
	return nil
}

// Waiting returns, by place, since when a checkpoint waits there. A place with the newest one of every tree is missing.
func (s Store) Waiting(ctx context.Context, places []string) (map[string]time.Time, error) {
	rows, _ := s.DB.Query(ctx, `select place, min(waits_since) from ops.audit_copies
		where place = any($1) and waits_since is not null group by place`, places) // ForEachRow returns the error
	waiting, place, since := map[string]time.Time{}, "", time.Time{}
	if _, err := pgx.ForEachRow(rows, []any{&place, &since}, func() error {
		waiting[place] = since.UTC()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read what waits to be copied: %w", err)
	}
	return waiting, nil
}

// passTimeout bounds the end of a turn, which a stop waits for.
const passTimeout = 2 * time.Second

// Turn is one process at a time for a task. A process that ended in its turn holds it for a while.
type Turn struct {
	Task   string
	Holder uuid.UUID
	Last   time.Duration
}

// Take reports whether a process has the turn, which it holds, or renews, until Last from now.
func (s Store) Take(ctx context.Context, t Turn) (bool, error) {
	done, err := s.DB.Exec(ctx, `insert into ops.audit_turns as t (task, holder, until)
		values ($1, $2, clock_timestamp() + $3) on conflict (task) do update set holder = $2, until = excluded.until
		where t.holder = $2 or t.until < clock_timestamp()`, t.Task, t.Holder, t.Last)
	if err != nil {
		return false, fmt.Errorf("take the turn of task %s: %w", t.Task, err)
	}
	return done.RowsAffected() > 0, nil
}

// Pass gives the turn to others, also of a task that is to stop.
func (s Store) Pass(ctx context.Context, t Turn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), passTimeout)
	defer cancel()
	_, err := s.DB.Exec(ctx, `delete from ops.audit_turns where task = $1 and holder = $2`, t.Task, t.Holder)
	if err != nil {
		return fmt.Errorf("pass the turn of task %s: %w", t.Task, err)
	}
	return nil
}
