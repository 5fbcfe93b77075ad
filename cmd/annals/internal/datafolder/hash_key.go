package datafolder

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/fsx"
)

// HashKeyFile holds the generated hash key, for a deployment that sets none.
const HashKeyFile = "hash.key"

// OpenHashKey returns the hash key of the log: the configured key, else the key of the data folder.
// For a log that was never opened it generates a key and writes it to the data folder first.
func (f Folder) OpenHashKey(ctx context.Context, l *commands.Journal) ([]byte, error) {
	key, err := f.ReadHashKey()
	if err != nil {
		return nil, err
	}
	if err := commands.CheckHashKey(ctx, l, key); err != nil || key != nil {
		return key, f.ExplainHashKey(err)
	}
	return NewHashKey(f.Dir)
}

// UseHashKey sets the namespaces of a journal that must already have a hash key.
func (f Folder) UseHashKey(ctx context.Context, l *commands.Journal) error {
	key, err := f.ReadHashKey()
	if err != nil {
		return err
	}
	if err := commands.CheckHashKey(ctx, l, key); err != nil {
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

// ExplainHashKey adds what to do to the errors of commands.CheckHashKey.
func (f Folder) ExplainHashKey(err error) error {
	path := filepath.Join(f.Dir, HashKeyFile)
	switch {
	case errors.Is(err, commands.ErrNoHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY", err, path)
	case errors.Is(err, commands.ErrWrongHashKey) && f.HashKey != "":
		return fmt.Errorf("%w: set ANNALS_HASH_KEY to that one", err)
	case errors.Is(err, commands.ErrWrongHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY to that one", err, path)
	}
	return err
}
