package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// hidingMeta is metadata of a client that hides a stream, with keys of all kinds. %s is the value of $tb.
const hidingMeta = `{"first":{"b":1,"a":[null,true]},"$maxCount":3,"$tb":%s,"$acl":{"$r":["$all"]},` +
	`"big":123456789012345678901234567890,"price":1.5}`

// hidden is the value of $tb that hides a stream.
const hidden = "9223372036854775807"

func metaWithCut(cut any) string {
	return strings.Replace(hidingMeta, "%s", fmt.Sprint(cut), 1)
}

// checkMeta compares the metadata of a stream with JSON, and returns its event.
func (c client) checkMeta(t *testing.T, stream, want string) recordedEvent {
	t.Helper()
	got := c.read(ofStream("$$" + stream))
	if len(got) != 1 {
		t.Fatalf("the metadata is %v", got)
	}
	if diff := cmp.Diff(fieldsOf(t, want), fieldsOf(t, got[0].data)); diff != "" {
		t.Errorf("metadata %s: %s", got[0].data, diff)
	}
	return got[0]
}

// fieldsOf decodes JSON with its numbers as they are written.
func fieldsOf(t *testing.T, text string) (fields map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	runtest.Must(t, d.Decode(&fields))
	return fields
}

// TestProtocol_WrittenWhileHidden: an append to a stream that its metadata hides keeps that metadata and sets $tb to
// the first revision of the append. In the log the metadata follows the events, and the answer is about the events.
func TestProtocol_WrittenWhileHidden(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	b := c.batchAppend()
	appended := func(stream string, expected storage.Expectation, events ...event) (uint64, uint64) {
		return c.append(stream, expected, events...)
	}
	batched := func(stream string, expected storage.Expectation, events ...event) (uint64, uint64) {
		s := b.one(part(stream, expected, events...)).GetSuccess()
		return s.GetCurrentRevision(), s.GetPosition().GetCommitPosition()
	}
	for _, tt := range []struct {
		name     string
		expected storage.Expectation
		send     func(string, storage.Expectation, ...event) (uint64, uint64)
	}{
		{"append at any revision", anyRevision, appended},
		{"append to no stream", none, appended},
		{"append at the last revision", at(1), appended},
		{"batch append at any revision", anyRevision, batched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream, events := unused("hidden"), newEvents(2)
			c.append(stream, none, newEvents(2)...)
			c.append("$$"+stream, none, metadataEvent(metaWithCut(hidden)))
			if _, found, _, err := c.tryRead(ofStream(stream)); found || err != nil {
				t.Errorf("before: found %v, %v", found, err)
			}
			revision, position := tt.send(stream, tt.expected, events...)
			want := []recordedEvent{
				{stream: stream, revision: 2, id: events[0].id}, {stream: stream, revision: 3, id: events[1].id},
			}
			got := c.read(ofStream(stream))
			if diff := cmp.Diff(want, got, places); diff != "" {
				t.Error(diff)
			}
			meta := c.checkMeta(t, stream, metaWithCut(2))
			if revision != 3 || position != last(got).position || meta.position <= position || meta.revision != 1 {
				t.Errorf("answer: revision %d at %d, the metadata: revision %d at %d", revision, position, meta.revision,
					meta.position)
			}
		})
	}
	b.stop()
}

// TestProtocol_HiddenMustExist: an append that expects the stream to exist is refused while its metadata hides it.
func TestProtocol_HiddenMustExist(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("hidden")
	c.append(stream, none, newEvents(1)...)
	c.append("$$"+stream, none, metadataEvent(metaWithCut(hidden)))
	if resp, err := c.tryAppend(runtest.Context(t), stream, existing, newEvents(1)...); status.Code(err) !=
		codes.FailedPrecondition {
		t.Errorf("%v, %v", resp, err)
	}
	c.checkMeta(t, stream, metaWithCut(hidden))
}

// TestProtocol_DeleteForgetsMetadata: a delete replaces the metadata by $tb alone; so does the next append.
func TestProtocol_DeleteForgetsMetadata(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("deleted")
	c.append(stream, none, newEvents(2)...)
	c.append("$$"+stream, none, metadataEvent(metaWithCut(1)))
	c.delete(stream, anyRevision)
	c.checkMeta(t, stream, `{"$tb":`+hidden+`}`)
	_, position := c.append(stream, anyRevision, newEvents(3)...)
	if meta := c.checkMeta(t, stream, `{"$tb":2}`); meta.position <= position {
		t.Errorf("the metadata is at %d, the events end at %d", meta.position, position)
	}
	if got := c.read(ofStream(stream)); len(got) != 3 || got[0].revision != 2 {
		t.Errorf("the stream shows %v", got)
	}
}

// TestProtocol_HiddenGetsMetadata: metadata that a client writes to a deleted stream shows the stream again, without
// its old events; its content stays, even if it hides the stream itself.
func TestProtocol_HiddenGetsMetadata(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	for _, cut := range []string{"0", hidden} {
		stream := unused("deleted")
		c.append(stream, none, newEvents(2)...)
		c.delete(stream, anyRevision)
		if revision, _ := c.append("$$"+stream, anyRevision, metadataEvent(metaWithCut(cut))); revision != 1 {
			t.Errorf("answered revision %d, want that of the client's event", revision)
		}
		if meta := c.checkMeta(t, stream, metaWithCut(2)); meta.revision != 2 {
			t.Errorf("the newest metadata has revision %d", meta.revision)
		}
		if events, found, _, err := c.tryRead(ofStream(stream)); !found || len(events) != 0 || err != nil {
			t.Errorf("the stream: %v, found %v, %v", events, found, err)
		}
	}
}
