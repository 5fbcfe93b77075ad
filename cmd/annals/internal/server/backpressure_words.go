package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/condition"
)

// maxLoggedProjects bounds the projects of one line.
const maxLoggedProjects = 8

// The causes for which writes are refused, or wait for room first, as annals_writes_refused names the first four.
const (
	refusedBehind  = "behind"
	refusedWaiting = "waiting"
	refusedDisk    = "disk"
	refusedLog     = "log"
	batchesWait    = "batches"
	projectsBehind = "projects-behind"
	projectsWait   = "projects-waiting"
)

// conditions returns why writes are refused or wait by a check.
func (r blocks) conditions() (list condition.List) {
	add := func(is bool, of, reason string, projects ...uuid.UUID) {
		if is {
			c := remark(condition.WritesRefused, reason)
			c.Of, c.Projects = of, projects
			list = append(list, c)
		}
	}
	add(r.lagging != "", refusedBehind, r.lagging)
	add(r.derivation.late != "", refusedWaiting, r.derivation.late)
	add(r.bulk.full != "", batchesWait, r.bulk.full)
	add(r.nearlyFull != "", refusedDisk, r.nearlyFull+": "+r.free)
	add(r.logFull != "", refusedLog, r.logFull+": "+r.logFree)
	ahead, own := projectsOf(r.ahead), projectsOf(r.derivation.own)
	add(len(ahead) > 0, projectsBehind,
		many(len(ahead), "sends", "send")+" faster than their events are processed", ahead...)
	add(len(own) > 0, projectsWait, many(len(own), "sends", "send")+" more than can be derived", own...)
	return list
}

// many is a number of projects with the verb that fits.
func many(n int, one, more string) string {
	return english.Plural(n, "project", "projects") + " " + english.PluralWord(n, one, more)
}

// projectsOf returns the projects of a map in their order.
func projectsOf[V any](m map[uuid.UUID]V) []uuid.UUID {
	list := make([]uuid.UUID, 0, len(m))
	for id := range m {
		list = append(list, id)
	}
	slices.SortFunc(list, func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// logChanges logs each cause when it begins and when it ends.
func (p *backpressure) logChanges(ctx context.Context, began, ended condition.List) {
	for _, c := range began {
		message := "writes are refused"
		switch c.Of {
		case refusedWaiting, batchesWait, projectsBehind, projectsWait:
			message = "writes wait for room, and are refused after a while"
		}
		args := []any{slog.String("why", c.Of), slog.String("reason", string(c.Words))}
		if len(c.Projects) > 0 {
			args = append(args, slog.Any("projects", c.Projects[:min(len(c.Projects), maxLoggedProjects)]))
		}
		p.logger.WarnContext(ctx, message, args...) //nolint:sloglint // one of two constants
	}
	for _, c := range ended {
		p.logger.InfoContext(ctx, "writes are accepted again", "why", c.Of)
	}
}

// conditions returns why writes are refused or wait.
func (p *backpressure) conditions() (list condition.List) {
	if err := p.stopped(); err != nil {
		c := withCause(condition.WritesRefused, "the event store cannot write until the service is restarted", err.Error())
		c.Of = refusedLog
		list = append(list, c)
	}
	return append(list, p.state().found...)
}
