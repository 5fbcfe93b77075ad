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
		if err := proto.Unmarshal(record, &message); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
