package feed

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
)

// The bounds of a page. One event may pass PageBytes by itself.
const (
	PageEvents = 512
	PageBytes  = eventstore.MaxPage
)

// Page is what a message carries: all that happened behind After up to Next, at least one fact. Topics share the facts: nobody changes them.
type Page struct {
	// After is the Next of the page before, or the checkpoint that the topic began at.
	After eventstore.Position
	// Next is the position of the last fact.
	Next eventstore.Position
	// Facts are everything that lies between. An event of the store's own is among them, as it moves Next like any other: as a
	// fact of the stream SystemStream, without an Err; of a tombstone the Event is an eventstore.Ended, else there is none.
	Facts []eventstore.Fact
	// AtHead says that nothing newer was known when the page was made.
	AtHead bool
}

// SystemStream is in place of the stream of every event of the store's own.
const SystemStream = eventstore.SystemStream

// factOf decodes an event for a page.
func factOf(codec *eventstore.Codec, r eventstore.Recorded) eventstore.Fact {
	if r.System() {
		f := eventstore.Fact{}
		if r.Type == eventstore.TombstoneType {
			f.Event = &eventstore.Ended{Stream: r.Stream}
		}
		r.Stream, r.Data, r.Meta = SystemStream, nil, nil
		f.Recorded = r
		return f
	}
	return codec.Fact(r)
}

// delivery is a page in the hands of a handler.
type delivery struct {
	page   Page
	rewind atomic.Bool
}

type deliveryKey struct{}

func deliveryOf(msg *message.Message) (*delivery, bool) {
	d, ok := msg.Context().Value(deliveryKey{}).(*delivery)
	return d, ok
}

// PageOf is the page of a message; ok is false for a message of another subscriber.
func PageOf(msg *message.Message) (Page, bool) {
	d, ok := deliveryOf(msg)
	if !ok {
		return Page{}, false
	}
	return d.page, true
}

// Rewind makes the Nack that follows ask for the checkpoint of the topic again and go on from there, in place of handing over the
// same page again: for a handler that finds that its checkpoint is another than the one the page follows.
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
