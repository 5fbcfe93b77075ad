package directory

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
)

// maxMarked is how many traits of a record are in table marks. Only a record that is older than the limit has more: it is looked through
// instead.
const maxMarked = identity.MaxTraits

// mark is a hash of a project and a trait's key, or of a project, a trait's key and its value. Equal marks are equal texts: rules are
// matched by marks alone.
type mark [16]byte

// keyMark is the mark of every identity of a project that has a trait.
func keyMark(project uuid.UUID, key string) mark {
	text := make([]byte, 0, 256)
	return markOf(append(append(append(text, project[:]...), 'k'), key...))
}

// valueMark is the mark of every identity of a project whose trait has a value.
func valueMark(project uuid.UUID, key, value string) mark {
	text := make([]byte, 0, 512)
	text = binary.AppendUvarint(append(append(text, project[:]...), 'v'), uint64(len(key)))
	return markOf(append(append(text, key...), value...))
}

func markOf(text []byte) (m mark) {
	sum := sha256.Sum256(text)
	copy(m[:], sum[:])
	return m
}

func (m mark) compare(other mark) int { return bytes.Compare(m[:], other[:]) }

// marks are the marks of the traits of a record: for each trait that of its key and that of its value, in the order of the first. That
// is how a record is kept beside the text of its traits, which is read only to be shown.
type marks []byte

// pairBytes is what a trait takes.
const pairBytes = 2 * len(mark{})

func marksOf(project uuid.UUID, values map[string]string) marks {
	pairs := make([][pairBytes]byte, 0, len(values))
	for key, value := range values {
		var pair [pairBytes]byte
		k, v := keyMark(project, key), valueMark(project, key, value)
		copy(pair[:], k[:])
		copy(pair[len(k):], v[:])
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [pairBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	all := make(marks, 0, len(pairs)*pairBytes)
	for _, pair := range pairs {
		all = append(all, pair[:]...)
	}
	return all
}

// len is how many traits there are.
func (m marks) len() int { return len(m) / pairBytes }

func (m marks) key(n int) mark { return mark(m[n*pairBytes:]) }

func (m marks) value(n int) mark { return mark(m[n*pairBytes+len(mark{}):]) }

// broad reports whether there are too many to be in table marks.
func (m marks) broad() bool { return m.len() > maxMarked }

// rows are the marks that are in table marks, none for those that are too many.
func (m marks) rows() ids {
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
