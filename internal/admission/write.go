package admission

import (
	"sync/atomic"

	"github.com/annals-project/annals/internal/allowance"
)

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
	// Items receives how many items a batch has. It may be nil.
	Items *Items
}

// Items is how many items a batch has. Its length alone does not tell.
type Items struct {
	n     atomic.Int64
	noted func(n int)
}

// Note notes the number, once the body was read. It does nothing for a batch that was not let in.
func (i *Items) Note(n int) {
	if i.noted != nil && n > 0 {
		i.n.Store(int64(n))
		i.noted(n)
	}
}
