package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
)

// operatorProjections is what operators do with the projections of a process.
type operatorProjections struct {
	runtime *projections.Runtime
	log     *commands.Log
	now     func() time.Time
	// stuck returns the deletions that cannot be completed; nil if there is no finisher.
	stuck func() []pipeline.Stuck
}

var _ operator.Projections = operatorProjections{}

// Names implements operator.Projections.
func (o operatorProjections) Names() []string { return o.runtime.Names() }

// Rebuild implements operator.Projections.
func (o operatorProjections) Rebuild(ctx context.Context, projection string, report func(operator.Rebuild)) error {
	return o.runtime.Rebuild(ctx, projection, func(p projections.RebuildProgress) {
		report(operator.Rebuild{
			Projection: p.Projection, Position: uint64(p.Position), Head: uint64(p.Head), Events: p.Events, Seconds: p.Took.Seconds(), Done: p.Done,
		})
	})
}

// allProjections stands for every projection, also those to come.
const allProjections = "all"

// SetAside implements operator.Projections.
func (o operatorProjections) SetAside(ctx context.Context, s operator.SetAside) (operator.Aside, error) {
	refuse := func(format string, args ...any) (operator.Aside, error) {
		return operator.Aside{}, fmt.Errorf("%w: %s", operator.ErrRefused, fmt.Sprintf(format, args...))
	}
	if s.Reason == "" || s.By == "" {
		return refuse("say why, and who decides it")
	}
	var stand []string
	for _, h := range o.runtime.Health(ctx) {
		if h.Stop != nil && h.Stop.Position == eventstore.Position(s.Position) || h.Repeat != nil && h.Repeat.Next == eventstore.Position(s.Position) {
			stand = append(stand, h.Name)
		}
	}
	at := eventstore.Position(s.Position)
	if o.stuck != nil && slices.ContainsFunc(o.stuck(), func(d pipeline.Stuck) bool { return d.Position == at }) {
		stand = append(stand, datapoints.Name)
	}
	ask := commands.SetAside{Position: eventstore.Position(s.Position), Reason: s.Reason, By: s.By, At: o.now()}
	switch {
	case s.Projection == allProjections:
	case s.Projection == "":
		ask.Projections = stand
	case !slices.Contains(o.runtime.Names(), s.Projection):
		return refuse("there is no projection %s", s.Projection)
	default:
		ask.Projections = []string{s.Projection}
	}
	already := o.runtime.Aside()[ask.Position]
	if len(stand) == 0 && already.Position == 0 && !s.Force {
		return refuse("no projection stands still at position %d; --force with --projection sets it aside all the same", s.Position)
	}
	if len(ask.Projections) == 0 && s.Projection == "" {
		if already.Position == 0 {
			return refuse("no projection stands still at position %d: name one, or all", s.Position)
		}
		ask.Projections = already.Projections // said again
	}
	decided, err := commands.SetEventAside(ctx, o.log, ask)
	if errors.Is(err, commands.ErrNoSuchEvent) || errors.Is(err, commands.ErrNotAside) {
		return refuse("%v", err)
	}
	if err != nil {
		return operator.Aside{}, err
	}
	return asideOf(decided), o.runtime.LookAside(ctx)
}

// Asides implements operator.Projections.
func (o operatorProjections) Asides(ctx context.Context) ([]operator.Aside, error) {
	if err := o.runtime.LookAside(ctx); err != nil {
		return nil, err
	}
	var list []operator.Aside
	for _, e := range o.runtime.Aside() {
		list = append(list, asideOf(e))
	}
	slices.SortFunc(list, func(a, b operator.Aside) int { return cmp.Compare(a.Position, b.Position) })
	return list, nil
}

func asideOf(e registry.EventSetAside) operator.Aside {
	return operator.Aside{Position: e.Position, Stream: e.Stream, Type: e.Type, Projections: e.Projections, Reason: e.Reason, By: e.By, At: e.At}
}
