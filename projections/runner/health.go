package runner

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
)

// Status is the state of a projection of this process.
type Status struct {
	Name    string
	Version int
	// Everything up to Position is applied. Head is the newest position that this process knows, 0 if
	// none.
	Position eventstore.Position
	Head     eventstore.Position
	// IsUnread is true if the checkpoint could not be read: Position is not known then.
	IsUnread bool
	// Active is true if this process has the lease.
	Active bool
	// Stop is set if the projection stopped, here or elsewhere, and no process continued.
	Stop *Stop
	// Repeat is the page that failed last, set until it passes.
	Repeat *Repeat
	// LastErr is a failure that may pass, such as a database that cannot be reached.
	LastErr error
}

// Lag is how far a projection lags, in positions of the log; 0 is up to date, or not known.
func (s Status) Lag() eventstore.Position {
	if s.IsUnread || s.Head <= s.Position {
		return 0
	}
	return s.Head - s.Position
}

// FeedStalls counts how often the live subscription to the log stalled while the log grew, and was
// restarted.
func (rt *Runtime) FeedStalls() uint64 { return rt.feed.Stalls() }

// Health returns the state of each projection of this process.
func (rt *Runtime) Health(ctx context.Context) []Status { return rt.health(ctx, rt.background) }

// HealthOn is Health, with the checkpoints read over a pool that neither calls nor background work use.
func (rt *Runtime) HealthOn(ctx context.Context, db *pgxpool.Pool) []Status {
	waiter := *rt.background
	waiter.db = db
	return rt.health(ctx, &waiter)
}

func (rt *Runtime) health(ctx context.Context, waiter *Waiter) []Status {
	var head eventstore.Position
	unread := map[string]error{}
	for _, topic := range rt.feed.Status() {
		head = max(head, topic.Known)
		unread[topic.Topic] = topic.Err
	}
	all := make([]Status, 0, len(rt.runners))
	for _, r := range rt.runners {
		now, err := waiter.state(ctx, r.projector.Name(), 0)
		s := Status{
			Name: r.projector.Name(), Version: r.projector.Version(), Position: now.position, Head: head,
			Active: now.active, Stop: now.stop, LastErr: now.lastErr, Repeat: now.repeat,
		}
		if s.LastErr == nil && now.active {
			s.LastErr = now.followUp
		}
		if s.LastErr == nil {
			s.LastErr = unread[r.topic()]
		}
		if err != nil {
			s.LastErr, s.IsUnread = err, true
		}
		all = append(all, s)
	}
	return all
}
