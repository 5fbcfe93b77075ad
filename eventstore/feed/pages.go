package feed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
)

// The bounds of the cache of pages that were read from the log.
const (
	cachedPages = 16
	cachedBytes = 4 * PageBytes
)

// pages reads the log for the topics that lag. After a start, or during a rebuild, many lag by the
// same amount: then each page is read and decoded once for all of them.
type pages struct {
	store  eventstore.Store
	codec  *eventstore.Codec
	logger *slog.Logger
	// ctx ends with the last topic.
	ctx     context.Context
	running *sync.WaitGroup

	mu sync.Mutex
	// readers is how many topics read from here; at 0 the cache is emptied.
	readers int
	cached  []*pageRead
}

// pageRead is a page that is being read, or was read.
type pageRead struct {
	after eventstore.Position
	done  chan struct{}
	// Once done is closed:
	events []eventstore.DecodedEvent
	err    error
	// bytes is 0 until then; the lock of the pages guards it.
	bytes int
}

// enter and leave count the topics that lag.
func (p *pages) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers++
}

func (p *pages) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers--; p.readers == 0 {
		p.cached = nil
	}
}

// read starts to read the page after a position, or joins a read in progress; fresh reports that it
// started one. The caller is a goroutine that the feed waits for.
func (p *pages) read(after eventstore.Position) (r *pageRead, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.cached {
		if r.after == after {
			return r, false
		}
	}
	r = &pageRead{after: after, done: make(chan struct{})}
	p.cached = append(p.cached, r)
	p.running.Go(func() { p.fetch(r) })
	return r, true
}

func (p *pages) fetch(r *pageRead) {
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	size := 0
	failed := recoverPanic(ctx, p.logger, func() {
		var events []eventstore.Recorded
		events, r.err = p.store.ReadAll(ctx, r.after, PageEvents)
		decoded := make([]eventstore.DecodedEvent, len(events))
		for i, e := range events {
			decoded[i] = Decode(p.codec, e)
			size += e.Size()
		}
		r.events = decoded
	})
	r.err = errors.Join(r.err, failed)

	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(r.done)
	r.bytes = size
	if len(r.events) == 0 {
		// Do not cache the end of the log or a failure.
		p.cached = slices.DeleteFunc(p.cached, func(other *pageRead) bool { return other == r })
	}
	total := 0
	for _, other := range p.cached {
		total += other.bytes
	}
	// A topic that waits for a dropped page still receives it.
	for len(p.cached) > cachedPages || total > cachedBytes && len(p.cached) > 1 {
		total -= p.cached[0].bytes
		p.cached = slices.Delete(p.cached, 0, 1)
	}
}

// The bounds of a page. One event may pass PageBytes by itself. Extend gives a topic more events.
const (
	PageEvents = 512
	PageBytes  = eventstore.MaxPage
)

// Page is the content of a message: everything after After up to Next, at least one event. Topics
// share the events: do not change them.
type Page struct {
	// After is the Next of the page before, or the checkpoint at which the topic began.
	After eventstore.Position
	// Next is the position of the last event.
	Next eventstore.Position
	// Events are all events in between. Events of the store itself are included, since they move
	// Next as well: as events of the stream SystemStream, without an Err. Event is an eventstore.Tombstoned for a
	// tombstone, an eventstore.MetadataWritten for metadata of a stream of ours, else nil.
	Events []eventstore.DecodedEvent
	// AtHead is true if no newer event was known when the page was made.
	AtHead bool
}

// SystemStream replaces the stream of the store's own events.
const SystemStream = eventstore.SystemStream

// Decode decodes an event as pages hold it.
func Decode(codec *eventstore.Codec, r eventstore.Recorded) eventstore.DecodedEvent {
	if r.System() {
		f := eventstore.DecodedEvent{}
		if r.Type == eventstore.TombstoneType {
			f.Event = &eventstore.Tombstoned{Stream: r.Stream}
		}
		if written, ok := eventstore.MetadataOf(r); ok {
			f.Event = written
		}
		r.Stream, r.Data, r.Meta = SystemStream, nil, nil
		f.Recorded = r
		return f
	}
	return codec.DecodeRecorded(r)
}

// delivery is a page that a handler received.
type delivery struct {
	page   Page
	rewind atomic.Bool
}

type deliveryKey struct{}

func deliveryOf(msg *message.Message) (*delivery, bool) {
	d, ok := msg.Context().Value(deliveryKey{}).(*delivery)
	return d, ok
}

// PageOf returns the page of a message; ok is false for a message of another subscriber.
func PageOf(msg *message.Message) (Page, bool) {
	d, ok := deliveryOf(msg)
	if !ok {
		return Page{}, false
	}
	return d.page, true
}

// Rewind makes the following Nack read the checkpoint of the topic again and continue from there,
// in place of delivering the same page: for a handler whose checkpoint is not the one that the page
// follows.
func Rewind(msg *message.Message) {
	if d, ok := deliveryOf(msg); ok {
		d.rewind.Store(true)
	}
}

// messageFor wraps a page. The message ends with the context or with cancel.
func messageFor(ctx context.Context, id string, page Page) (*message.Message, *delivery, context.CancelFunc) {
	d := &delivery{page: page}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, deliveryKey{}, d))
	return message.NewMessageWithContext(ctx, id, nil), d, cancel
}
