package indextest_test

import (
	"testing"

	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMemory(t *testing.T) {
	indextest.Run(t, func(*testing.T) indextest.Open {
		index := indextest.NewMemory()
		return func(*testing.T) recallindex.Index { return index.Reopen() }
	})
}
