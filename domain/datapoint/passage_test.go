package datapoint_test

import (
	"bytes"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/datapoint"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// TestPassageID_LeadsToItsNode: the id of a passage gives its node and its number, and differs from all others.
func TestPassageID_LeadsToItsNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		point := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "data point"))
		node := datapoint.NodeID(point, rapid.IntRange(1, 1000).Draw(t, "revision"))
		n := rapid.IntRange(0, 1<<24).Draw(t, "number")
		id := datapoint.PassageID(node, n)
		low, high, ok := datapoint.NodesOfPassage(id)
		if !ok || bytes.Compare(low[:], node[:]) > 0 || bytes.Compare(node[:], high[:]) > 0 {
			t.Fatalf("node %s is not within %s and %s", node, low, high)
		}
		if got := datapoint.PassageNumber(id, node); got != n {
			t.Fatalf("number %d, want %d", got, n)
		}
		if id == node || id == datapoint.PassageID(node, n+1) || id.Variant() != uuid.RFC4122 {
			t.Fatalf("id %s of node %s", id, node)
		}
		if _, _, ok := datapoint.NodesOfPassage(node); ok {
			t.Fatalf("node %s is taken for a passage", node)
		}
	})
}
