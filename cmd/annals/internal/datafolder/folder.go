// Package datafolder reads and writes the files of a data folder that are not in the log: the
// credentials, the hash key and the seal keys. It also makes and restores backups of a folder.
package datafolder

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"path/filepath"
)

// Folder is a data folder, with the keys that the settings give.
type Folder struct {
	Dir string
	// HashKey is a configured hash key as base64 or hex, "" to use the key of the folder.
	HashKey string
	// SealKey holds configured seal keys as base64 or hex, separated by commas, "" for none.
	SealKey string
	// SchemaPrefix begins the names of the schemas in the database of the folder; it may be empty.
	SchemaPrefix string
}

// Model is the folder of the built-in embedding model.
func (f Folder) Model() string { return filepath.Join(f.Dir, "models", "all-MiniLM-L6-v2-q") }

// SecretBytes is the length of a hash key and of a seal key.
const SecretBytes = 32

// DecodeSecret reads a key of SecretBytes bytes from base64 or hex. It returns nil for an empty string.
func DecodeSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString,
		base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if b, err := decode(text); err == nil && len(b) == SecretBytes {
			return b, nil
		}
	}
	return nil, fmt.Errorf("is not %d bytes as base64 or hex: openssl rand -base64 %d makes one", SecretBytes, SecretBytes)
}
