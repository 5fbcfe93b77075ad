package storage

import (
	"bytes"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// Every record is a message that any client decodes. It holds what was proposed, and the node reads
// the same from it.
func TestRecord_IsMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		stream := rapid.StringN(1, 300, -1).Draw(t, "stream")
		typ := rapid.StringN(1, 200, -1).Draw(t, "type")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		meta := rapid.SliceOf(rapid.Byte()).Draw(t, "meta")
		revision := rapid.Int64Min(0).Draw(t, "revision")
		position := rapid.Uint64Min(1).Draw(t, "position")
		created := time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "created")).UTC()
		record := Propose(stream, id, typ, rapid.Bool().Draw(t, "json"), data, meta).
			Record(revision, position, wire.Ticks(created))

		var message streams.ReadResp
		runtest.Must(t, proto.Unmarshal(record, &message))
		e := message.GetEvent().GetEvent()
		structured := e.GetId().GetStructured()
		got := wire.UUIDFromHalves(uint64(structured.GetMostSignificantBits()), uint64(structured.GetLeastSignificantBits()))
		if got != id || string(e.GetStreamIdentifier().GetStreamName()) != stream || e.GetMetadata()[wire.KeyType] != typ ||
			!bytes.Equal(e.GetData(), data) || !bytes.Equal(e.GetCustomMetadata(), meta) ||
			e.GetStreamRevision() != uint64(revision) || e.GetCommitPosition() != position ||
			e.GetPreparePosition() != position || message.GetEvent().GetCommitPosition() != position {
			t.Fatalf("decoded as %v", &message)
		}
		if len(message.ProtoReflect().GetUnknown())+len(e.ProtoReflect().GetUnknown()) != 0 {
			t.Fatalf("the message holds fields that no client knows: %v", &message)
		}
		want := Recorded{
			ID:       id,
			Stream:   []byte(stream),
			Revision: revision,
			Position: position,
			Type:     []byte(typ),
			Created:  created,
			Data:     data,
		}
		parsed, err := ParseRecord(record)
		runtest.Must(t, err)
		if diff := cmp.Diff(want, parsed, cmp.AllowUnexported(Recorded{}), cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The metadata of an event does not share the bytes that it was proposed with.
func TestPropose_CopiesMetadata(t *testing.T) {
	data := []byte(`{"$tb":3}`)
	p := Propose("$$stream", uuid.New(), MetadataType, true, data, nil)
	clear(data) // the next message is read into the same bytes
	if string(p.metadata) != `{"$tb":3}` {
		t.Errorf("the metadata changed with the message: %q", p.metadata)
	}
}

func TestState_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &streamState{
			id:   rapid.Uint64().Draw(t, "id"),
			last: rapid.Int64Min(-1).Draw(t, "last"), tombstone: rapid.Uint64().Draw(t, "tombstone"),
			hasMeta: rapid.Bool().Draw(t, "hasMeta"),
			meta: streamMeta{
				truncateBefore: rapid.Int64().Draw(t, "tb"), maxCount: rapid.Int64().Draw(t, "count"),
				maxAge: time.Duration(rapid.Int64().Draw(t, "age")),
			},
		}
		stored := want.encode()
		got, err := decodeState(stored)
		runtest.Must(t, err)
		if *got != *want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		cut := rapid.IntRange(0, len(stored)-1).Draw(t, "cut")
		if got, err := decodeState(stored[:cut]); err == nil {
			t.Fatalf("%d of %d bytes decode as %+v", cut, len(stored), got)
		}
	})
}

// FuzzRecord reads records that are damaged: never a panic, and what is taken for sound is sound
// for every client.
func FuzzRecord(f *testing.F) {
	f.Add(Propose("s", uuid.New(), "told", true, []byte(`{}`), nil).Record(0, 1, wire.Ticks(time.Unix(1, 0))))
	f.Add(Propose("$$s", uuid.New(), MetadataType, true, []byte(`{"$tb":3}`), []byte("x")).Record(1<<40, 1<<63, "1"))
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			return
		}
		if r.Position == 0 || r.Revision < 0 || len(r.Type) == 0 {
			t.Fatalf("taken for sound: %+v", r)
		}
		var message streams.ReadResp
		if err := proto.Unmarshal(b, &message); err == nil {
			if e := message.GetEvent().GetEvent(); e != nil && e.GetCommitPosition() != r.Position {
				t.Fatalf("position %d, a client reads %d", r.Position, e.GetCommitPosition())
			}
		}
	})
}

// FuzzState reads states that are damaged, and metadata of any form.
func FuzzState(f *testing.F) {
	f.Add((&streamState{id: 7, last: 3, hasMeta: true, meta: streamMeta{maxCount: 2}}).encode())
	f.Add([]byte(`{"$tb":3,"$maxCount":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeState(b); err == nil {
			again, err := decodeState(s.encode())
			if err != nil || *again != *s {
				t.Fatalf("%+v is read back as %+v, %v", s, again, err)
			}
		}
		if m := parseMeta(b); m.truncateBefore < 0 || m.maxCount < 0 || m.maxAge < 0 {
			t.Fatalf("metadata %q is %+v", b, m)
		}
		if m := parseMeta(truncatedJSON(b, 7)); m != (streamMeta{}) && m.truncateBefore != 7 {
			t.Fatalf("metadata %q cut at 7 is %+v", b, m)
		}
	})
}

// $tb is set in metadata without any other change to its text.
func TestTruncatedJSON(t *testing.T) {
	for _, tt := range []struct{ name, metadata, want string }{
		{"in its place", `{"a":1,"$tb":9223372036854775807,"b":2}`, `{"a":1,"$tb":7,"b":2}`},
		{"spaces", " {\n \"$tb\" : 1 ,\t\"b\" : [ ] }\n", " {\n \"$tb\" : 7 ,\t\"b\" : [ ] }\n"},
		{"numbers", `{"n":1.50,"e":1E+2,"big":123456789012345678901,"$tb":1}`, `{"n":1.50,"e":1E+2,"big":123456789012345678901,"$tb":7}`},
		{"text", `{"é":"\u00e9<&","$tb":1}`, `{"é":"\u00e9<&","$tb":7}`},
		{"twice", `{"$tb":1,"$tb":2}`, `{"$tb":7,"$tb":7}`},
		{"an escaped key", `{"\u0024tb":1}`, `{"\u0024tb":7}`},
		{"another key that looks like it", `{"$TB":1,"x":{"$tb":2}}`, `{"$TB":1,"x":{"$tb":2},"$tb":7}`},
		{"missing", `{"a":{}}`, `{"a":{},"$tb":7}`},
		{"no keys", ` { } `, ` { "$tb":7} `},
		{"not a number", `{"$tb":null}`, `{"$tb":7}`},
		{"no object", `[1]`, `{"$tb":7}`},
		{"null", `null`, `{"$tb":7}`},
		{"nothing", ``, `{"$tb":7}`},
		{"not JSON", `{"a":1`, `{"$tb":7}`},
	} {
		got := string(truncatedJSON([]byte(tt.metadata), 7))
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if m := parseMeta([]byte(got)); m.truncateBefore != 7 {
			t.Errorf("%s: %s is %+v", tt.name, got, m)
		}
	}
}

// A key has an effect only as it is spelled; one invalid value makes all metadata count as empty.
func TestParseMeta(t *testing.T) {
	for _, tt := range []struct {
		metadata string
		want     streamMeta
	}{
		{`{"$tb":3,"$maxCount":2,"$maxAge":1}`, streamMeta{truncateBefore: 3, maxCount: 2, maxAge: 1e9}},
		{`{"$TB":3,"$MaxCount":2}`, streamMeta{}},
		{`{"$tb":null,"$maxCount":2}`, streamMeta{maxCount: 2}},
		{`{"$tb":1,"$tb":3}`, streamMeta{truncateBefore: 3}},
		{`{"$tb":3,"$maxCount":0}`, streamMeta{}},
		{`{"$tb":3,"$maxAge":"1"}`, streamMeta{}},
		{`{"$tb":-1,"$maxCount":2}`, streamMeta{}},
		{`{"$tb":1.5,"$maxCount":2}`, streamMeta{}},
		{`[]`, streamMeta{}},
	} {
		if diff := cmp.Diff(tt.want, parseMeta([]byte(tt.metadata)), cmp.AllowUnexported(streamMeta{})); diff != "" {
			t.Errorf("%s: %s", tt.metadata, diff)
		}
	}
}

// The tail stays within its bounds, whatever is pushed, and returns exactly the newest events.
func TestTail_Bounds(t *testing.T) {
	tl := newTail(10)
	position := uint64(10)
	push := func(events, size int) {
		var out []Entry
		for range events {
			position++
			out = append(out, Entry{Position: position, Record: make([]byte, size)})
		}
		tl.push(out)
	}
	for range 3 {
		push(tailEvents-1, 1)
		push(3, tailBytes/2)
		push(1, 2*tailBytes)
		push(2, 10)
		if tl.bytes > tailBytes || position-tl.first+1 > tailEvents {
			t.Fatalf("the tail holds %d bytes, %d events", tl.bytes, position-tl.first+1)
		}
	}
	got, _, evicted := tl.after(position-2, make([]Entry, 0, 5))
	if evicted || len(got) != 2 || got[1].Position != position {
		t.Errorf("got %v, evicted %v", got, evicted)
	}
	if _, _, evicted := tl.after(position-3, nil); !evicted {
		t.Error("an event larger than the bound was kept")
	}
	push(4, pageBytes/2)
	if got, _, _ := tl.after(position-4, make([]Entry, 0, 5)); len(got) != 2 {
		t.Errorf("a subscriber takes %d large events at once", len(got))
	}
	got, changed, _ := tl.after(position, nil)
	if len(got) != 0 {
		t.Errorf("after the head: %v", got)
	}
	push(1, 1)
	<-changed
}

// Events older than the maximum age are not returned.
func TestRead_MaxAge(t *testing.T) {
	n, c := openClient(t, memoryConfig())
	c.append("s", none, newEvents(2)...)
	c.append("$$s", none, metadataEvent(`{"$maxAge":60}`))
	for age, want := range map[time.Duration]int{0: 2, 59 * time.Second: 2, 2 * time.Minute: 0} {
		v, err := n.views.acquire()
		runtest.Must(t, err)
		state, err := v.state("s")
		runtest.Must(t, err)
		p, err := v.stream(state, 0, false, 10, time.Now().Add(age))
		if err != nil || len(p.Events) != want || !p.End {
			t.Errorf("%v later: %d events, %v", age, len(p.Events), err)
		}
		runtest.Must(t, v.release())
	}
}
