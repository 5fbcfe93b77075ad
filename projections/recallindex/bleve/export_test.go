package bleve

import (
	"path/filepath"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"
)

// SharedSlot and OwnSlot name the slots of a project.
func SharedSlot(project uuid.UUID) string { return shared(project).slot }

func OwnSlot(project uuid.UUID) string { return own(project).slot }

// Newest returns the files of the newest snapshot.
var Newest = newest

// StopShared makes a goroutine of a project's shared slot fail, permanently if stops is set.
func StopShared(x *Index, project uuid.UUID, stops bool) {
	err := scorch.NewScorchError("merger", "no reason", scorch.ErrPersist)
	if stops {
		err = scorch.NewScorchError("merger", "no reason", scorch.ErrAsyncPanic)
	}
	onBackgroundError(err, filepath.Join(x.path(shared(project).slot), "store"))
}

// UseShared ends a use of a project's shared slot with the result of fn.
func (x *Index) UseShared(project uuid.UUID, fn func() error) error {
	return x.with(shared(project).slot, false, func(*handle) error { return fn() })
}

// NeverQuiet lets no slot be merged because nothing writes it.
func NeverQuiet() { quietFor = time.Hour }

// QuietSegments is how many segments a quiet slot has at most.
const QuietSegments = quietSegments

// SegmentsOf returns how many segments the shared slot of a project has.
func SegmentsOf(x *Index, project uuid.UUID) (n int, err error) {
	err = x.with(shared(project).slot, false, func(h *handle) error {
		return h.withSegments(func(list []*scorch.SegmentSnapshot) error {
			n = len(list)
			return nil
		})
	})
	return n, err
}
