package admission

import (
	"time"
)

// Rows is how many routes have a row.
func Rows() int { return len(routes) }

// The bounds that tests reach.
const (
	LiveGrants  = liveGrants
	RunningTime = runningTime
	BulkEvery   = bulkEvery
)

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
