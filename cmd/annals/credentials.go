package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CredentialsFile is the name of the file in the data folder that the first start writes.
const CredentialsFile = "credentials.env"

// readCredentials reads the KEY=VALUE lines of the data folder's credentials; without the file it returns none.
// A value may stand in single or double quotes, as a shell takes it.
func readCredentials(dataDir string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(dataDir, CredentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	defer func() { _ = f.Close() }()
	values := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		values[name] = unquote(value)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	return values, nil
}

func unquote(value string) string {
	for _, q := range []string{`'`, `"`} {
		if len(value) >= 2 && strings.HasPrefix(value, q) && strings.HasSuffix(value, q) {
			return value[1 : len(value)-1]
		}
	}
	return value
}
