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

// sharedSlots is how many Bleve indexes all small projects share. Each costs some goroutines, up to some twenty files, and
// two syncs for a page that touches it; damage of one takes recall from the sixteenth part of the projects for a while.
const sharedSlots = 16

// ownFrom is how many documents a project has in a shared slot before its later ones go to a slot of its own. Earlier ones
// stay where they are: nothing is copied. Below it a project would gain little, and slots of their own cost files.
const ownFrom = 20_000

const (
	sharedPrefix = "shared-"
	ownPrefix    = "own-"
	// knownSuffix names the file that says that a slot was made: without it, a missing slot is a loss.
	knownSuffix = ".known"
)

// A place is where documents of a project are: a slot, and what begins their terms and ids there, so that a search walks
// postings of its own project alone, and counts them. In a slot of its own a project needs none.
type place struct {
	slot   string
	prefix string
}

// prefixLength is the length of a prefix: nine bytes of a hash as text. Of a million projects two would share one with a
// chance of one in ten thousand million.
const prefixLength = 12

// shared is the place that a project has among others.
func shared(project uuid.UUID) place {
	sum := sha256.Sum256(project[:])
	const digits = "0123456789abcdef"
	return place{slot: sharedPrefix + string(digits[sum[31]%sharedSlots]), prefix: base64.RawURLEncoding.EncodeToString(sum[:9])}
}

// own is the place that a project has for itself, where it has one.
func own(project uuid.UUID) place { return place{slot: ownPrefix + project.String()} }

// projectOf is the project of a slot of its own, nil of a shared one.
func projectOf(slot string) (uuid.UUID, bool) {
	id, alone := strings.CutPrefix(slot, ownPrefix)
	if !alone {
		return uuid.Nil, false
	}
	project, err := uuid.Parse(id)
	return project, err == nil
}

// owner is the name of a data point in a place, which begins the ids of its documents.
func (p place) owner(point uuid.UUID) string { return p.prefix + encode(point) }

// ownerLength is how long such a name is, with a prefix.
const ownerLength = prefixLength + idLength

// holds reports whether a slot is a place of a project.
func holds(slot string, project uuid.UUID) bool {
	return slot == shared(project).slot || slot == own(project).slot
}

// hasOwn reports whether a project has a slot of its own.
func (x *Index) hasOwn(project uuid.UUID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.owns[project]
}

// slots are the slots that were made, and those that are lost.
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

// marker is how a part begins its term.
func (p place) marker(part recallindex.Part) []byte { return []byte(p.prefix + string(part)) }
