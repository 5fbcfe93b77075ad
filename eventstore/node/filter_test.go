package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

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
			same(t, "streams", tt.want, streamsOf(c.read(filtered(ofAll(), tt.filter))))
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
		c.wantCount(filtered(ofAll(), byType(expression(`^(?!(\$.+$))`))), 0)
		runtest.Must(t, n.Scavenge(runtest.Context(t)))
		runtest.Must(t, n.Close())
	}
	cfg = Config{Dir: "log", FS: fullDisk{vfs.NewMem()}, SystemStream: true}
	c := dial(t, startNode(t, cfg))
	c.wantCount(ofAll(), 0)
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
	same(t, "messages", want, got(len(want)))
	write("x", "a", "x", "x", "x", "x", "a") // positions 9 to 15
	want = []string{"event 10", "checkpoint 11", "checkpoint 14", "event 15"}
	same(t, "messages", want, got(len(want)))
	s = c.subscribe(filtered(from(ofAll(), 15), byStream(expression("", "a"))))
	same(t, "nothing considered", []string{"caught up"}, got(1))
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
	runtest.Must(t, err)
	read, err := call.Recv()
	runtest.Must(t, err)
	s := c.subscribe(textual(ofAll()))
	for _, resp := range []*streams.ReadResp{read, s.next()} {
		if got := resp.GetEvent().GetEvent().GetId().GetString_(); got != sent.id.String() {
			t.Errorf("id %q", got)
		}
		want := recordedEvent{stream: "s", position: position, id: sent.id, typ: sent.typ, data: sent.data, meta: sent.meta}
		same(t, "event", want, recordedOf(t, resp), cmp.AllowUnexported(recordedEvent{}))
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
	runtest.Must(t, err)
	for i, wantTarget := range []string{"s@home", "", "", "cut", "", "", "", ""} {
		resp, err := call.Recv()
		runtest.Must(t, err)
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

// hostileExpression takes practically forever to compare with hostileName.
const hostileExpression = `^(a+)+$`

var hostileName = strings.Repeat("a", 60) + "!"

// An expression that backtracks without end fails the calls of its client, with a clear message,
// and delays nobody else.
func TestFilter_HostileExpression(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append(hostileName, none, newEvents(1)...)
	_, _, _, err := c.tryRead(filtered(ofAll(), byStream(expression(hostileExpression))))
	if status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "simplify it") || strings.Contains(err.Error(), "aaa") {
		t.Errorf("a read: %v", err)
	}
	live := c.subscribe(ofAll())
	if got := live.next().GetEvent(); got == nil {
		t.Fatal("another subscription got no event")
	}
	hostile := c.subscribe(filtered(atEnd(ofAll()), byStream(expression(hostileExpression))))
	if hostile.next().GetCaughtUp() == nil || live.next().GetCaughtUp() == nil {
		t.Fatal("the subscriptions do not catch up")
	}
	c.append(hostileName, at(0), newEvents(1)...)
	wantCode(t, "a live subscription", errorOf(hostile.call.Recv()), codes.InvalidArgument)
	if got := live.next().GetEvent(); got == nil {
		t.Error("another subscription got no live event")
	}
}

// A call that has ended compares nothing more, even if many slow comparisons are left.
func TestFilter_EndsWithItsCall(t *testing.T) {
	e, err := newPattern("a")
	runtest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.matches(ctx, []byte("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Compiling any expression, and matching with it, takes little time and memory or is refused.
func TestPattern_Bounds(t *testing.T) {
	// A stack that doubles until the time limit allocates some 350 MiB in all, more on a faster
	// machine.
	const most = 2 << 30
	for name, text := range map[string]string{
		"nothing many times":    `(?:){2147483647}`,
		"looking many times":    `(?:(?=a)){2000000000}`,
		"perhaps many times":    `(?:a?){2147483647}b`,
		"loops in loops":        `((a*)*)*b`,
		"counts in counts":      `((((((a?){300}){300}){300}){300}){300})`,
		"either of the same":    `(a|aa)+$`,
		"what it names itself":  `(?<n>a|b\k<n>)+$`,
		"as deep as it can be":  strings.Repeat("(", maxExpression/3) + strings.Repeat(")*", maxExpression/3),
		"a class of everything": strings.Repeat(`[\w\W]`, maxExpression/6),
		"many choices":          strings.Repeat("a|", maxExpression/2-1) + "b",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e, err := newPattern(text)
			runtest.Must(t, err)
			if _, err := e.matches(t.Context(), []byte(hostileName)); err != nil && status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v", err)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				t.Errorf("took %d MiB", used>>20)
			}
		})
	}
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, event{id: uuid.New(), typ: "opened", data: "{}"})
	for name, tt := range map[string]struct{ text, want string }{
		"too long":       {strings.Repeat("a", maxExpression+1), "16385 bytes: at most 16384"},
		"none":           {`(`, "missing closing )"},
		"none, and long": {strings.Repeat("a", maxExpression-1) + "(", "missing closing )"},
		"unknown name":   {`\k<n>`, "not understood"},
		"a wrong count":  {`a{2,1}`, "not understood"},
	} {
		_, _, _, err := c.tryRead(filtered(ofAll(), byType(expression(tt.text))))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A panic inside the engine fails only the call.
func TestPattern_Panic(t *testing.T) {
	err := recovered(func() error { panic("index out of range") })
	if err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("got %v", err)
	}
	e := &pattern{limit: time.Second} // without an engine: any match of it panics
	_, err = e.matches(t.Context(), []byte("a"))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "another way") {
		t.Errorf("got %v", err)
	}
}

// FuzzPattern looks for an expression that crashes the process or never ends.
func FuzzPattern(f *testing.F) {
	for _, text := range []string{
		hostileExpression, `^(?!(\$.+$))`, `(?<=a)b|\k<1>`, `[a-z-[aeiou]]`, `(?i)\p{L}{2,}?`, `(?(a)b|c)`, `(?>a*)b`,
	} {
		f.Add(text, "account-1")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		e, err := newPattern(text)
		if err == nil {
			_, err = e.matches(context.Background(), []byte(name))
		}
		if err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", text, err)
		}
	})
}
