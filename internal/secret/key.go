// Package secret draws API keys and derives the parts that may be stored or shown.
package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// The prefixes show people and the authentication the kind of a key.
const (
	ProjectKeyPrefix    = "svc_sk_"
	ManagementKeyPrefix = "svc_mk_"
)

const (
	alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// drawn is the number of random characters of a key: 40 of 62 are 238 bits.
	drawn = 40
	// shownPrefix is the number of characters after the kind in Key.Prefix.
	shownPrefix = 4
	shownSuffix = 4
)

// Key is a new key. Clear is shown once; Hash is stored; people recognise the key by Prefix and
// Suffix.
type Key struct {
	Clear  string
	Hash   string
	Prefix string
	Suffix string
}

// NewProjectKey draws a project key from the system's random source.
func NewProjectKey() (Key, error) { return newKey(rand.Reader, ProjectKeyPrefix) }

// NewManagementKey draws a management key from the system's random source.
func NewManagementKey() (Key, error) { return newKey(rand.Reader, ManagementKeyPrefix) }

func newKey(random io.Reader, prefix string) (Key, error) {
	var b strings.Builder
	b.WriteString(prefix)
	buf := make([]byte, 1)
	for b.Len() < len(prefix)+drawn {
		if _, err := io.ReadFull(random, buf); err != nil {
			return Key{}, fmt.Errorf("draw a key: %w", err)
		}
		// Bytes of 248 and above are passed over, so that each of the 62 characters is as likely as any
		// other.
		if n := int(buf[0]); n < 4*len(alphabet) {
			b.WriteByte(alphabet[n%len(alphabet)])
		}
	}
	return Describe(b.String()), nil
}

// Describe returns the key of a clear value that was drawn elsewhere. Prefix and Suffix are empty
// if the value is too short.
func Describe(clear string) Key {
	k := Key{Clear: clear, Hash: HashText(clear)}
	if len(clear) >= len(ProjectKeyPrefix)+2*(shownPrefix+shownSuffix) {
		k.Prefix = clear[:len(ProjectKeyPrefix)+shownPrefix]
		k.Suffix = clear[len(clear)-shownSuffix:]
	}
	return k
}

// Hash is the SHA-256 by which a key is looked up. Keys have full entropy, so a plain hash cannot
// be searched.
func Hash(clear string) [32]byte { return sha256.Sum256([]byte(clear)) }

// HashText is Hash in lower-case hexadecimal, as events hold it.
func HashText(clear string) string {
	sum := Hash(clear)
	return hex.EncodeToString(sum[:])
}
