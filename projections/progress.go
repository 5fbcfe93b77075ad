package projections

import (
	"context"
	"sync"

	"github.com/annals-project/annals/eventstore"
)

// progress is where a projection stands, as this process knows it.
type progress struct {
	mu       sync.Mutex
	position eventstore.Position
	// active is true while this process has the lease: position is then the newest, once confirm
	// returns nil.
	active  bool
	confirm func(context.Context) error
	epoch   int64 // of the newest turn of this process
	stop    *Stop
	trouble error
	repeat  *Repeat
	// changed is closed at the next change; nil while nobody waits.
	changed chan struct{}
	// wanted is the newest position that somebody waits, or waited, for; hurried is closed when a newer one is asked for.
	wanted   eventstore.Position
	hurried  chan struct{}
	watchers map[chan struct{}]struct{}
}

// standing is what a reader of a progress sees.
type standing struct {
	position eventstore.Position
	active   bool
	stop     *Stop
	trouble  error
	repeat   *Repeat
	changed  <-chan struct{}
	confirm  func(context.Context) error
}

func (p *progress) look() standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return standing{
		position: p.position, active: p.active, stop: p.stop, trouble: p.trouble, repeat: p.repeat,
		changed: p.changed, confirm: p.confirm,
	}
}

// change changes the progress and wakes all who wait for it.
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
		default: // it has not taken the last wake-up yet
		}
	}
}

func (p *progress) moved(to eventstore.Position) {
	p.change(func(p *progress) { p.position, p.trouble, p.repeat = to, nil, nil })
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

// begun records that a turn was taken at a position, here or by another process: what kept it from being taken is over. A page
// that fails there is not: it comes again.
func (p *progress) begun(at eventstore.Position) {
	p.change(func(p *progress) {
		if p.repeat == nil || p.repeat.Next == 0 || at > p.repeat.After {
			p.trouble, p.repeat = nil, nil
		}
	})
}
