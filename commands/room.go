package commands

// makeRoom keeps a memory below a bound: of one that is full it forgets a half, no matter which.
func makeRoom[K comparable, V any](known map[K]V, bound int) {
	if len(known) < bound {
		return
	}
	drop := (bound + 1) / 2
	for k := range known {
		if drop--; drop < 0 {
			return
		}
		delete(known, k)
	}
}
