package indextest_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMemory(t *testing.T) {
	indextest.Run(t, func(*testing.T) indextest.Storage {
		index := indextest.NewMemory()
		return indextest.Storage{
			Open:   func(*testing.T) recallindex.Index { return index.Reopen() },
			Damage: func(_ *testing.T, project uuid.UUID) { index.Damage(project) },
		}
	})
}
