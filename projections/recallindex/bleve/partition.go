package bleve

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// sharedSlots is how many Bleve indexes all small projects share. Each costs some goroutines, up to
// about twenty files, and two syncs for each page that touches it. Damage of one takes recall from
// a sixteenth of the projects for a while.
const sharedSlots = 16

// ownFrom is how many documents a project has in a shared slot before its later ones go to its own
// slot. Earlier ones are not copied. Own slots cost files, and a smaller project would gain little.
const ownFrom = 20_000

const (
	sharedPrefix = "shared-"
	ownPrefix    = "own-"
	// knownSuffix names the file that records that a slot was created: without it, a missing slot
	// would not be a loss.
	knownSuffix = ".known"
)

// partition is where documents of a project are: a slot, and a prefix of their terms and ids there,
// so that a search reads and counts only postings of its project. In an own slot the prefix is
// empty.
type partition struct {
	slot   string
	prefix string
}

// prefixLength is the length of a prefix: nine bytes of a hash as text. Among a million projects,
// two share one with a probability of 10^-10.
const prefixLength = 12

// shared returns the partition of a project in a shared slot.
func shared(project uuid.UUID) partition {
	sum := sha256.Sum256(project[:])
	const digits = "0123456789abcdef"
	return partition{
		slot:   sharedPrefix + string(digits[sum[31]%sharedSlots]),
		prefix: base64.RawURLEncoding.EncodeToString(sum[:9]),
	}
}

// own returns the partition of a project in its own slot.
func own(project uuid.UUID) partition { return partition{slot: ownPrefix + project.String()} }

// projectOf returns the project of an own slot; ok is false for a shared one.
func projectOf(slot string) (uuid.UUID, bool) {
	id, alone := strings.CutPrefix(slot, ownPrefix)
	if !alone {
		return uuid.Nil, false
	}
	project, err := uuid.Parse(id)
	return project, err == nil
}

// owner returns the name of a data point in a partition, the beginning of the ids of its documents.
func (p partition) owner(point uuid.UUID) string { return p.prefix + encode(point) }

// ownerLength is the length of such a name with a prefix.
const ownerLength = prefixLength + idLength

// holds reports whether a slot may hold documents of a project.
func holds(slot string, project uuid.UUID) bool {
	return slot == shared(project).slot || slot == own(project).slot
}

// hasOwn reports whether a project has its own slot.
func (x *Index) hasOwn(project uuid.UUID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.owns[project]
}

// slots returns the slots that were created, and those that are lost.
func (x *Index) slots() (made, lost []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(x.path("-")))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if slot, is := strings.CutSuffix(e.Name(), knownSuffix); is {
			made = append(made, slot)
		}
		if slot, is := strings.CutSuffix(e.Name(), lostSuffix); is {
			lost = append(lost, slot)
		}
	}
	return made, lost, nil
}

// marker returns the term of a part.
func (p partition) marker(part recallindex.Part) []byte { return []byte(p.prefix + string(part)) }
