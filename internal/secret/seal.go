package secret

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/statement"
)

// SealKeyBytes is the length of a seal key in bytes, as AES-256 needs it.
const SealKeyBytes = 32

// ErrSealKeyUnknown reports a value that is sealed with a key that the sealer does not have.
var ErrSealKeyUnknown = errors.New("the value is sealed with a key that is not set")

// Sealed is a clear value that only its seal key opens again. Key is the name of that key and
// reveals nothing about it.
type Sealed struct {
	Key  string
	Data []byte // nonce and ciphertext
}

// Sealer seals clear values with the first of its keys and opens those that any of them sealed.
type Sealer struct {
	first string
	keys  map[string]cipher.AEAD
}

// NewSealer makes a sealer of one or more keys of SealKeyBytes bytes.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("a sealer needs a key")
	}
	s := &Sealer{first: Name(keys[0]), keys: make(map[string]cipher.AEAD, len(keys))}
	for _, key := range keys {
		if len(key) != SealKeyBytes {
			return nil, fmt.Errorf("a seal key has %d bytes, not %d", SealKeyBytes, len(key))
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("seal key: %w", err)
		}
		if s.keys[Name(key)], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("seal key: %w", err)
		}
	}
	return s, nil
}

// Name returns the name of a seal key: the beginning of its hash. The hash does not reveal
// the key, which has full entropy.
func Name(key []byte) string {
	sum := sha256.Sum256(append([]byte("annals seal key "), key...))
	return hex.EncodeToString(sum[:8])
}

// First is the name of the key that seals.
func (s *Sealer) First() string { return s.first }

// Seal seals the clear value of an API key. It opens for the same key id only, so that no row can
// be put in another's place.
func (s *Sealer) Seal(keyID uuid.UUID, clear string) (Sealed, error) {
	aead := s.keys[s.first]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(clear)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return Sealed{}, fmt.Errorf("seal a key: %w", err)
	}
	return Sealed{Key: s.first, Data: aead.Seal(nonce, nonce, []byte(clear), keyID[:])}, nil
}

// Open returns the clear value. It returns ErrSealKeyUnknown if the sealer does not have the seal
// key, and another error if the value is damaged or belongs to another key.
func (s *Sealer) Open(keyID uuid.UUID, sealed Sealed) (string, error) {
	aead, ok := s.keys[sealed.Key]
	if !ok {
		return "", ErrSealKeyUnknown
	}
	if len(sealed.Data) < aead.NonceSize() {
		return "", errors.New("the sealed value of the key is damaged")
	}
	clear, err := aead.Open(nil, sealed.Data[:aead.NonceSize()], sealed.Data[aead.NonceSize():], keyID[:])
	if err != nil {
		return "", errors.New("the sealed value of the key is damaged, or another key's")
	}
	return string(clear), nil
}

// SealText is Seal as one word of text, which OpenText opens for the same id.
func (s *Sealer) SealText(id uuid.UUID, clear string) (string, error) {
	sealed, err := s.Seal(id, clear)
	return sealed.Key + "." + base64.RawURLEncoding.EncodeToString(sealed.Data), err
}

// OpenText returns what SealText sealed.
func (s *Sealer) OpenText(id uuid.UUID, text string) (clear string, err error) {
	key, encoded, _ := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", errors.New("a sealed text is damaged")
	}
	return s.Open(id, Sealed{Key: key, Data: data})
}

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
	for after := uuid.Nil; ; {
		ids, err := statement.All(ctx, v.DB, pgx.RowTo[uuid.UUID], `select key_id from ops.sealed_keys
			where kept_at < now() - $1::interval and key_id > $2 order by key_id limit $3`, age, after, sealPage)
		if err != nil {
			return dropped, err
		}
		alive, err := live(ctx, ids)
		if err != nil {
			return dropped, err
		}
		gone := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
			_, ok := alive[id]
			return ok
		})
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
	return statement.All(ctx, db, func(row pgx.CollectableRow) (r sealedRow, err error) {
		err = row.Scan(&r.ID, &r.Sealed.Key, &r.Sealed.Data)
		return r, err
	}, fmt.Sprintf(`select %[1]s, %[2]s, %[3]s from %[4]s
		where %[2]s <> $1 and %[1]s > $2 order by 1 limit $3`, t.ID, t.Key, t.Data, t.Name), than, after, sealPage)
}

// Count counts the values of each seal key, by its name.
func (t Table) Count(ctx context.Context, db querier) (map[string]int, error) {
	// ForEachRow returns the error.
	rows, _ := db.Query(ctx, fmt.Sprintf(`select %[1]s, count(*) from %[2]s where %[1]s is not null group by 1`, t.Key, t.Name))
	counts, name, count := map[string]int{}, "", 0
	if _, err := pgx.ForEachRow(rows, []any{&name, &count}, func() error {
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
