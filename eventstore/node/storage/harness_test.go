package storage

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// open opens a log and closes it at the end of the test.
func open(t runtest.T, cfg Config) *Engine {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = runtest.Logger(t)
	}
	e, err := Open(cfg)
	runtest.Must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// openClient is open with a client.
func openClient(t runtest.T, cfg Config) (*Engine, client) {
	t.Helper()
	e := open(t, cfg)
	return e, clientOf(t, e)
}

// memoryConfig is a log in memory that removes nothing by itself; a second engine with the same
// configuration opens the same log.
func memoryConfig() Config { return Config{Dir: "log", FS: vfs.NewMem(), ManualScavenge: true} }

// event is an event of a test; each has its own id.
type event struct {
	id        uuid.UUID
	typ, data string
	raw       bool
}

func newEvent(data string) event { return event{id: uuid.New(), typ: "tested", data: data} }

func newEvents(n int) []event {
	out := make([]event, n)
	for i := range out {
		out[i] = newEvent(`{"n":` + uuid.NewString()[:1] + `}`)
	}
	return out
}

func metadataEvent(data string) event { return event{id: uuid.New(), typ: MetadataType, data: data} }

// noise is text that does not compress.
func noise(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(uuid.NewString())
	}
	return b.String()[:size]
}

var (
	anyRevision = Expectation{Kind: ExpectAny}
	existing    = Expectation{Kind: ExpectExists}
	none        = Expectation{Revision: NoStream}
)

func at(revision int64) Expectation { return Expectation{Revision: revision} }

// errTombstoned is the answer to a read or a write of a tombstoned stream.
var errTombstoned = errors.New("the stream is tombstoned")

// client calls an engine as the node does.
type client struct {
	t runtest.T
	e *Engine
}

func clientOf(t runtest.T, e *Engine) client { return client{t, e} }

func (c client) do(ctx context.Context, r *Request) (Decision, error) {
	d, err := c.e.Do(ctx, r)
	if err == nil && d.Verdict == StreamDeleted {
		err = errTombstoned
	}
	return d, err
}

func (c client) tryAppend(ctx context.Context, stream string, expected Expectation, events ...event) (Decision, error) {
	r := &Request{Stream: stream, Expected: expected}
	for _, e := range events {
		r.Events = append(r.Events, Propose(stream, e.id, e.typ, !e.raw, []byte(e.data), nil))
	}
	return c.do(ctx, r)
}

// stored reports whether the events of an append are in the log.
func stored(d Decision) bool { return d.Verdict == Written || d.Verdict == Repeated }

// append makes an append that must succeed, and returns revision and position of its last event.
func (c client) append(stream string, expected Expectation, events ...event) (revision, position uint64) {
	c.t.Helper()
	d, err := c.tryAppend(runtest.Context(c.t), stream, expected, events...)
	if err != nil || !stored(d) {
		c.t.Fatalf("append to %s: %+v, %v", stream, d, err)
	}
	return uint64(d.Revision), d.Position
}

func (c client) tryEnd(kind Kind, stream string, expected Expectation) (uint64, error) {
	d, err := c.do(runtest.Context(c.t), &Request{Kind: kind, Stream: stream, Expected: expected})
	if err == nil && d.Verdict == WrongVersion {
		err = errors.New("wrong version")
	}
	return d.Position, err
}

func (c client) tryDelete(stream string, expected Expectation) (uint64, error) {
	return c.tryEnd(KindDelete, stream, expected)
}

func (c client) tryTombstone(stream string, expected Expectation) (uint64, error) {
	return c.tryEnd(KindTombstone, stream, expected)
}

func (c client) delete(stream string, expected Expectation) {
	c.t.Helper()
	_, err := c.tryDelete(stream, expected)
	runtest.Must(c.t, err)
}

func (c client) tombstone(stream string, expected Expectation) uint64 {
	c.t.Helper()
	position, err := c.tryTombstone(stream, expected)
	runtest.Must(c.t, err)
	return position
}

// recordedEvent is an event as a reader sees it.
type recordedEvent struct {
	stream   string
	revision uint64
	position uint64
	id       uuid.UUID
	typ      string
	data     string
}

func recordedOf(t runtest.T, e Entry) recordedEvent {
	t.Helper()
	r, err := ParseRecord(e.Record)
	runtest.Must(t, err)
	if r.Position != e.Position || r.Created.IsZero() {
		t.Fatalf("position %d holds %+v", e.Position, r)
	}
	return recordedEvent{
		stream: string(r.Stream), revision: uint64(r.Revision), position: r.Position,
		id: r.ID, typ: string(r.Type), data: string(r.Data),
	}
}

// readOptions is what to read: a stream, or the whole log if it has no name.
type readOptions struct{ stream string }

func ofAll() readOptions                 { return readOptions{} }
func ofStream(stream string) readOptions { return readOptions{stream} }

// tryRead reads to the end; found is false if the stream does not exist.
func (c client) tryRead(o readOptions) (events []recordedEvent, found bool, err error) {
	from, found := uint64(0), true
	for {
		p, status, err := Page{}, StreamStatus{Exists: true}, error(nil)
		if o.stream == "" {
			p, _, err = c.e.ReadAll(from, false, PageEvents)
		} else {
			p, status, _, err = c.e.ReadStream(o.stream, int64(from), false, PageEvents)
		}
		if err == nil && status.Tombstoned {
			err = errTombstoned
		}
		if err != nil {
			return events, found, err
		}
		found = found && status.Exists
		for _, e := range p.Events {
			events = append(events, recordedOf(c.t, e))
			from = e.Position + 1
			if o.stream != "" {
				from = uint64(e.Revision) + 1
			}
		}
		if p.End {
			return events, found, nil
		}
	}
}

// read reads what must be there.
func (c client) read(o readOptions) []recordedEvent {
	c.t.Helper()
	events, found, err := c.tryRead(o)
	if err != nil || !found {
		c.t.Fatalf("read: found %v, %v", found, err)
	}
	return events
}

// wantCount checks how many events a read returns.
func (c client) wantCount(o readOptions, want int) {
	c.t.Helper()
	if got := len(c.read(o)); got != want {
		c.t.Errorf("a read of %+v returns %d events, want %d", o, got, want)
	}
}

// subscription follows the whole log as the node's subscriptions do.
type subscription struct {
	c     client
	after *uint64
}

// subscribe follows the log after a position; after math.MaxUint64, after its head.
func (c client) subscribe(after uint64) subscription {
	if after == math.MaxUint64 {
		after = c.e.Head()
	}
	return subscription{c, &after}
}

// event waits for the next event.
func (s subscription) event() recordedEvent {
	s.c.t.Helper()
	ctx := runtest.Context(s.c.t)
	for {
		events, changed, evicted := s.c.e.Tail(*s.after, make([]Entry, 0, 1))
		if evicted {
			p, _, err := s.c.e.ReadAll(*s.after+1, false, 1)
			runtest.Must(s.c.t, err)
			events = p.Events
		}
		if len(events) > 0 {
			*s.after = events[0].Position
			return recordedOf(s.c.t, events[0])
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.c.t.Fatal(ctx.Err())
		}
	}
}

func last(events []recordedEvent) recordedEvent {
	if len(events) == 0 {
		return recordedEvent{}
	}
	return events[len(events)-1]
}

func revisions(events []recordedEvent) []uint64 {
	out := make([]uint64, 0, len(events))
	for _, e := range events {
		out = append(out, e.revision)
	}
	return out
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }
