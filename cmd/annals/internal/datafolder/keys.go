package datafolder

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/secret"
)

// SealKeyFile holds the generated seal key, for a deployment that sets none.
const SealKeyFile = "seal.key"

// DecodeSecrets reads keys of SecretBytes bytes from base64 or hex, separated by commas. It returns none
// for an empty string.
func DecodeSecrets(text string) ([][]byte, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var keys [][]byte
	for n, part := range strings.Split(text, ",") {
		key, err := DecodeSecret(strings.TrimSpace(part))
		if err != nil || key == nil {
			return nil, fmt.Errorf("holds as key %d what is not %d bytes as base64 or hex: openssl rand -base64 %d makes one",
				n+1, SecretBytes, SecretBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// EncodeSecrets writes keys as base64, separated by commas.
func EncodeSecrets(keys [][]byte) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = base64.StdEncoding.EncodeToString(key)
	}
	return strings.Join(texts, ",")
}

// OpenSealKeys returns the keys that seal values of a database; the first one seals. Without any key, and where nothing
// is sealed yet, it generates one and writes it to the data folder.
func (f Folder) OpenSealKeys(ctx context.Context, db *pgxpool.Pool) ([][]byte, error) {
	known, err := f.KnownSealKeys()
	if err != nil {
		return nil, err
	}
	keys, err := secret.OpenKeys(ctx, db, known, f.NewSealKey, SealedTables()...)
	return keys, f.ExplainSealKey(err)
}

// CheckSealKeys returns an error if keys are known and none is that of a database. A process that seals nothing needs
// no key, but has no other one.
func (f Folder) CheckSealKeys(ctx context.Context, db *pgxpool.Pool) error {
	known, err := f.KnownSealKeys()
	if err != nil || len(known) == 0 {
		return err
	}
	return f.ExplainSealKey(secret.CheckKeys(ctx, db, known))
}

// NewSealKey generates a seal key and writes it to the data folder.
func (f Folder) NewSealKey() ([]byte, error) {
	key := make([]byte, SecretBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("generate the seal key: %w", err)
	}
	return key, fsx.WriteFile(filepath.Join(f.Dir, SealKeyFile), []byte(EncodeSecrets([][]byte{key})+"\n"))
}

// ExplainSealKey adds what to do to a *secret.SealKeyError.
func (f Folder) ExplainSealKey(err error) error {
	if _, is := errors.AsType[*secret.SealKeyError](err); !is {
		return err
	}
	const lost = "annals seal-key lists the names of keys, and annals seal-key accept-loss goes on without a lost one"
	if f.SealKey != "" {
		return fmt.Errorf("%w: set ANNALS_SEAL_KEY to that one, or add it after a comma; %s", err, lost)
	}
	return fmt.Errorf("%w: copy %s from the process that has it or from the backup, or set ANNALS_SEAL_KEY; %s", err,
		filepath.Join(f.Dir, SealKeyFile), lost)
}

// KnownSealKeys returns the configured keys, then the keys of the data folder.
func (f Folder) KnownSealKeys() ([][]byte, error) {
	keys, err := DecodeSecrets(f.SealKey)
	if err != nil {
		return nil, fmt.Errorf("ANNALS_SEAL_KEY %w", err)
	}
	stored, err := StoredSealKeys(f.Dir)
	if err != nil {
		return nil, err
	}
	for _, key := range stored {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// StoredSealKeys returns the keys of the data folder, none without the file.
func StoredSealKeys(dataDir string) ([][]byte, error) {
	path := filepath.Join(dataDir, SealKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the seal key: %w", err)
	}
	keys, err := DecodeSecrets(string(text))
	if err != nil || keys == nil {
		return nil, fmt.Errorf("%s does not hold a key of %d bytes as base64: "+
			"restore it from a backup, or remove it and run annals seal-key accept-loss", path, SecretBytes)
	}
	return keys, nil
}

// HashKeyFile holds the generated hash key, for a deployment that sets none.
const HashKeyFile = "hash.key"

// OpenHashKey returns the hash key of the log: the configured key, else the key of the data folder.
// For a log that was never opened it generates a key and writes it to the data folder first.
func (f Folder) OpenHashKey(ctx context.Context, l *engine.Journal) ([]byte, error) {
	key, err := f.ReadHashKey()
	if err != nil {
		return nil, err
	}
	if err := tenancy.CheckHashKey(ctx, l, key); err != nil || key != nil {
		return key, f.ExplainHashKey(err)
	}
	return NewHashKey(f.Dir)
}

// UseHashKey sets the namespaces of a journal that must already have a hash key.
func (f Folder) UseHashKey(ctx context.Context, l *engine.Journal) error {
	key, err := f.ReadHashKey()
	if err != nil {
		return err
	}
	if err := tenancy.CheckHashKey(ctx, l, key); err != nil {
		return f.ExplainHashKey(err)
	}
	l.Namespaces = stream.NewNamespaces(key)
	return nil
}

// ReadHashKey returns the configured hash key, else the key of the data folder, nil if there is none.
func (f Folder) ReadHashKey() ([]byte, error) {
	key, err := DecodeSecret(f.HashKey)
	if err != nil || key != nil {
		return key, err
	}
	path := filepath.Join(f.Dir, HashKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the hash key: %w", err)
	}
	if key, err = DecodeSecret(strings.TrimSpace(string(text))); err != nil || key == nil {
		return nil, fmt.Errorf("%s does not hold a key of %d bytes as base64: restore it from the backup", path, SecretBytes)
	}
	return key, nil
}

// NewHashKey generates a hash key and writes it to the data folder.
func NewHashKey(dataDir string) ([]byte, error) {
	key := make([]byte, SecretBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("generate the hash key: %w", err)
	}
	return key, fsx.WriteFile(filepath.Join(dataDir, HashKeyFile), []byte(base64.StdEncoding.EncodeToString(key)+"\n"))
}

// ExplainHashKey adds what to do to the errors of tenancy.CheckHashKey.
func (f Folder) ExplainHashKey(err error) error {
	path := filepath.Join(f.Dir, HashKeyFile)
	switch {
	case errors.Is(err, tenancy.ErrNoHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY", err, path)
	case errors.Is(err, tenancy.ErrWrongHashKey) && f.HashKey != "":
		return fmt.Errorf("%w: set ANNALS_HASH_KEY to that one", err)
	case errors.Is(err, tenancy.ErrWrongHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY to that one", err, path)
	}
	return err
}

// SealKeyLoss is what seal keys that are not known leave closed. Missing and Known are names of keys. Accepted is true
// if a process starts with the known ones.
type SealKeyLoss struct {
	Missing  []string      `json:"missing"`
	Known    []string      `json:"known"`
	Lost     []secret.Loss `json:"lost"`
	Accepted bool          `json:"accepted"`
}

// LoseSealKey returns what a missing seal key leaves closed in a database, and with accept has processes start without
// it. Where no key is known, it then generates one. No server may run on the folder.
func (f Folder) LoseSealKey(ctx context.Context, address string, accept bool) (loss SealKeyLoss, err error) {
	known, err := f.KnownSealKeys()
	if err != nil {
		return loss, err
	}
	err = f.UseDatabase(ctx, address, func(db *pgxpool.Pool) error {
		if err := ops.Migrate(ctx, db, uuid.Nil); err != nil {
			return err
		}
		lost, missing, accepted, err := secret.Losses(ctx, db, known, SealedTables()...)
		if err != nil {
			return err
		}
		if accept && !accepted && len(missing) > 0 {
			if known, err = f.useSealKey(ctx, db, known); err != nil {
				return err
			}
			if err := checkpoints.KeepKeysOf(ctx, db, secret.Names(known)); err != nil {
				return err
			}
			accepted = true
		}
		none := []string{} // an empty list in JSON
		loss = SealKeyLoss{
			append(none, missing...), append(none, secret.Names(known)...), append([]secret.Loss{}, lost...), accepted,
		}
		return nil
	})
	return loss, err
}

// useSealKey makes the first of some keys that of a database.
func (f Folder) useSealKey(ctx context.Context, db *pgxpool.Pool, known [][]byte) ([][]byte, error) {
	if len(known) == 0 {
		key, err := f.NewSealKey()
		if err != nil {
			return nil, err
		}
		known = [][]byte{key}
	}
	sealer, err := secret.NewSealer(known...)
	if err != nil {
		return nil, err
	}
	return known, secret.WriteCheck(ctx, db, sealer)
}
