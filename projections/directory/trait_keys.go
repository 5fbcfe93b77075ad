package directory

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/limit"
)

// maxIndexedTraits is the most traits of a record in table marks. Only a record from before the
// limit has more; queries scan its traits instead.
const maxIndexedTraits = limit.Traits

// traitKey is a hash of a project and the key of a trait, or of a project, key and value. Rules are
// matched and identities are found by these hashes, so equal hashes count as equal texts.
type traitKey [16]byte

// keyHash identifies the identities of a project that have a trait.
func keyHash(project uuid.UUID, key string) traitKey {
	text := make([]byte, 0, 256)
	return hashOf(append(append(append(text, project[:]...), 'k'), key...))
}

// valueHash identifies the identities of a project that have a trait with a value.
func valueHash(project uuid.UUID, key, value string) traitKey {
	text := make([]byte, 0, 512)
	text = binary.AppendUvarint(append(append(text, project[:]...), 'v'), uint64(len(key)))
	return hashOf(append(append(text, key...), value...))
}

func hashOf(text []byte) (m traitKey) {
	sum := sha256.Sum256(text)
	copy(m[:], sum[:])
	return m
}

func (m traitKey) compare(other traitKey) int { return bytes.Compare(m[:], other[:]) }

// traitKeys are the hashes of the traits of a record: for each trait that of its key, then that of
// its value, sorted by the first. A record is matched by these; the text of its traits is read only
// to be returned.
type traitKeys []byte

// pairBytes is the size of the two hashes of a trait.
const pairBytes = 2 * len(traitKey{})

func traitKeysOf(project uuid.UUID, values map[string]string) traitKeys {
	pairs := make([][pairBytes]byte, 0, len(values))
	for key, value := range values {
		var pair [pairBytes]byte
		k, v := keyHash(project, key), valueHash(project, key, value)
		copy(pair[:], k[:])
		copy(pair[len(k):], v[:])
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [pairBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	all := make(traitKeys, 0, len(pairs)*pairBytes)
	for _, pair := range pairs {
		all = append(all, pair[:]...)
	}
	return all
}

// len returns the number of traits.
func (m traitKeys) len() int { return len(m) / pairBytes }

func (m traitKeys) key(n int) traitKey { return traitKey(m[n*pairBytes:]) }

func (m traitKeys) value(n int) traitKey { return traitKey(m[n*pairBytes+len(traitKey{}):]) }

// broad reports whether the traits are too many for table marks.
func (m traitKeys) broad() bool { return m.len() > maxIndexedTraits }

// rows are the hashes to store in table marks, none if there are too many.
func (m traitKeys) rows() ids {
	rows := ids{}
	if m.broad() {
		return rows
	}
	for n := range m.len() {
		rows.add(uuid.UUID(m.key(n)))
		rows.add(uuid.UUID(m.value(n)))
	}
	return rows
}
