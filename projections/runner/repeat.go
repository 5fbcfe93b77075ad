package runner

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
)

// repeatLimit is how long a projector may repeat one page before it counts as stopped.
const repeatLimit = 2 * time.Minute

// Repeat is a page that a projector retries, or a lease that it cannot take. It ends by itself once
// the page succeeds.
type Repeat struct {
	Projection string
	// After and Next are the positions before the page and of its last event, both 0 for a lease.
	After, Next eventstore.Position
	// Since is when the first try began, Tries how many have failed.
	Since time.Time
	Tries int
	Err   error
	// OfEvent is true if the event at Next is the cause: it takes longer than the longest limit.
	OfEvent bool
}

// holds reports whether it holds up the event at a position of a projection that has applied everything up to
// applied.
func (r *Repeat) holds(at, applied eventstore.Position) bool {
	if r.Next == 0 {
		return at > applied
	}
	return r.After < at && at <= r.Next
}

func (r *Repeat) Error() string {
	since := r.Since.UTC().Format(time.RFC3339)
	if r.Next == 0 {
		return fmt.Sprintf("projection %s cannot begin since %s (%d tries): %s", r.Projection, since, r.Tries, brief(r.Err))
	}
	return fmt.Sprintf("projection %s repeats the page after %d up to %d since %s (%d tries): %s",
		r.Projection, r.After, r.Next, since, r.Tries, brief(r.Err))
}

func (r *Repeat) Unwrap() error { return r.Err }

// same reports whether both are about the same page.
func (r *Repeat) same(o *Repeat) bool {
	return r != nil && o != nil && r.After == o.After && r.Next == o.Next && r.Since.Equal(o.Since)
}

// maxBriefBytes bounds the text of a cause.
const maxBriefBytes = 200

// brief returns the cause of a failure in a few words, without values that a database error may
// quote.
func brief(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return kindOfRefusal(refused)
	}
	text := err.Error()
	if len(text) <= maxBriefBytes {
		return text
	}
	cut := maxBriefBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// recordFailure records that a page, or taking the lease, failed.
func (r *runner) recordFailure(after, next eventstore.Position, began time.Time, err error) {
	r.progress.change(func(p *progress) {
		now := &Repeat{Projection: r.projector.Name(), After: after, Next: next, Since: began, Tries: 1, Err: err}
		now.OfEvent = errors.Is(err, errTooLong) && r.bounds.isLongest(next)
		if before := p.repeat; before != nil && before.After == after {
			now.Since, now.Tries = before.Since, before.Tries+1
		}
		p.lastErr, p.repeat = err, now
	})
}

// overdue is a repeat that counts as a stop, nil if there is none.
func (s snapshot) overdue(limit time.Duration) *Repeat {
	if s.repeat == nil || time.Since(s.repeat.Since) < limit {
		return nil
	}
	return s.repeat
}
