package memories

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// longestKey is the most bytes of a subject or an attribute that are indexed as they are.
const longestKey = 200

// key makes a subject or an attribute fit to be indexed: a text column holds no U+0000 and nothing but UTF-8, and an entry of
// the index ends at 2,704 bytes. Equal ones stay equal, different ones stay different.
func key(text string) string {
	clean := strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if clean == text && len(text) <= longestKey {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	head := clean[:min(len(clean), longestKey)]
	return strings.ToValidUTF8(head, "") + "#" + hex.EncodeToString(sum[:])
}
