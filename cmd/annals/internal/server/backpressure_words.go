package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"
)

// block is a cause for which writes are refused or wait, in words.
type block struct {
	// why is the cause as annals_writes_refused names it, or a similar word.
	why, reason string
	// waits is true if writes wait for room first.
	waits bool
	// projects are those whose writes wait; none are all.
	projects []uuid.UUID
}

// maxLoggedProjects bounds the projects of one line.
const maxLoggedProjects = 8

// list returns the causes of a check.
func (r blocks) list() []block {
	var list []block
	add := func(is bool, b block) {
		if is {
			list = append(list, b)
		}
	}
	add(r.lagging != "", block{why: "behind", reason: r.lagging})
	add(r.derivation.late != "", block{why: "waiting", reason: r.derivation.late, waits: true})
	add(r.bulk.full != "", block{why: "batches", reason: r.bulk.full, waits: true})
	add(r.nearlyFull != "" && r.logFull == "", block{why: "disk", reason: r.nearlyFull + ": " + r.free})
	add(r.logFull != "", block{why: "log", reason: r.logFull + ": " + r.free})
	ahead, own := projectsOf(r.ahead), projectsOf(r.derivation.own)
	add(len(ahead) > 0, block{
		why: "projects-behind", waits: true, projects: ahead,
		reason: many(len(ahead), "sends", "send") + " faster than their events are processed",
	})
	add(len(own) > 0, block{
		why: "projects-waiting", waits: true, projects: own,
		reason: many(len(own), "sends", "send") + " more than can be derived",
	})
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
func (p *backpressure) logChanges(ctx context.Context, before, now blocks) {
	has := func(list []block, why string) bool {
		return slices.ContainsFunc(list, func(b block) bool { return b.why == why })
	}
	old, current := before.list(), now.list()
	for _, b := range current {
		if has(old, b.why) {
			continue
		}
		message := "writes are refused"
		if b.waits {
			message = "writes wait for room, and are refused after a while"
		}
		args := []any{slog.String("why", b.why), slog.String("reason", b.reason)}
		if len(b.projects) > 0 {
			args = append(args, slog.Any("projects", b.projects[:min(len(b.projects), maxLoggedProjects)]))
		}
		p.logger.WarnContext(ctx, message, args...) //nolint:sloglint // one of two constants
	}
	for _, b := range old {
		if !has(current, b.why) {
			p.logger.InfoContext(ctx, "writes are accepted again", "why", b.why)
		}
	}
}

// reasons returns why writes are refused, for the operator.
func (p *backpressure) reasons() (list []string) {
	if err := p.stopped(); err != nil {
		list = append(list, "the event store cannot write until the service is restarted: "+err.Error())
	}
	for _, b := range p.state().list() {
		list = append(list, b.reason)
	}
	return list
}

// isLogRefused reports whether the log stores no events now.
func (p *backpressure) isLogRefused() bool { return p.stopped() != nil || p.state().logFull != "" }
