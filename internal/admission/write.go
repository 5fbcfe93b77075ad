package admission

import "github.com/annals-project/annals/internal/allowance"

// Write is a call that asks for room, before its body is read.
type Write struct {
	allowance.Owner
	// Lane is NoRoom for a deletion.
	Lane Lane
	// Length is that of the body, -1 if it is not known.
	Length int64
	// Arriving reports whether the body is still arriving; nil if it is there. It is called under a lock.
	Arriving func() bool
	// Gone reports whether the client has left; nil if that cannot be found out.
	Gone func() bool
	// Parked is called once if the call has to wait: it holds nothing meanwhile. It may be nil.
	Parked func()
}
