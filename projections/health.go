package projections

import (
	"context"

	"github.com/annals-project/annals/eventstore"
)

// Status is how a projection of this process is.
type Status struct {
	Name    string
	Version int
	// Position is up to where everything is applied, Head the newest position that this process has heard of, 0 before it heard of any.
	Position eventstore.Position
	Head     eventstore.Position
	// Active is true where this process has the turn, false where another has it, or nobody.
	Active bool
	// Stop is set where the projector stopped, here or elsewhere, and nobody went on.
	Stop *Stop
	// Repeat is the page that failed last, set until it passes.
	Repeat *Repeat
	// Trouble is what keeps it from going on at the moment, such as a database that cannot be reached.
	Trouble error
}

// Lag is by how much of the log, in positions, a projection is behind; 0 is up to date.
func (s Status) Lag() eventstore.Position {
	if s.Head <= s.Position {
		return 0
	}
	return s.Head - s.Position
}

// FeedStalls counts how often the live subscription to the log stalled while the log grew, and was
// restarted.
func (rt *Runtime) FeedStalls() uint64 { return rt.feed.Stalls() }

// Health says how each projection of this process is.
func (rt *Runtime) Health(ctx context.Context) []Status {
	var head eventstore.Position
	unread := map[string]error{}
	for _, topic := range rt.feed.Status() {
		head = max(head, topic.Known)
		unread[topic.Topic] = topic.Err
	}
	all := make([]Status, 0, len(rt.runners))
	for _, r := range rt.runners {
		now, err := rt.inside.standing(ctx, r.projector.Name(), 0)
		s := Status{Name: r.projector.Name(), Version: r.projector.Version(), Position: now.position, Head: head, Active: now.active, Stop: now.stop, Trouble: now.trouble, Repeat: now.repeat}
		if s.Trouble == nil {
			s.Trouble = unread[r.topic()]
		}
		if err != nil {
			s.Trouble = err
		}
		all = append(all, s)
	}
	return all
}
