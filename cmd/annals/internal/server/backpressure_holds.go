package server

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/condition"
)

// hold is a cause for which writes are refused or wait for room: callers, operators, metrics and the log read it here.
type hold struct {
	of cause
	// words are the cause for callers, more what operators read instead. Operators do not read of a cause without it.
	words, more string
	// projects are those whose writes it holds, nil for all.
	projects map[uuid.UUID]bool
	// lanes are those whose writes wait for room. Without any, writes are refused at once.
	lanes []admission.Lane
	// until is when what is refused is accepted again. Deletions is true if deletions are refused too.
	until     string
	deletions bool
}

// gauge measures something that has a limit. It returns the holds while that is over the limit, and until it is down to
// where it resumes. If it fails, the holds of its causes before it stay.
type gauge struct {
	// measure gets what the check before found, and adds what else it finds to the current one.
	measure func(ctx context.Context, before blocks, now *blocks) ([]hold, error)
	causes  []cause
}

// cause names a hold, as annals_writes_refused names the first four.
type cause string

const (
	behind         cause = "behind"
	waiting        cause = "waiting"
	diskFull       cause = "disk"
	logRefused     cause = "log"
	batchesWait    cause = "batches"
	projectsBehind cause = "projects-behind"
	projectsWait   cause = "projects-waiting"
	projectDelays  cause = "project-delays"
	projectBatches cause = "project-batches"
)

// maxLoggedProjects bounds the projects of one line.
const maxLoggedProjects = 8

// has reports whether a check found a cause.
func (r blocks) has(of cause) bool { return len(r.only(of)) > 0 }

// only returns what a check found of some causes.
func (r blocks) only(of ...cause) (list []hold) {
	for _, h := range r.holds {
		if slices.Contains(of, h.of) {
			list = append(list, h)
		}
	}
	return list
}

// held returns the projects that a cause holds.
func (r blocks) held(of cause) map[uuid.UUID]bool {
	for _, h := range r.only(of) {
		return h.projects
	}
	return nil
}

// waits returns why a write of a project waits for room, "" if it does not.
func (r blocks) waits(project uuid.UUID, lane admission.Lane) string {
	for _, h := range r.holds {
		if slices.Contains(h.lanes, lane) && (h.projects == nil || h.projects[project]) {
			return h.words
		}
	}
	return ""
}

// refuse returns the fault with which a write is refused now without a wait, nil if it is not. A deletion passes
// whatever lags, and keeps a part of the disk.
func (r blocks) refuse(lane admission.Lane) error {
	for _, h := range r.holds {
		if len(h.lanes) == 0 && (h.deletions || lane != admission.NoRoom) {
			return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
				"%s: writes are refused until %s, retry later; reads continue", h.words, h.until)
		}
	}
	return nil
}

// conditions returns why writes are refused or wait, for operators.
func (r blocks) conditions() (list condition.List) {
	for _, h := range r.holds {
		if h.more == "" {
			continue
		}
		c := remark(condition.WritesRefused, h.more)
		c.Of = string(h.of)
		c.Projects = slices.SortedFunc(maps.Keys(h.projects), func(a, b uuid.UUID) int {
			return cmp.Compare(a.String(), b.String())
		})
		list = append(list, c)
	}
	return list
}

// holdProjects returns the hold of some projects, none without any. One and more are what they do, for operators.
func holdProjects(of cause, projects map[uuid.UUID]bool, words, one, more string, lanes ...admission.Lane) []hold {
	if len(projects) == 0 {
		return nil
	}
	h := hold{of: of, words: words, projects: projects, lanes: lanes}
	if one != "" {
		h.more = english.Plural(len(projects), "project", "projects") + " " + english.PluralWord(len(projects), one, more)
	}
	return []hold{h}
}

// logChanges logs each cause when it begins and when it ends.
func (p *backpressure) logChanges(ctx context.Context, began, ended condition.List, now blocks) {
	for _, c := range began {
		message := "writes are refused"
		if len(now.only(cause(c.Of))[0].lanes) > 0 {
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
		c.Of = string(logRefused)
		list = append(list, c)
	}
	return append(list, p.state().found...)
}
