package projections

import (
	"context"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

// Paced is a Projector that need not see each event the moment it happens. While events come one after the other its pages are so
// much apart, and so fewer and larger: what a page costs beside its events is most of what a small one costs.
type Paced interface {
	// Pace is the least time from the beginning of a page to that of the next. It does not hold up an event that comes after a
	// time of rest, a full page, nor one that an answer waits for.
	Pace() time.Duration
}

// Stretched is a Paced with longer pauses between pages, up to MostPace, while many events come.
// Larger pages cost less per event, so the projection keeps up with more events.
type Stretched interface {
	Paced
	MostPace() time.Duration
}

// paceOfEvent is by how much each event of a page extends the pace.
const paceOfEvent = time.Millisecond

// paceOf returns the pace after a page of so many events.
func paceOf(p Paced, events int) time.Duration {
	pace := p.Pace()
	if s, is := p.(Stretched); is {
		return max(pace, min(pace+time.Duration(events)*paceOfEvent, s.MostPace()))
	}
	return pace
}

// rest waits behind a page, which is applied and visible, until the next may begin.
func (r *runner) rest(ctx context.Context, began time.Time, page feed.Page) {
	paced, is := r.projector.(Paced)
	if !is || len(page.Facts) >= feed.PageEvents || !page.AtHead {
		return
	}
	left := paceOf(paced, len(page.Facts)) - time.Since(began)
	hurry := r.progress.hurry()
	if left <= 0 || hurry == nil {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	case <-ctx.Done():
	}
}

// want says that somebody waits for a position.
func (p *progress) want(position eventstore.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if position <= max(p.wanted, p.position) {
		return
	}
	p.wanted = position
	if p.hurried != nil {
		close(p.hurried)
		p.hurried = nil
	}
}

// hurry is closed once somebody waits for what is not applied yet; nil where somebody does already.
func (p *progress) hurry() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted > p.position {
		return nil
	}
	if p.hurried == nil {
		p.hurried = make(chan struct{})
	}
	return p.hurried
}
