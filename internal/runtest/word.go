package runtest

import "math/rand/v2"

// Word returns letters that no compression shortens, and that nobody else writes.
func Word() string {
	letters := make([]byte, 28)
	for i := range letters {
		letters[i] = "bcdfghjklmnpqrtvwxz"[rand.IntN(19)] //nolint:gosec // it is to differ, not to be secret
	}
	return string(letters)
}
