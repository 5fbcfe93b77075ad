package auditfilestest

import (
	"bytes"
	"math/rand/v2"
)

// Damage returns a copy of a file with a byte changed, left out, doubled or swapped with another one, or cut.
func Damage(random *rand.Rand, file []byte) []byte {
	at := random.IntN(len(file))
	damaged := bytes.Clone(file)
	switch random.IntN(6) {
	case 0, 1:
		damaged[at] ^= byte(1 + random.IntN(255))
	case 2:
		return append(damaged[:at], file[at+1:]...)
	case 3:
		return append(append(damaged[:at], file[at]), file[at:]...)
	case 4:
		other := random.IntN(len(file))
		damaged[at], damaged[other] = file[other], file[at]
	case 5:
		return damaged[:at]
	}
	return damaged
}
