package todo

import (
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
)

// Standing is a directory record as the events of its stream up to a revision made it.
type Standing struct {
	Revision eventstore.Revision
	// Record is the record without its traits, nil for none.
	Record *identity.Record
	// Hidden is true where nothing is known of the record but that it is there; Record says nothing then.
	Hidden bool
}
