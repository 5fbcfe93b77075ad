package feed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/annals-project/annals/eventstore"
)

// The bounds of what is kept of the pages that were read from the log, for topics that are behind by about as much as others.
const (
	keptPages = 16
	keptBytes = 4 * PageBytes
)

// pages reads the log for the topics that are behind. After a start, or while everything is rebuilt, they are so together: then
// each page is read and decoded once for all who come to it within a while.
type pages struct {
	store eventstore.Store
	codec *eventstore.Codec
	log   *slog.Logger
	// ctx ends with the last topic.
	ctx     context.Context
	running *sync.WaitGroup

	mu sync.Mutex
	// behind is how many topics read from here; at none, nothing is kept.
	behind int
	kept   []*reading
}

// reading is a page that is being read, or was.
type reading struct {
	after eventstore.Position
	done  chan struct{}
	// Once done is closed:
	facts []eventstore.Fact
	err   error
	// bytes is 0 until then; it is under the lock of the pages.
	bytes int
}

// enter and leave count the topics that are behind.
func (p *pages) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind++
}

func (p *pages) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind--; p.behind == 0 {
		p.kept = nil
	}
}

// read begins to read the page behind a position, or joins who reads it already; fresh says that nobody had begun before.
// The caller is a goroutine that the feed waits for.
func (p *pages) read(after eventstore.Position) (r *reading, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.kept {
		if r.after == after {
			return r, false
		}
	}
	r = &reading{after: after, done: make(chan struct{})}
	p.kept = append(p.kept, r)
	p.running.Add(1)
	go func() {
		defer p.running.Done()
		p.fetch(r)
	}()
	return r, true
}

func (p *pages) fetch(r *reading) {
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	size := 0
	failed := guard(ctx, p.log, func() {
		var events []eventstore.Recorded
		events, r.err = p.store.ReadAll(ctx, r.after, PageEvents)
		facts := make([]eventstore.Fact, len(events))
		for i, e := range events {
			facts[i] = factOf(p.codec, e)
			size += e.Size()
		}
		r.facts = facts
	})
	r.err = errors.Join(r.err, failed)

	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(r.done)
	r.bytes = size
	if len(r.facts) == 0 {
		// The end of the log, or a failure, is worth asking for again.
		p.kept = slices.DeleteFunc(p.kept, func(other *reading) bool { return other == r })
	}
	total := 0
	for _, other := range p.kept {
		total += other.bytes
	}
	// Whoever waits for a page that goes has it all the same.
	for len(p.kept) > keptPages || total > keptBytes && len(p.kept) > 1 {
		total -= p.kept[0].bytes
		p.kept = slices.Delete(p.kept, 0, 1)
	}
}
