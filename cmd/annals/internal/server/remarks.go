package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/runner"
)

// The remarks that every client reads as they are.
const (
	erasureDenied condition.Reason = "the event store denies its user a right that erasure needs: " +
		"what was deleted is not recalled, and stays in the store"
	lockAwaited condition.Reason = "statements wait for a table that another session of Postgres has locked"
	semanticOff condition.Reason = "the model of the stored vectors is missing or cannot be called: " +
		"recall searches by words alone (the log names the model; make model installs the built-in one)"
)

const (
	// maxDamaged is the most damaged streams that a remark counts, and namedStreams the most that it names.
	maxDamaged   = 100
	namedStreams = 10
)

// remarks returns what is refused, lost and set aside.
func (h *health) remarks(now reading, starting bool) (list condition.List) {
	add := func(c ...condition.Condition) { list = append(list, c...) }
	if c, ok := h.progress.of(now); ok {
		add(remark(condition.CatchingUp, c.String()))
	}
	add(h.backpressure.conditions()...)
	if text := h.backpressure.openTooLong(); text != "" && !starting { // what waits does so because of the start
		add(remark(condition.OpenTooLong, text))
	}
	add(h.recallRemarks()...)
	add(h.probes.conditions()...)
	if now.failedSends.Sends > 0 {
		add(failedRemark(now.failedSends))
	}
	if n := now.abandonedBulks; n > 0 {
		add(condition.Condition{Name: condition.BulkWritesLost, State: condition.Remark, Count: n})
	}
	if now.awaitedLock != "" {
		add(withCause(condition.LockAwaited, string(lockAwaited), now.awaitedLock))
	}
	if denied := h.denied(); denied != nil {
		c := withCause(condition.ErasureDenied, string(erasureDenied), denied.Error())
		c.Count = denied.Count
		add(c)
	}
	if names := h.storage.hidden.Restored(); len(names) > 0 {
		add(withCause(condition.StreamsRestored, "somebody else deleted, truncated or aged streams of the service in the "+
			"event store, and that was undone ("+counted(len(names), cut.MaxNamed)+" since the start)",
			strings.Join(names[:min(len(names), namedStreams)], ", ")))
	}
	if len(now.damaged) > 0 {
		add(damagedRemark(now.damaged))
	}
	add(h.audit()...)
	return append(list, setAsideRemarks(h.runtime.IsSetAside())...)
}

// recallRemarks returns what recall does not answer here, or answers without a part of what it has.
func (h *health) recallRemarks() (list condition.List) {
	if h.storage.index != nil {
		for _, l := range h.storage.index.Losses() {
			c := remark(condition.RecallIncomplete, l.Part)
			c.Of = l.ID.String()
			list = append(list, c)
		}
	}
	if h.roles.Has(RoleRead) {
		if text := h.index.unavailableReason(); text != "" {
			list = append(list, remark(condition.RecallElsewhere, text))
		}
	}
	if text := h.semantic.reason(); text != "" {
		c := remark(condition.SemanticSearchOff, string(semanticOff))
		c.Private = text
		list = append(list, c)
	}
	return list
}

// failedRemark describes the sends that failed lately. Only operators read the message of the newest.
func failedRemark(f datapoints.RecentFailures) condition.Condition {
	sends := english.Plural(f.Sends, "send", "sends")
	if f.More {
		sends = fmt.Sprintf("more than %d sends", f.Sends)
	}
	text := func(newest string) string {
		return fmt.Sprintf("%s failed in the last hour, the newest with %s; annals failed lists them", sends, newest)
	}
	c := remark(condition.SendsFailed, text(f.Newest.Code))
	c.Private = text(f.Newest.Code + ": " + f.Newest.Message)
	return c
}

// damagedRemark describes the streams that somebody else ended or hid in the event store. Only operators read their
// names.
func damagedRemark(damaged []datapoints.DamagedStream) condition.Condition {
	names := make([]string, min(len(damaged), namedStreams))
	for i := range names {
		names[i] = damaged[i].Stream + " " + damaged[i].Damage
	}
	c := withCause(condition.StreamsDamaged, "somebody else deleted, truncated or aged streams of the service in the "+
		"event store ("+counted(len(damaged), maxDamaged)+"): annals doctor lists them", strings.Join(names, ", "))
	c.Count = len(damaged)
	return c
}

// setAsideRemarks returns the events that projections ignore, by position.
func setAsideRemarks(events map[eventstore.Position]registry.EventSetAside) (list condition.List) {
	for _, e := range slices.SortedFunc(maps.Values(events), func(a, b registry.EventSetAside) int {
		return cmp.Compare(a.Position, b.Position)
	}) {
		list = append(list, condition.Condition{
			Name: condition.SetAside, Of: strconv.FormatUint(e.Position, 10), State: condition.Remark, Position: e.Position,
			SetAside: &client.SetAside{Position: e.Position, Type: e.Type, Projections: e.Projections},
		})
	}
	return list
}

// counted is a number that is counted up to a limit.
func counted(n, most int) string {
	if n == most {
		return strconv.Itoa(n) + " or more"
	}
	return strconv.Itoa(n)
}

func remark(name, words string) condition.Condition {
	return condition.Condition{Name: name, State: condition.Remark, Words: condition.Reason(words)}
}

// withCause makes a remark that has a cause, which only operators read.
func withCause(name, words, cause string) condition.Condition {
	c := remark(name, words)
	c.Private = words + ": " + cause
	return c
}

// details returns what operators see at the console. A part that cannot be read is left out and logged.
func (s *Server) details(ctx context.Context) condition.Details {
	d := condition.Details{
		Version: build.Get().Version, Roles: s.cfg.Roles.String(), Index: "embedded", Rebuilds: []condition.Rebuild{},
	}
	if d.Roles == "" {
		d.Roles = AllRoles().String()
	}
	if s.cfg.Index != nil {
		d.Index = "Elasticsearch"
	}
	warn := func(what string, err error) {
		s.cfg.Logger.WarnContext(ctx, "health of a part cannot be read", "part", what, "err", err)
	}
	if counted := s.inventory.last.Load(); counted != nil {
		if d.Bytes = counted.bytes; counted.dataPoints >= 0 {
			d.DataPoints = &counted.dataPoints
		}
	}
	if free, required, ok := s.backpressure.disk(); ok {
		d.DiskFree, d.DiskRequired = &free, &required
	}
	if at, ok, err := datafolder.LastBackup(s.cfg.Data.Dir); err != nil {
		warn("backup", err)
	} else if ok {
		d.LastBackup = &at
	}
	if s.requests != nil {
		d.RequestLogBytes = new(s.requests.Queued())
	}
	if model := s.semantic.model(); model != "" {
		p, err := embeddings.Queries{DB: s.storage.checks}.Progress(ctx, model)
		if err != nil {
			warn("embeddings", err)
		} else {
			d.Embeddings = &condition.Embeddings{Model: p.Model, Live: p.Live, Embedded: p.Embedded, Captured: p.Captured}
		}
	}
	if open, err := work.CountOpen(ctx, s.read.dataPoints, s.read.directory, s.read.access); err != nil {
		warn("open work", err)
	} else {
		d.Open = &open
	}
	rebuilds, err := runner.Rebuilds(ctx, s.storage.checks, runner.LogIDOf(s.storage.store, s.storage.codec))
	if err != nil {
		warn("rebuilds", err)
	}
	for _, r := range rebuilds {
		d.Rebuilds = append(d.Rebuilds, condition.Rebuild{
			Projection: r.Projection, Position: uint64(r.Position), IsRunning: r.IsRunning,
		})
	}
	return d
}

// status returns how the service is, for the command annals status. What Postgres holds of it is read within
// checkTimeout.
func (s *Server) status(ctx context.Context) operatorapi.Status {
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	list := s.health.conditions(ctx)
	is := operatorapi.Status{
		PID: os.Getpid(), DataDir: s.cfg.Data.Dir, API: s.urls.API, Health: s.urls.API,
		FailedSends: s.health.reading.get().failedSends.Sends, Projections: s.health.projections(),
		Settings: s.cfg.InForce, Details: s.details(limited), NotReady: list.NotReady(true), Remarks: list.Remarks(true),
	}
	if dir, err := filepath.Abs(is.DataDir); err == nil {
		is.DataDir = dir
	}
	if s.listeners.console != nil {
		is.Console, is.MCP = s.urls.Console, s.urls.Console+auth.MCPPath
	}
	if s.listeners.ops != nil {
		is.Health = urlOf("http", s.listeners.ops.Addr().String())
	}
	return is
}
