package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
)

// sealKeyFile holds the drawn seal key, for a deployment that sets none.
const sealKeyFile = "seal.key"

// decodeSecrets reads keys of SecretBytes bytes as base64 or hex, separated by commas. An empty string is none.
func decodeSecrets(text string) ([][]byte, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var keys [][]byte
	for n, part := range strings.Split(text, ",") {
		key, err := DecodeSecret(strings.TrimSpace(part))
		if err != nil || key == nil {
			return nil, fmt.Errorf("holds as key %d what is not %d bytes as base64 or hex: openssl rand -base64 %d makes one", n+1, SecretBytes, SecretBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func encodeSecrets(keys [][]byte) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = base64.StdEncoding.EncodeToString(key)
	}
	return strings.Join(texts, ",")
}

// sealKeys are the keys that API keys are sealed with, the first of which seals; where none is known, one is drawn into the data folder.
func sealKeys(s *Settings) ([][]byte, error) {
	keys, err := knownSealKeys(s)
	if err != nil || len(keys) > 0 {
		return keys, err
	}
	key := make([]byte, SecretBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("draw the seal key: %w", err)
	}
	keys = [][]byte{key}
	return keys, writeDurably(filepath.Join(s.DataDir, sealKeyFile), []byte(encodeSecrets(keys)+"\n"))
}

// knownSealKeys are those that are set, and behind them what the data folder holds from a time when none was set, or from a backup.
func knownSealKeys(s *Settings) ([][]byte, error) {
	keys, err := decodeSecrets(s.SealKey)
	if err != nil {
		return nil, fmt.Errorf("ANNALS_SEAL_KEY %w", err)
	}
	kept, err := keptSealKeys(s.DataDir)
	if err != nil {
		return nil, err
	}
	for _, key := range kept {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// keptSealKeys are those that the data folder holds, none without the file.
func keptSealKeys(dataDir string) ([][]byte, error) {
	path := filepath.Join(dataDir, sealKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the seal key: %w", err)
	}
	keys, err := decodeSecrets(string(text))
	if err != nil || keys == nil {
		return nil, fmt.Errorf("%s does not hold a key of %d bytes as base64: restore it from a backup, or remove it where API keys need not be shown again", path, SecretBytes)
	}
	return keys, nil
}

// openVault makes the vault of a service, and says which keys it seals with.
func openVault(s *Settings, db *pgxpool.Pool) (secret.Vault, [][]byte, error) {
	keys, err := sealKeys(s)
	if err != nil {
		return secret.Vault{}, nil, err
	}
	sealer, err := secret.NewSealer(keys...)
	return secret.Vault{DB: db, Sealer: sealer}, keys, err
}

// orphanedFor is how long a sealed value waits for its key to be created: far longer than a command takes.
const orphanedFor = time.Hour

// tendVault brings the vault to what holds now: values are sealed with the first key, values of keys that are not live go, and the key
// of the credentials file, which was drawn before there was a vault, is kept too. The projection access must be at the head.
func tendVault(ctx context.Context, v secret.Vault, keys access.Queries, dataDir string, log *slog.Logger) error {
	done, unopened, err := v.SealAnew(ctx)
	if err != nil {
		return err
	}
	if unopened > 0 {
		log.WarnContext(ctx, "api keys cannot be shown again, since what they are sealed with is not among ANNALS_SEAL_KEY", "keys", unopened)
	}
	dropped, err := v.Tidy(ctx, orphanedFor, keys.LiveKeys)
	if err != nil {
		return err
	}
	if done+dropped > 0 {
		log.InfoContext(ctx, "api keys sealed anew", "sealed", done, "dropped", dropped)
	}
	values, err := readCredentials(dataDir)
	if err != nil || values[projectKeyName] == "" {
		return err
	}
	clear := values[projectKeyName]
	holder, ok, err := keys.KeyByHash(ctx, auth.ProjectKey, secret.Hash(clear))
	if err != nil || !ok {
		return err
	}
	return v.Keep(ctx, holder.KeyID, clear)
}
