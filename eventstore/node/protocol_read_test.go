package node

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// TestProtocol_FilterWithoutCheckpointInterval: a filtered read of the whole log is served with a checkpoint interval
// of 0. A subscription is refused: the real server ends the call with Unknown, the node with InvalidArgument.
func TestProtocol_FilterWithoutCheckpointInterval(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	stream := unused("filtered")
	c.append(stream, none, newEvents(3)...)
	uncheckpointed := func() *filterOptions {
		f := every(byStream(expression("", stream)), 500)
		f.CheckpointIntervalMultiplier = 0
		return f
	}
	for _, tt := range []struct {
		name string
		read *readOptions
		want []uint64
	}{
		{"forwards", filtered(ofAll(), uncheckpointed()), []uint64{0, 1, 2}},
		{"backwards", filtered(backwards(atEnd(ofAll())), uncheckpointed()), []uint64{2, 1, 0}},
		{"limited", limited(filtered(ofAll(), uncheckpointed()), 2), []uint64{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, revisions(c.read(tt.read))); diff != "" {
				t.Error(diff)
			}
		})
	}
	call, err := c.Read(runtest.Context(t), readOf(subscribed(filtered(ofAll(), uncheckpointed()))))
	for err == nil {
		_, err = call.Recv()
	}
	want := codes.Unknown
	if s.own != nil {
		want = codes.InvalidArgument
	}
	if status.Code(err) != want {
		t.Errorf("subscription: %v, want %v", err, want)
	}
}

// compatible requests the answers of a version of the protocol: from 1 on, where a stream begins and ends.
func compatible(o *readOptions, version uint32) *readOptions {
	o.ControlOption = &streams.ReadReq_Options_ControlOption{Compatibility: version}
	return o
}

// contents lists what a read brought, in short: the revision of an event, and the positions.
func (c client) contents(o *readOptions) (all []string) {
	c.t.Helper()
	call, err := c.Read(runtest.Context(c.t), readOf(o))
	for err == nil {
		var resp *streams.ReadResp
		if resp, err = call.Recv(); err != nil {
			break
		}
		switch content := resp.GetContent().(type) {
		case *streams.ReadResp_Event:
			all = append(all, fmt.Sprint(content.Event.GetEvent().GetStreamRevision()))
		case *streams.ReadResp_FirstStreamPosition:
			all = append(all, fmt.Sprint("first ", content.FirstStreamPosition))
		case *streams.ReadResp_LastStreamPosition:
			all = append(all, fmt.Sprint("last ", content.LastStreamPosition))
		default:
			all = append(all, fmt.Sprintf("%T", content))
		}
	}
	if !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
	return all
}

// TestProtocol_StreamPositions: a client that requests compatibility 1 receives the last revision of a stream after its
// events. Forwards, it also receives where the events begin if the first page of the read held none: a server reads
// pages of 32 events, or of the count if that is smaller.
func TestProtocol_StreamPositions(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := func(metadata string, events int) string {
		name := unused("positions")
		c.append(name, none, newEvents(events)...)
		if metadata != "" {
			c.append("$$"+name, none, metadataEvent(metadata))
		}
		return name
	}
	whole, cut, far := stream("", 5), stream(`{"$tb":3}`, 5), stream(`{"$tb":40}`, 42)
	newest, hidden := stream(`{"$maxCount":2}`, 5), stream(`{"$tb":5}`, 5)
	gone := stream("", 2)
	c.delete(gone, anyRevision)
	notFound := "*streams.ReadResp_StreamNotFound_"
	for _, tt := range []struct {
		name string
		read *readOptions
		want []string
	}{
		{"all", ofStream(whole), []string{"0", "1", "2", "3", "4", "last 4"}},
		{"limited", limited(ofStream(whole), 2), []string{"0", "1", "last 4"}},
		{"the last one", from(ofStream(whole), 4), []string{"4", "last 4"}},
		{"next to the end", from(ofStream(whole), 5), []string{"last 4"}},
		{"after the end", from(ofStream(whole), 9), []string{"first 5", "last 4"}},
		{"far after the end", from(ofStream(whole), 1000), []string{"first 5", "last 4"}},
		{"backwards", backwards(atEnd(ofStream(whole))), []string{"4", "3", "2", "1", "0", "last 4"}},
		{"backwards, limited", limited(backwards(from(ofStream(whole), 2)), 2), []string{"2", "1", "last 4"}},
		{"backwards from the start", backwards(ofStream(whole)), []string{"0", "last 4"}},
		{"backwards from after the end", limited(backwards(from(ofStream(whole), 5)), 2), []string{"4", "3", "last 4"}},
		{"truncated in the first page", ofStream(cut), []string{"3", "4", "last 4"}},
		{"truncated, the count is the page", limited(ofStream(cut), 3), []string{"first 3", "3", "4", "last 4"}},
		{"truncated, with one event in the page", limited(ofStream(cut), 4), []string{"3", "4", "last 4"}},
		{"truncated, from the first event", limited(from(ofStream(cut), 3), 1), []string{"3", "last 4"}},
		{"truncated after the first page", ofStream(far), []string{"first 40", "40", "41", "last 41"}},
		{"truncated, from a page before", from(ofStream(far), 8), []string{"first 40", "40", "41", "last 41"}},
		{"truncated, within a page", from(ofStream(far), 9), []string{"40", "41", "last 41"}},
		{"truncated, backwards", backwards(atEnd(ofStream(far))), []string{"41", "40", "last 41"}},
		{"the newest two", ofStream(newest), []string{"3", "4", "last 4"}},
		{"the newest two, limited", limited(ofStream(newest), 1), []string{"first 3", "3", "last 4"}},
		{"all truncated", ofStream(hidden), []string{"first 5", "last 4"}},
		{"all truncated, limited", limited(ofStream(hidden), 1), []string{"first 5", "last 4"}},
		{"all truncated, backwards", backwards(atEnd(ofStream(hidden))), []string{"last 4"}},
		{"missing", ofStream(unused("missing")), []string{notFound}},
		{"deleted", ofStream(gone), []string{notFound}},
		{"the metadata", ofStream("$$" + cut), []string{"0", "last 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, c.contents(compatible(tt.read, 1))); diff != "" {
				t.Error(diff)
			}
			for _, content := range c.contents(compatible(tt.read, 0)) { // as clients who would not know the message
				if content[0] == 'f' || content[0] == 'l' {
					t.Errorf("without compatibility: %s", content)
				}
			}
		})
	}
	whileAll := limited(filtered(ofAll(), every(byStream(expression("", whole)), 500)), 1)
	if diff := cmp.Diff([]string{"0"}, c.contents(compatible(whileAll, 1))); diff != "" {
		t.Errorf("the whole log: %s", diff)
	}
}

// TestProtocol_RefusedReads: a stream cannot be read without a count, and forwards not from its end. The real server
// ends such a call with Unknown and "Unexpected ReadStreamResult: Error", the node with InvalidArgument and the reason;
// so too a revision or a position that no event can have, at which the handler of the real server throws.
func TestProtocol_RefusedReads(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	stream := unused("refused")
	c.append(stream, none, newEvents(2)...)
	apart := ofAll()
	apart.GetAll().AllOption = &streams.ReadReq_Options_AllOptions_Position{
		Position: &streams.ReadReq_Options_Position{CommitPosition: 1, PreparePosition: 2},
	}
	want := codes.Unknown
	if s.own != nil {
		want = codes.InvalidArgument
	}
	for name, o := range map[string]*readOptions{
		"no count":                     limited(ofStream(stream), 0),
		"no count, backwards":          limited(backwards(atEnd(ofStream(stream))), 0),
		"no count, a missing stream":   limited(ofStream(unused("missing")), 0),
		"from the end":                 atEnd(ofStream(stream)),
		"from the revision of the end": from(ofStream(stream), math.MaxUint64),
		"an impossible revision":       from(ofStream(stream), 1<<63),
		"the greatest impossible one":  backwards(from(ofStream(stream), math.MaxUint64-1)),
		"a subscription from it":       subscribed(from(ofStream(stream), math.MaxUint64-1)),
		"prepared after the commit":    limited(apart, 1),
	} {
		if events, _, _, err := c.tryRead(o); status.Code(err) != want || len(events) > 0 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
	if diff := cmp.Diff([]uint64{1, 0}, revisions(c.read(backwards(from(ofStream(stream), math.MaxUint64))))); diff != "" {
		t.Errorf("backwards from the revision of the end: %s", diff)
	}
}

// TestProtocol_SubscriptionFromEnd: the revision 2^64-1 is the end of a stream for a subscription too.
func TestProtocol_SubscriptionFromEnd(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("followed")
	c.append(stream, none, newEvents(2)...)
	s := c.subscribe(from(ofStream(stream), math.MaxUint64))
	s.caughtUp()
	c.append(stream, at(1), newEvents(1)...)
	if got := s.event(); got.revision != 2 {
		t.Errorf("received revision %d", got.revision)
	}
}

// TestProtocol_WholeLogFromAfterEnd: a read of the whole log forwards from its end or from after it is empty.
func TestProtocol_WholeLogFromAfterEnd(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	c.append(unused("newest"), none, newEvents(1)...)
	for name, o := range map[string]*readOptions{
		"the end": atEnd(ofAll()), "after it": from(ofAll(), math.MaxInt64), "the greatest": from(ofAll(), math.MaxUint64),
	} {
		if got := c.read(limited(o, 5)); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
