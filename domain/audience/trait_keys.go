package audience

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
)

// TraitKey is a hash of a project and the key of a trait, or of a project, key and value. Rules are
// matched and identities are found by these hashes, so equal hashes count as equal texts.
type TraitKey [16]byte

// KeyHash identifies the identities of a project that have a trait.
func KeyHash(project uuid.UUID, key string) TraitKey {
	text := make([]byte, 0, 256)
	return hashOf(append(append(append(text, project[:]...), 'k'), key...))
}

// ValueHash identifies the identities of a project that have a trait with a value.
func ValueHash(project uuid.UUID, key, value string) TraitKey {
	text := make([]byte, 0, 512)
	text = binary.AppendUvarint(append(append(text, project[:]...), 'v'), uint64(len(key)))
	return hashOf(append(append(text, key...), value...))
}

func hashOf(text []byte) (k TraitKey) {
	sum := sha256.Sum256(text)
	copy(k[:], sum[:])
	return k
}

func (k TraitKey) compare(other TraitKey) int { return bytes.Compare(k[:], other[:]) }

// TraitKeys are the hashes of the traits of an identity: for each trait that of its key, then that of
// its value, sorted by the first. An identity is matched by these; the text of its traits is read only
// to be returned.
type TraitKeys []byte

// pairBytes is the size of the two hashes of a trait.
const pairBytes = 2 * len(TraitKey{})

// TraitKeysOf returns the hashes of traits.
func TraitKeysOf(project uuid.UUID, traits map[string]string) TraitKeys {
	pairs := make([][pairBytes]byte, 0, len(traits))
	for key, value := range traits {
		var pair [pairBytes]byte
		k, v := KeyHash(project, key), ValueHash(project, key, value)
		copy(pair[:], k[:])
		copy(pair[len(k):], v[:])
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [pairBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	all := make(TraitKeys, 0, len(pairs)*pairBytes)
	for _, pair := range pairs {
		all = append(all, pair[:]...)
	}
	return all
}

// Len returns the number of traits.
func (t TraitKeys) Len() int { return len(t) / pairBytes }

// Key returns the hash of the key of the nth trait.
func (t TraitKeys) Key(n int) TraitKey { return TraitKey(t[n*pairBytes:]) }

// Value returns the hash of the key and value of the nth trait.
func (t TraitKeys) Value(n int) TraitKey { return TraitKey(t[n*pairBytes+len(TraitKey{}):]) }
