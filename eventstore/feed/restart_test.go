package feed_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// restarting is a node that can be restarted over the same log. Clients reach it through a wire
// that knows its address.
type restarting struct {
	*testing.T
	disk  vfs.FS
	node  *node.Node
	wire  *nodetest.Wire
	store eventstore.Store
	codec *eventstore.Codec
}

func newRestarting(t *testing.T) *restarting {
	t.Helper()
	r := &restarting{T: t, disk: vfs.NewMem()}
	r.start()
	r.wire = nodetest.NewWire(t, r.node.Connection().Addr)
	r.store = nodetest.Open(t, esdb.Config{
		ConnectionString: "esdb://" + r.wire.Addr() + "?tls=false&discoveryInterval=5", Connections: 2,
	})
	r.codec = eventstoretest.Codec(t)
	return r
}

func (r *restarting) start() {
	r.Helper()
	r.node = nodetest.Start(r, node.Config{Dir: "log", FS: r.disk, Insecure: true})
}

func (r *restarting) restart() {
	r.Helper()
	if err := r.node.Close(); err != nil {
		r.Fatal(err)
	}
	r.start()
	r.wire.Lead(r.node.Connection().Addr)
}

// append stores n events one by one after a revision, whatever happens to the server meanwhile.
func (r *restarting) append(ctx context.Context, name string, at eventstore.Revision, n int) eventstore.Revision {
	r.Helper()
	for range n {
		done, err := eventstore.AppendUntilKnown(ctx, r.store, name, at, []eventstore.Proposed{accepted(r, r.codec)})
		if err != nil {
			r.Fatal(err)
		}
		at = done.Revision
	}
	return at
}

// TestTopics_ServerRestarts has topics at the head of the log, and topics that begin
// before it, while the server stops and starts.
func TestTopics_ServerRestarts(t *testing.T) {
	const restarts, each = 5, 40
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangLimit)
	defer cancel()
	r := newRestarting(t)
	f := feed.New(r.store, r.codec, noCheckpoint, quiet())
	built := make([]reader, restarts+1)
	var reading sync.WaitGroup
	begin := func(i int) {
		messages, err := f.Subscribe(ctx, string(rune('a'+i)))
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			for msg := range messages {
				page, _ := feed.PageOf(msg)
				if err := built[i].apply(page); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
				msg.Ack()
				if len(built[i].ids) >= restarts*each {
					return
				}
			}
		})
	}
	begin(0)
	name, at := "project-"+uuid.NewString(), eventstore.NoStream
	for i := range restarts {
		at = r.append(ctx, name, at, each)
		begin(i + 1)
		r.restart()
	}
	reading.Wait()
	if ctx.Err() != nil {
		t.Errorf("the topics did not get to the end within %s", 2*hangLimit)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for i, b := range built {
		if len(b.ids) != restarts*each || !slices.Equal(b.ids, built[0].ids) {
			t.Errorf("topic %d built %d events of %d, or in another order", i, len(b.ids), restarts*each)
		}
	}
}

// TestPage_OutlivesConnection holds a page while its connection is lost and more
// events are stored. The page stays the same, and the next one begins after it.
func TestPage_OutlivesConnection(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	r := newRestarting(t)
	name := "project-" + uuid.NewString()
	at := r.append(ctx, name, eventstore.NoStream, 3)
	f := feed.New(r.store, r.codec, noCheckpoint, quiet())
	messages, err := f.Subscribe(ctx, "access")
	if err != nil {
		t.Fatal(err)
	}
	var built reader
	for _, cut := range []func(){r.wire.Cut, r.restart, r.wire.Cut} {
		want := len(built.ids)
		held, page := take(ctx, t, messages)
		before := slices.Clone(page.Events)
		cut()
		at = r.append(ctx, name, at, 3)
		if held.Context().Err() != nil {
			t.Error("the message ended with the connection")
		}
		if !slices.EqualFunc(before, page.Events, func(a, b eventstore.DecodedEvent) bool { return a.ID == b.ID }) {
			t.Error("the page changed while it was held")
		}
		held.Nack() // it could not be applied: the same page comes again
		again, same := take(ctx, t, messages)
		if same.After != page.After || same.Next != page.Next {
			t.Errorf("page after %d up to %d came again after %d up to %d", page.After, page.Next, same.After, same.Next)
		}
		if err := built.apply(page); err != nil {
			t.Error(err)
		}
		again.Ack()
		if len(built.ids) <= want {
			t.Errorf("%d events after %d", len(built.ids), want)
		}
	}
	for len(built.ids) < 12 {
		msg, page := take(ctx, t, messages)
		if err := built.apply(page); err != nil {
			t.Fatal(err)
		}
		msg.Ack()
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if stored := readWhole(ctx, t, r.store, name); len(stored) != 12 {
		t.Errorf("%d events are stored, want 12", len(stored))
	}
}
