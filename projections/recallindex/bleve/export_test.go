package bleve

import (
	"path/filepath"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"
)

// SharedSlot and OwnSlot name where documents of a project are.
func SharedSlot(project uuid.UUID) string { return shared(project).slot }

func OwnSlot(project uuid.UUID) string { return own(project).slot }

// Newest are the files of the newest snapshot.
var Newest = newest

// StopShared has a goroutine of a project's shared slot fail, for good where stops is set.
func StopShared(x *Index, project uuid.UUID, stops bool) {
	err := scorch.NewScorchError("merger", "no reason", scorch.ErrPersist)
	if stops {
		err = scorch.NewScorchError("merger", "no reason", scorch.ErrAsyncPanic)
	}
	watched(err, filepath.Join(x.path(shared(project).slot), "store"))
}

// UseShared ends a use of a project's shared slot as fn ends.
func (x *Index) UseShared(project uuid.UUID, fn func() error) error {
	return x.with(shared(project).slot, false, func(*handle) error { return fn() })
}
