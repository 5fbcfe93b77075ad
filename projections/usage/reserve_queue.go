package usage

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

// ask is a reservation that waits to be decided.
type ask struct {
	metering.Reservation
	month string
	hold  time.Duration
	// left is set, under the mutex of the queues, where its caller went away before it was taken up.
	left bool
	// done is closed once it is decided; err is the answer.
	done chan struct{}
	err  error
}

// queues are the asks of this process by organization. Those that wait hold no connection: the projections need some to make facts
// of what is reserved.
type queues struct {
	mu      *sync.Mutex
	waiting map[uuid.UUID][]*ask // of those organizations that somebody works for
}

func newQueues() queues { return queues{mu: new(sync.Mutex), waiting: map[uuid.UUID][]*ask{}} }

// add puts an ask in its queue; first is true where nobody works for it yet.
func (q queues) add(a *ask) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, worked := q.waiting[a.OrganizationID]
	q.waiting[a.OrganizationID] = append(waiting, a)
	return !worked
}

// leave takes an ask back that was not taken up.
func (q queues) leave(a *ask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.left = true
}

// take is all that waits for an organization; none is the end of the work for it.
func (q queues) take(organization uuid.UUID) (asks []*ask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.waiting[organization] {
		if !a.left {
			asks = append(asks, a)
		}
	}
	if len(asks) == 0 {
		delete(q.waiting, organization)
		return nil
	}
	q.waiting[organization] = nil
	return asks
}
