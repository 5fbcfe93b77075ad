package limiter

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// request is a reservation that waits for its decision.
type request struct {
	metering.Reservation
	month string
	hold  time.Duration
	// charge, unless it is nil, is counted in place of a reservation, since nothing is sent that would
	// be projected.
	charge *call
	// canceled and grouped are set under the mutex of the queues: if its caller left before it was in a
	// group, and once it is in one.
	canceled, grouped bool
	// done is closed once it is decided; err is the decision.
	done chan struct{}
	err  error
}

// queues are the requests of this process by organization. They wait without a connection: the
// projections need connections to apply the sends that reservations are for.
type queues struct {
	mu      *sync.Mutex
	waiting map[uuid.UUID][]*request // an entry exists while a goroutine decides for the organization
}

func newQueues() queues { return queues{mu: new(sync.Mutex), waiting: map[uuid.UUID][]*request{}} }

// add queues a request; first is true if no goroutine decides for its organization yet.
func (q queues) add(r *request) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, decided := q.waiting[r.OrganizationID]
	q.waiting[r.OrganizationID] = append(waiting, r)
	return !decided
}

// cancel removes a request that no group has yet; ok is false if a group has it.
func (q queues) cancel(r *request) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.canceled = !r.grouped
	return r.canceled
}

// next returns the requests that wait for an organization. None ends the work for it.
func (q queues) next(organization uuid.UUID) (group []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting[organization] {
		if !r.canceled {
			r.grouped = true
			group = append(group, r)
		}
	}
	if len(group) == 0 {
		delete(q.waiting, organization)
		return nil
	}
	q.waiting[organization] = nil
	return group
}
