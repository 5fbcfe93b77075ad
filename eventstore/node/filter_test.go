package node

import (
	"fmt"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

type filterOptions = streams.ReadReq_Options_FilterOptions

func expression(regex string, prefixes ...string) *streams.ReadReq_Options_FilterOptions_Expression {
	return &streams.ReadReq_Options_FilterOptions_Expression{Regex: regex, Prefix: prefixes}
}

func byStream(e *streams.ReadReq_Options_FilterOptions_Expression) *filterOptions {
	return &filterOptions{
		Filter:                       &streams.ReadReq_Options_FilterOptions_StreamIdentifier{StreamIdentifier: e},
		CheckpointIntervalMultiplier: 1,
	}
}

func byType(e *streams.ReadReq_Options_FilterOptions_Expression) *filterOptions {
	return &filterOptions{
		Filter:                       &streams.ReadReq_Options_FilterOptions_EventType{EventType: e},
		CheckpointIntervalMultiplier: 1,
	}
}

func every(o *filterOptions, events uint32) *filterOptions {
	o.Window = &streams.ReadReq_Options_FilterOptions_Max{Max: events}
	return o
}

func filtered(o *readOptions, f *filterOptions) *readOptions {
	o.FilterOption = &streams.ReadReq_Options_Filter{Filter: f}
	return o
}

func streamsOf(events []recordedEvent) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s/%s", e.stream, e.typ))
	}
	return out
}

func TestReadAll_Filtered(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	for _, place := range [][2]string{{"a-1", "opened"}, {"b-1", "opened"}, {"a-2", "closed"}, {"ab-1", "reopened"}} {
		c.append(place[0], none, event{id: uuid.New(), typ: place[1], data: "{}"})
	}
	tests := []struct {
		name   string
		filter *filterOptions
		want   []string
	}{
		{"a prefix of the stream", byStream(expression("", "a-")), []string{"a-1/opened", "a-2/closed"}},
		{"any of several prefixes", byStream(expression("", "b", "ab")), []string{"b-1/opened", "ab-1/reopened"}},
		{"a prefix of the type", byType(expression("", "open")), []string{"a-1/opened", "b-1/opened"}},
		{"an expression anywhere in the type", byType(expression("open")), []string{"a-1/opened", "b-1/opened", "ab-1/reopened"}},
		{"an expression for the stream", byStream(expression("^a.?-1$")), []string{"a-1/opened", "ab-1/reopened"}},
		{"nothing", byStream(expression("", "z")), []string{}},
		{
			"looking ahead, as clients exclude system events", byType(expression(`^(?!(\$.+$|reopened$))`)),
			[]string{"a-1/opened", "b-1/opened", "a-2/closed"},
		},
		{"looking behind", byStream(expression(`(?<=b)-1`)), []string{"b-1/opened", "ab-1/reopened"}},
		{
			"the same text again", byType(expression(`(.)ne.$|(o)p\S*?n`)),
			[]string{"a-1/opened", "b-1/opened", "ab-1/reopened"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, streamsOf(c.read(filtered(ofAll(), tt.filter)))); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := streamsOf(c.read(limited(filtered(backwards(atEnd(ofAll())), byStream(expression("", "a-"))), 1))); cmp.Diff(
		[]string{"a-2/closed"}, got,
	) != "" {
		t.Errorf("the last one backwards: %v", got)
	}
	for name, o := range map[string]*readOptions{
		"no expression":              filtered(ofAll(), byStream(expression(""))),
		"an expression that is none": filtered(ofAll(), byStream(expression("("))), "no kind": filtered(ofAll(), &filterOptions{CheckpointIntervalMultiplier: 1}),
		"a stream": filtered(ofStream("a-1"), byStream(expression("", "a"))),
	} {
		if _, _, _, err := c.tryRead(o); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The log of a node for other clients begins with an event of the node itself, since a client
// without a filter waits for a first event.
func TestSystemStream_FirstEvent(t *testing.T) {
	cfg := memoryConfig()
	cfg.SystemStream = true
	for range 2 {
		n := startNode(t, cfg)
		c := dial(t, n)
		s := c.subscribe(ofAll())
		if got := s.event(); got.typ != storage.MetadataType || got.stream != "$$$scavenges" || got.position != 1 {
			t.Errorf("the log begins with %+v", got)
		}
		s.caughtUp()
		if got := c.read(filtered(ofAll(), byType(expression(`^(?!(\$.+$))`)))); len(got) != 0 {
			t.Errorf("without system events: %v", got)
		}
		runtest.Must(t, n.Scavenge(runtest.Context(t)))
		runtest.Must(t, n.Close())
	}
	cfg = Config{Dir: "log", FS: fullDisk{vfs.NewMem()}, SystemStream: true}
	c := dial(t, startNode(t, cfg))
	if got := c.read(ofAll()); len(got) != 0 {
		t.Errorf("on a full disk: %v", got)
	}
}

// fullDisk reports that no space is left.
type fullDisk struct{ vfs.FS }

func (fullDisk) GetDiskUsage(string) (vfs.DiskUsage, error) { return vfs.DiskUsage{}, nil }

// A filtered subscriber receives checkpoints: every so many events, and before it is live. A
// checkpoint never names a position that was not reached, and no position is sent twice.
func TestFilteredSubscription_Checkpoints(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	write := func(names ...string) (position uint64) {
		for _, name := range names {
			_, position = c.append(name, anyRevision, newEvents(1)...)
		}
		return position
	}
	write("a", "x", "x", "a", "x", "x", "x", "a") // positions 1 to 8
	s := c.subscribe(filtered(ofAll(), every(byStream(expression("", "a")), 3)))
	got := func(n int) []string {
		var out []string
		for range n {
			resp := s.next()
			switch content := resp.GetContent().(type) {
			case *streams.ReadResp_Event:
				out = append(out, fmt.Sprint("event ", recordedOf(t, resp).position))
			case *streams.ReadResp_Checkpoint_:
				if content.Checkpoint.GetCommitPosition() != content.Checkpoint.GetPreparePosition() {
					t.Errorf("checkpoint %v", content.Checkpoint)
				}
				out = append(out, fmt.Sprint("checkpoint ", content.Checkpoint.GetCommitPosition()))
			case *streams.ReadResp_CaughtUp_:
				out = append(out, "caught up")
			default:
				t.Fatalf("got %v", resp)
			}
		}
		return out
	}
	want := []string{"event 1", "checkpoint 3", "event 4", "checkpoint 6", "event 8", "checkpoint 8", "caught up"}
	if diff := cmp.Diff(want, got(len(want))); diff != "" {
		t.Error(diff)
	}
	write("x", "a", "x", "x", "x", "x", "a") // positions 9 to 15
	want = []string{"event 10", "checkpoint 11", "checkpoint 14", "event 15"}
	if diff := cmp.Diff(want, got(len(want))); diff != "" {
		t.Error(diff)
	}
	s = c.subscribe(filtered(from(ofAll(), 15), byStream(expression("", "a"))))
	if diff := cmp.Diff([]string{"caught up"}, got(1)); diff != "" {
		t.Errorf("nothing considered: %s", diff)
	}
}

func textual(o *readOptions) *readOptions {
	o.UuidOption = &streams.ReadReq_Options_UUIDOption{
		Content: &streams.ReadReq_Options_UUIDOption_String_{String_: &shared.Empty{}},
	}
	return o
}

// A client that requests ids as text gets them as text, in reads and subscriptions. Nothing else
// differs.
func TestTextIDs(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	sent := newEvent(`{"a":1}`)
	sent.meta = "m"
	_, position := c.append("s", none, sent)
	call, err := c.Read(runtest.Context(t), readOf(textual(ofStream("s"))))
	if err != nil {
		t.Fatal(err)
	}
	read, err := call.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s := c.subscribe(textual(ofAll()))
	for _, resp := range []*streams.ReadResp{read, s.next()} {
		if got := resp.GetEvent().GetEvent().GetId().GetString_(); got != sent.id.String() {
			t.Errorf("id %q", got)
		}
		want := recordedEvent{stream: "s", position: position, id: sent.id, typ: sent.typ, data: sent.data, meta: sent.meta}
		if diff := cmp.Diff(want, recordedOf(t, resp), cmp.AllowUnexported(recordedEvent{})); diff != "" {
			t.Error(diff)
		}
	}
}

// A link is sent with the event that it refers to, if readers may see that event, and always keeps
// its own position.
func TestLinks_Resolved(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	targets := newEvents(2)
	c.append("s@home", none, targets...)
	c.append("gone", none, newEvents(1)...)
	c.append("$$cut", none, metadataEvent(`{"$tb":1}`))
	c.append("cut", none, newEvents(2)...)
	var links []event
	for _, place := range []string{"1@s@home", "0@gone", "0@cut", "1@cut", "7@s@home", "-1@s@home", "x@s@home", "1"} {
		links = append(links, event{id: uuid.New(), typ: linkType, data: place, raw: true})
	}
	c.append("links", none, links...)
	c.tombstone("gone", at(0))

	o := ofStream("links")
	o.ResolveLinks = true
	call, err := c.Read(runtest.Context(t), readOf(o))
	if err != nil {
		t.Fatal(err)
	}
	for i, wantTarget := range []string{"s@home", "", "", "cut", "", "", "", ""} {
		resp, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		e := resp.GetEvent()
		if string(e.GetEvent().GetStreamIdentifier().GetStreamName()) != wantTarget {
			t.Errorf("link %s: resolved to %v", links[i].data, e.GetEvent())
		}
		if string(e.GetLink().GetStreamIdentifier().GetStreamName()) != "links" ||
			e.GetLink().GetStreamRevision() != uint64(i) ||
			e.GetCommitPosition() != e.GetLink().GetCommitPosition() {
			t.Errorf("link %s: its own place is %v", links[i].data, e.GetLink())
		}
	}
	if got := c.read(ofStream("links")); len(got) != len(links) || got[0].typ != linkType {
		t.Errorf("unresolved: %v", got)
	}
}

// The name of a stream may be any bytes, and clients can still decode answers that name it.
func TestNames_AnyBytes(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	name := "käse\n\x00 1"
	c.append(name, none, newEvents(1)...)
	if got := c.read(ofStream(name)); len(got) != 1 || got[0].stream != name {
		t.Errorf("got %v", got)
	}
	c.tombstone(name, at(0))
	_, _, trailer, err := c.tryRead(ofStream(name))
	if status.Code(err) != codes.FailedPrecondition || len(trailer.Get("stream-name")) != 1 {
		t.Errorf("got %v, %v", err, trailer)
	}
}
