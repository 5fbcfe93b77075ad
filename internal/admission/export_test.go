package admission

import (
	"time"

	"github.com/annals-project/annals/internal/allowance"
)

// Rows is how many routes have a row.
func Rows() int { return len(routes) }

// The bounds that tests reach.
const (
	LiveGrants  = liveGrants
	RunningTime = runningTime
	BulkEvery   = bulkEvery
)

// Waiting returns how many writes wait, in all and of an owner.
func (r *Room) Waiting(of allowance.Owner) (all, own int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.Each(func(o allowance.Owner, _ *waiting) {
		all++
		if o == of {
			own++
		}
	})
	return all, own
}

// Checks sets a state again and again, as a service does, until the end of the context.
func (r *Room) Checks(done <-chan struct{}, state func() State) {
	for {
		r.Set(state())
		select {
		case <-done:
			return
		case <-time.After(CheckEvery):
		}
	}
}
