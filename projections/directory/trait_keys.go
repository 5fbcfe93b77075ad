package directory

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
)

// maxIndexedTraits is the most traits of a record in table marks. Only a record from before the
// limit has more; queries scan its traits instead.
const maxIndexedTraits = limit.Traits

// broad reports whether the traits are too many for table marks.
func broad(traits audience.TraitKeys) bool { return traits.Len() > maxIndexedTraits }

// markRows are the hashes to store in table marks, none if there are too many.
func markRows(traits audience.TraitKeys) ids {
	rows := ids{}
	if broad(traits) {
		return rows
	}
	for n := range traits.Len() {
		rows.add(uuid.UUID(traits.Key(n)))
		rows.add(uuid.UUID(traits.Value(n)))
	}
	return rows
}
