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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/fsx"
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
