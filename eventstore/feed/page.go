package feed

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
)

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
