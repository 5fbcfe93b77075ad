// Package secret generates API keys and derives the parts that may be stored or shown.
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

// Key is a new key. Clear is shown once; Hash is stored; users recognize the key by Prefix and
// Suffix.
type Key struct {
	Clear  string
	Hash   string
	Prefix string
	Suffix string
}

// NewProjectKey generates a project key from the system's random source.
func NewProjectKey() (Key, error) { return newKey(rand.Reader, ProjectKeyPrefix) }

// NewManagementKey generates a management key from the system's random source.
func NewManagementKey() (Key, error) { return newKey(rand.Reader, ManagementKeyPrefix) }

func newKey(random io.Reader, prefix string) (Key, error) {
	text, err := draw(random, drawn)
	if err != nil {
		return Key{}, err
	}
	return Describe(prefix + text), nil
}

// The parts of what NewWebhookID and NewWebhookToken generate: the token alone is the credential.
const (
	webhookIDPrefix = "whk_"
	webhookIDDrawn  = 20
	// WebhookTokenLength is the number of characters of a token.
	WebhookTokenLength = 32
)

// NewWebhookID generates the id of a webhook: whk_ and 20 letters and digits.
func NewWebhookID() (string, error) {
	text, err := draw(rand.Reader, webhookIDDrawn)
	return webhookIDPrefix + text, err
}

// NewWebhookToken generates the token of a webhook: 32 letters and digits.
func NewWebhookToken() (string, error) { return draw(rand.Reader, WebhookTokenLength) }

// draw returns n letters and digits, all equally likely.
func draw(random io.Reader, n int) (string, error) {
	var b strings.Builder
	buf := make([]byte, 1)
	for b.Len() < n {
		if _, err := io.ReadFull(random, buf); err != nil {
			return "", fmt.Errorf("draw a key: %w", err)
		}
		// Skip bytes of 248 and above, so that all 62 characters are equally likely.
		if n := int(buf[0]); n < 4*len(alphabet) {
			b.WriteByte(alphabet[n%len(alphabet)])
		}
	}
	return b.String(), nil
}

// Describe returns the key of a clear value that was generated elsewhere. Prefix and Suffix are
// empty if the value is too short.
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
