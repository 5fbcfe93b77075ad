package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/domain/fault"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

const (
	// indexLook is how often it is looked whether the turn of the index has changed hands, where nothing moves; startLook how often
	// at the start.
	indexLook = 500 * time.Millisecond
	startLook = 20 * time.Millisecond
	// indexCatchUp bounds one wait for the index to be where the log is; then it is looked again whose turn it is.
	indexCatchUp = 5 * time.Second
	// indexGrace bounds the wait of the start for an index that is nearly where the log is.
	indexGrace = 5 * time.Second
)

// index is what a process knows of its own index. An embedded index belongs to one process: of several, the one that has the turn
// of its projection feeds its own and answers recall; the others stand by, and build theirs once it is their turn.
type index struct {
	runtime *projections.Runtime
	// sole is true if no other process can have the turn: the log is embedded. Then a turn that changes hands within the process,
	// as at the end of a rebuild, holds up no recall once the index was whole.
	sole bool
	// whole is the turn of this process in which the index came to where the log was when it began; 0 for none.
	whole atomic.Int64
	// stopped is set while the projection stands still, here, and nobody went on: what the index holds is all that there will be.
	stopped atomic.Bool
}

// feeds reports whether this process feeds its index, or the projection stopped and nobody does.
func (x *index) feeds() bool {
	_, active := x.runtime.Active(recallindex.Name)
	return active || x.stopped.Load()
}

// answers reports whether what the index holds is what the log says, as far as it was fed.
func (x *index) answers() bool {
	turn, active := x.runtime.Active(recallindex.Name)
	return active && turn == x.whole.Load() || x.stopped.Load()
}

// elsewhere is why recall is not answered here, "" where it is.
func (x *index) elsewhere() string {
	switch _, active := x.runtime.Active(recallindex.Name); {
	case x.answers(), x.sole && x.whole.Load() != 0:
		return ""
	case active, x.sole:
		return "the index of this process is being built; recall is answered once it is"
	default:
		return "another process feeds its index, and answers recall"
	}
}

// watchIndex keeps up with whose turn it is, until the context ends.
func (p *process) watchIndex(ctx context.Context) error {
	moved, stop := p.waiter.Watch(recallindex.Name)
	defer stop()
	for ctx.Err() == nil {
		p.lookAtIndex(ctx)
		timer := time.NewTimer(indexLook)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// keepIndexWhole fills parts of the index again that lost their documents.
func (p *process) keepIndexWhole(ctx context.Context) error {
	texts := recallindex.Log{Store: p.st.store, Codec: p.st.codec}
	return recallindex.New(p.st.index, texts, domainrecall.NewAnalyzer(), p.log).KeepWhole(ctx, p.st.work)
}

func (p *process) lookAtIndex(ctx context.Context) {
	turn, active := p.runtime.Active(recallindex.Name)
	if active && turn == p.index.whole.Load() {
		return
	}
	if !active {
		p.index.stopped.Store(p.runtime.StoppedHere(ctx, recallindex.Name))
		return
	}
	if p.stopped(ctx, recallindex.Name) { // it repeats a page
		p.index.stopped.Store(true)
		return
	}
	head, err := p.st.store.Head(ctx)
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, indexCatchUp)
		defer cancel()
		err = p.waiter.Wait(limited, head, recallindex.Name)
	}
	// A turn that was lost meanwhile is no longer the one that Active names.
	if err == nil {
		p.index.whole.Store(turn)
		p.index.stopped.Store(false)
	}
}

// awaitIndex waits a moment for the index of this process, or until it is known that another process feeds its own. Recall is
// refused until the index is whole; everything else is served.
func (p *process) awaitIndex(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, p.indexGrace)
	defer cancel()
	switch {
	case p.standsBy(limited):
		p.log.InfoContext(ctx, "another process feeds its index: this one answers no recall until it takes over")
	case limited.Err() != nil && ctx.Err() == nil:
		p.log.WarnContext(ctx, "recall index is not whole yet, recall is refused until it is")
	}
}

// standsBy reports whether another process feeds its index, and lives: where the log is embedded there is none. It looks until that
// is known, or the index of this process answers.
func (p *process) standsBy(ctx context.Context) bool {
	var first projections.Turn
	for ctx.Err() == nil && !p.index.answers() {
		var turn projections.Turn
		var err error
		_, active := p.runtime.Active(recallindex.Name)
		if !active && p.settings.EventStore != Embedded {
			turn, err = p.runtime.TurnOf(ctx, recallindex.Name)
		}
		switch {
		case err != nil, active, p.settings.EventStore == Embedded:
			first = projections.Turn{}
		case turn.Epoch != first.Epoch || first.Epoch == 0:
			first = turn
		case turn.Until.After(first.Until):
			return true
		}
		sleep(ctx, startLook)
	}
	return false
}

// ownIndex answers recall where this process feeds its index, and refuses it where another does.
type ownIndex struct {
	index  *index
	recall *recall.Service
}

func (o ownIndex) Recall(ctx context.Context, q recall.Query) (recall.Page, error) {
	if reason := o.index.elsewhere(); reason != "" {
		return recall.Page{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", reason)
	}
	return o.recall.Recall(ctx, q)
}
