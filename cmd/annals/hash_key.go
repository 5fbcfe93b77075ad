package main

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
)

// hashKeyFile holds the generated hash key, for a deployment that sets none.
const hashKeyFile = "hash.key"

// hashKeyOf returns the hash key of the log: the one that is set or that the data folder holds, else, for a log that is not opened
// yet, a new one, which is in the data folder before the log is opened.
func hashKeyOf(ctx context.Context, l *commands.Log, s *Settings) ([]byte, error) {
	key, err := readHashKey(s)
	if err != nil {
		return nil, err
	}
	if err := commands.CheckHashKey(ctx, l, key); err != nil || key != nil {
		return key, explainHashKey(err, s)
	}
	return newHashKey(s.DataDir)
}

// useHashKey gives the log its hash key, for a command that opens no log.
func useHashKey(ctx context.Context, l *commands.Log, s *Settings) error {
	key, err := readHashKey(s)
	if err != nil {
		return err
	}
	if err := commands.CheckHashKey(ctx, l, key); err != nil {
		return explainHashKey(err, s)
	}
	l.Namespaces = stream.NewNamespaces(key)
	return nil
}

// readHashKey returns the hash key as set, else as the data folder holds it, nil for none.
func readHashKey(s *Settings) ([]byte, error) {
	key, err := DecodeSecret(s.HashKey)
	if err != nil || key != nil {
		return key, err
	}
	path := filepath.Join(s.DataDir, hashKeyFile)
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

// newHashKey generates a hash key and writes it to the data folder.
func newHashKey(dataDir string) ([]byte, error) {
	key := make([]byte, SecretBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("generate the hash key: %w", err)
	}
	return key, writeDurably(filepath.Join(dataDir, hashKeyFile), []byte(base64.StdEncoding.EncodeToString(key)+"\n"))
}

// explainHashKey adds what to do to the errors of commands.CheckHashKey.
func explainHashKey(err error, s *Settings) error {
	path := filepath.Join(s.DataDir, hashKeyFile)
	switch {
	case errors.Is(err, commands.ErrNoHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY", err, path)
	case errors.Is(err, commands.ErrWrongHashKey) && s.HashKey != "":
		return fmt.Errorf("%w: set ANNALS_HASH_KEY to that one", err)
	case errors.Is(err, commands.ErrWrongHashKey):
		return fmt.Errorf("%w: restore %s from the backup, or set ANNALS_HASH_KEY to that one", err, path)
	}
	return err
}
