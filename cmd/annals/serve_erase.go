package main

import (
	"context"
	"slices"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/usage"
)

// newFinisher makes the finisher with what it removes from the disk.
func (p *process) newFinisher(events *commands.Log, lists datapoints.Queries) *pipeline.Finisher {
	tables := projections.Vacuum{
		DB:        p.st.work,
		Keepers:   []projections.TextKeeper{datapoints.Projector{}, &memories.Projector{}, &directory.Projector{}},
		Leftovers: p.runtime.DropLeftovers,
	}
	inside := p.runtime.Inside()
	removals := directory.NewQueries(p.st.work, p.st.store, inside, lists, usage.Queries{DB: p.st.work})
	f := &pipeline.Finisher{
		Log: events, List: lists, Identities: removals, Progress: inside, Logger: p.log, Now: p.now,
		Index: p.st.index, HasIndex: p.index.feeds,
	}
	f.Aside = func(at eventstore.Position) bool {
		aside, is := p.runtime.Aside()[at]
		return is && (len(aside.Projections) == 0 || slices.Contains(aside.Projections, datapoints.Name))
	}
	p.embedding.erases(f, &tables)
	f.Tables = tables
	if p.st.node != nil {
		f.Store = p.st.node
	} else {
		p.log.Info("what deletions leave in the event store goes with the cluster's own scavenge; cleaned does not wait for that")
	}
	return f
}

// operatorErasures is what an operator asks of the finisher.
type operatorErasures struct{ finisher *pipeline.Finisher }

// PendingErasures implements operator.Eraser.
func (o operatorErasures) PendingErasures(ctx context.Context) (operator.Pending, error) {
	open, err := o.finisher.Pending(ctx)
	return pending(open), err
}

// EraseNow implements operator.Eraser.
func (o operatorErasures) EraseNow(ctx context.Context) (operator.Erased, error) {
	done, err := o.finisher.EraseNow(ctx)
	return operator.Erased{
		Deletions: done.Deletions, Identities: done.Identities, Streams: done.Streams, Blobs: done.Blobs, Tables: done.Tables, Indexes: done.Indexes, Store: done.Store,
		Left: pending(done.Left),
	}, err
}

func pending(open todo.Open) operator.Pending {
	return operator.Pending{FanOuts: open.FanOuts, Deletions: open.Deletions, DataPoints: open.Erasures, Identities: open.Identities, Blobs: open.Blobs, Until: open.Until}
}
