package node

import (
	"bytes"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Every record is a message that any client decodes, says what was proposed, and is read back by the node alike.
func TestRecordIsTheMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		stream := rapid.StringN(1, 300, -1).Draw(t, "stream")
		typ := rapid.StringN(1, 200, -1).Draw(t, "type")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		meta := rapid.SliceOf(rapid.Byte()).Draw(t, "meta")
		revision := rapid.Int64Min(0).Draw(t, "revision")
		position := rapid.Uint64Min(1).Draw(t, "position")
		created := time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "created")).UTC()
		record := propose(stream, id, typ, rapid.Bool().Draw(t, "json"), data, meta).record(revision, position, ticks(created))

		var message streams.ReadResp
		if err := proto.Unmarshal(record, &message); err != nil {
			t.Fatal(err)
		}
		e := message.GetEvent().GetEvent()
		got, err := idOf(e.GetId())
		if err != nil {
			t.Fatal(err)
		}
		if got != id || string(e.GetStreamIdentifier().GetStreamName()) != stream || e.GetMetadata()[keyType] != typ ||
			!bytes.Equal(e.GetData(), data) || !bytes.Equal(e.GetCustomMetadata(), meta) || e.GetStreamRevision() != uint64(revision) ||
			e.GetCommitPosition() != position || e.GetPreparePosition() != position || message.GetEvent().GetCommitPosition() != position {
			t.Fatalf("decoded as %v", &message)
		}
		if len(message.ProtoReflect().GetUnknown())+len(e.ProtoReflect().GetUnknown()) != 0 {
			t.Fatalf("the message holds fields that no client knows: %v", &message)
		}
		want := recorded{id: id, stream: []byte(stream), revision: revision, position: position, typ: []byte(typ), created: created, data: data}
		parsed, err := parseRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, parsed, cmp.AllowUnexported(recorded{}), cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestStateIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &streamState{
			id: rapid.Uint64().Draw(t, "id"), last: rapid.Int64Min(-1).Draw(t, "last"), tombstone: rapid.Uint64().Draw(t, "tombstone"),
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

// FuzzRecord reads records that are damaged: never a panic, and what is taken for sound is sound for every client.
func FuzzRecord(f *testing.F) {
	f.Add(propose("s", uuid.New(), "told", true, []byte(`{}`), nil).record(0, 1, ticks(time.Unix(1, 0))))
	f.Add(propose("$$s", uuid.New(), metadataType, true, []byte(`{"$tb":3}`), []byte("x")).record(1<<40, 1<<63, "1"))
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		if r.position == 0 || r.revision < 0 || len(r.typ) == 0 {
			t.Fatalf("taken for sound: %+v", r)
		}
		var message streams.ReadResp
		if err := proto.Unmarshal(b, &message); err == nil {
			if e := message.GetEvent().GetEvent(); e != nil && e.GetCommitPosition() != r.position {
				t.Fatalf("position %d, a client reads %d", r.position, e.GetCommitPosition())
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
