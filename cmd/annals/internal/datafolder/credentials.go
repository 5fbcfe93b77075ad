package datafolder

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/internal/secret"
)

// CredentialsFile is the name of the file in the data folder that the first start writes.
const CredentialsFile = "credentials.env"

// The names of the keys in the credentials file.
const (
	ProjectKeyName    = "ANNALS_PROJECT_KEY"
	ManagementKeyName = "ANNALS_MANAGEMENT_KEY"
	// The owner that a start made signs in with these, until a person takes the account over.
	OwnerEmailName    = "ANNALS_OWNER_EMAIL"
	OwnerPasswordName = "ANNALS_OWNER_PASSWORD"
)

// ReadCredentials reads the KEY=VALUE lines of the credentials file of a data folder. It returns an empty
// map without the file. A value may be in single or double quotes.
func ReadCredentials(dataDir string) (map[string]string, error) {
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

// WriteCredentials replaces the credentials file if its content changes. Only the owner can read it.
func WriteCredentials(dataDir string, values map[string]string) error {
	var b strings.Builder
	for _, name := range []string{
		"ANNALS_API_URL", "ANNALS_CONSOLE_URL", "ANNALS_AUTH_URL", ProjectKeyName,
		ManagementKeyName, OwnerEmailName, OwnerPasswordName,
	} {
		if values[name] != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, values[name])
		}
	}
	path := filepath.Join(dataDir, CredentialsFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == b.String() {
		return nil
	}
	return fsx.WriteFile(path, []byte(b.String()))
}

// Credentials is the credentials file of a data folder.
type Credentials struct{ Dir string }

// Path returns the path of the file.
func (c Credentials) Path() string { return filepath.Join(c.Dir, CredentialsFile) }

// ReplaceManagementKey implements commands.CredentialsFile.
func (c Credentials) ReplaceManagementKey(isFormer func(hash string) bool, clear string) (replaced bool, err error) {
	values, err := ReadCredentials(c.Dir)
	if err != nil {
		return false, err
	}
	stored := values[ManagementKeyName]
	if stored == "" || !isFormer(secret.HashText(stored)) {
		return false, nil
	}
	values[ManagementKeyName] = clear
	return true, WriteCredentials(c.Dir, values)
}
