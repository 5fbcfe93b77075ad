package runner

import (
	"context"
	"sync"

	"github.com/annals-project/annals/eventstore"
)

// progress is the state of a projection as this process knows it.
type progress struct {
	mu       sync.Mutex
	position eventstore.Position
	// active is true while this process has the lease: position is then the newest, once confirm
	// returns nil.
	active  bool
	confirm func(context.Context) error
	epoch   int64 // of the newest lease of this process
	stop    *Stop
	lastErr error
	// followUpErr is why the last slice of a follow-up failed, nil once one succeeds.
	followUpErr error
	repeat      *Repeat
	// changed is closed at the next change; nil without a waiter.
	changed chan struct{}
	// requested is the newest position that a caller waits, or waited, for; a newer one closes woken.
	requested eventstore.Position
	woken     chan struct{}
	watchers  map[chan struct{}]struct{}
}

// snapshot is a copy of a progress.
type snapshot struct {
	position eventstore.Position
	active   bool
	stop     *Stop
	lastErr  error
	followUp error
	repeat   *Repeat
	changed  <-chan struct{}
	confirm  func(context.Context) error
}

func (p *progress) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return snapshot{
		position: p.position, active: p.active, stop: p.stop, lastErr: p.lastErr, repeat: p.repeat,
		followUp: p.followUpErr, changed: p.changed, confirm: p.confirm,
	}
}

// change changes the progress and wakes its waiters.
func (p *progress) change(how func(*progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(p)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	for w := range p.watchers {
		select {
		case w <- struct{}{}:
		default: // it has not received the last wake-up yet
		}
	}
}

func (p *progress) advanced(to eventstore.Position) {
	p.change(func(p *progress) { p.position, p.lastErr, p.repeat = to, nil, nil })
}

// isWatchedElsewhere reports whether something watches the projection while this process does not
// have its lease.
func (p *progress) isWatchedElsewhere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.active && len(p.watchers) > 0
}

func (p *progress) watch() (<-chan struct{}, func()) {
	w := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == nil {
		p.watchers = map[chan struct{}]struct{}{}
	}
	p.watchers[w] = struct{}{}
	return w, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, w)
	}
}

// standsBy records that another process has the lease: what failed here is over, and the other process
// records whether the page fails there too.
func (p *progress) standsBy() {
	p.change(func(p *progress) { p.lastErr, p.repeat = nil, nil })
}

// leased records that this process took the lease at a position: the failure to take it is over. A page
// that failed there still fails, until it comes again.
func (p *progress) leased(at eventstore.Position) {
	p.change(func(p *progress) {
		if p.repeat == nil || p.repeat.Next == 0 || at > p.repeat.After {
			p.lastErr, p.repeat = nil, nil
		}
	})
}
