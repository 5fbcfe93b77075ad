package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/projections/datapoints"
)

// The defaults of what may wait in batches; a project has at most half of it while others have batches.
const (
	DefaultBulkItems = 1_000_000
	DefaultBulkBytes = 4 << 30
)

// checkBulk decides whose batches wait because of what waits to be derived of them.
func (p *backpressure) checkBulk(ctx context.Context, _ blocks, _ *blocks) ([]hold, error) {
	if p.queue == nil {
		return nil, nil
	}
	backlog, err := p.queue.BulkByProject(ctx)
	if err != nil {
		return nil, err
	}
	var all datapoints.Bulk
	others := p.room.Importing()
	for project, b := range backlog {
		all.Items += b.Items
		all.Bytes += b.Bytes
		others[project] = true
	}
	if all.Items >= p.bulkItems || all.Bytes >= p.bulkBytes {
		const words = "more batches were sent than may wait to be derived"
		return []hold{{of: batchesWait, words: words, more: words, lanes: []admission.Lane{admission.Bulk}}}, nil
	}
	most := map[uuid.UUID]bool{}
	for project, b := range backlog {
		if len(others) > 1 && (b.Items >= p.bulkItems/2 || b.Bytes >= p.bulkBytes/2) {
			most[project] = true
		}
	}
	return holdProjects(projectBatches, most, "the batches of the project take half of what may wait to be derived",
		"", "", admission.Bulk), nil
}

const (
	// paceTime is how much of the applied events a batch finds unapplied at most: a text that is sent during an
	// import is recalled about this much later.
	paceTime = 400 * time.Millisecond
	// speedAtFirst is how many events a second count as applied before any were measured, and maxSpeed bounds what
	// is measured.
	speedAtFirst = 2500
	maxSpeed     = 100_000
)

// speed measures how many events a second the projections apply. Only checks that find events older than paceTime
// count: projections that pause between pages have work at most times, and yet could apply more.
type speed struct {
	perSecond float64
	applied   uint64
	unapplied int
	at        time.Time
}

// measure returns how many events may be unapplied, and how many are, in all and by project. Budget is 0 if the backlog
// does not cover the log. More may be unapplied while writes wait for what is applied soon.
func (s *speed) measure(
	b *backlog, position eventstore.Position, now time.Time, waiting bool,
) (budget, unapplied int, of map[uuid.UUID]int) {
	all, shares, ok := b.after(position)
	if !ok {
		*s = speed{}
		return 0, 0, nil
	}
	if s.perSecond == 0 {
		s.perSecond = speedAtFirst
	}
	applied, passed := b.arrivals()-uint64(all.events), now.Sub(s.at) //nolint:gosec // a count is not negative
	switch {
	case s.at.IsZero() || passed <= 0 || applied < s.applied:
	case s.unapplied > 0 && b.waited(position, now) >= paceTime:
		s.perSecond += 0.3 * (float64(applied-s.applied)/passed.Seconds() - s.perSecond)
	case waiting && s.unapplied > 0:
		s.perSecond *= 1.1
	}
	s.perSecond = min(max(s.perSecond, speedAtFirst), maxSpeed)
	s.applied, s.unapplied, s.at = applied, all.events, now
	of = map[uuid.UUID]int{}
	for project, a := range shares {
		of[project] = a.events
	}
	return max(int(s.perSecond*paceTime.Seconds()), limit.BatchItems), all.events, of
}
