package runner

import "github.com/annals-project/annals/eventstore"

// part is consecutive events of a page, with those of the projector.
type part struct {
	after  eventstore.Position // the position before the first event
	events []eventstore.DecodedEvent
	own    []eventstore.DecodedEvent
	at     []int // the indexes of own in the page
	from   int   // the index of the first event in the page
}

// partOf returns a whole page. It decides once for each event whether the projector applies it.
func (r *runner) partOf(after eventstore.Position, events []eventstore.DecodedEvent) part {
	p := part{after: after, events: events}
	for i, f := range events {
		if r.owns(f) {
			p.own, p.at = append(p.own, f), append(p.at, i)
		}
	}
	return p
}

// cut returns the events before the projector's event n, and the rest: nothing if it has no more than n.
func (p part) cut(n int) (first, rest part) {
	if n == len(p.own) {
		return p, part{}
	}
	i := p.at[n] - p.from
	first = part{after: p.after, events: p.events[:i], own: p.own[:n], at: p.at[:n], from: p.from}
	rest = part{after: p.after, events: p.events[i:], own: p.own[n:], at: p.at[n:], from: p.at[n]}
	if i > 0 {
		rest.after = p.events[i-1].Position
	}
	return first, rest
}
