package commands

import "testing"

func TestRoomIsMadeWhereAMemoryIsFull(t *testing.T) {
	for _, tt := range []struct{ known, bound, left int }{{3, 4, 3}, {4, 4, 2}, {5, 5, 2}, {1, 1, 0}} {
		known := map[int]bool{}
		for n := range tt.known {
			known[n] = true
		}
		if makeRoom(known, tt.bound); len(known) != tt.left {
			t.Errorf("of %d with a bound of %d are left %d, want %d", tt.known, tt.bound, len(known), tt.left)
		}
	}
}
