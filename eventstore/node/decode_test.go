package node

import (
	"bytes"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore/node/wire"
)

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecode_UsualEvent(t *testing.T) {
	for _, e := range []event{
		newEvent(`{"n":1}`),
		{id: uuid.New(), typ: "tested", data: "raw", meta: `{"by":"us"}`, raw: true},
		{id: uuid.Max, typ: "größer"},
	} {
		b := wireOf(t, e.message())
		got, usual := decodeCommonEvent(b)
		if !usual {
			t.Errorf("%v is not usual", e)
		}
		if got.id != e.id || got.typ != e.typ || string(got.data) != e.data || string(got.meta) != e.meta ||
			(got.contentType != wire.ContentTypeJSON) != e.raw {
			t.Errorf("got %+v of %+v", got, e)
		}
	}
}

func TestDecode_UnusualEvent(t *testing.T) {
	id := uuid.New()
	system := map[string]string{
		wire.KeyType:        "tested",
		wire.KeyContentType: wire.ContentTypeJSON,
		"more":              "that nobody reads",
	}
	as := func(id *shared.UUID, system map[string]string) []byte {
		return wireOf(t, &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{
			ProposedMessage: &streams.AppendReq_ProposedMessage{Id: id, Metadata: system, Data: []byte(`{}`)},
		}})
	}
	text := &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}}
	twice := append(as(structuredID(uuid.New()), system), as(structuredID(id), system)...)
	for name, b := range map[string][]byte{"text id": as(text, system), "more metadata": as(structuredID(id), system), "said twice": twice} {
		if _, usual := decodeCommonEvent(b); usual {
			t.Errorf("%s: it is usual", name)
		}
		m := rawMessage{bytes: b}
		e, err := m.event()
		if err != nil || e.id != id || e.typ != "tested" || e.contentType != wire.ContentTypeJSON || string(e.data) != `{}` {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	m := rawMessage{bytes: []byte("\xff\xff nonsense")}
	if e, err := m.event(); err == nil {
		t.Errorf("nonsense was read as %+v", e)
	}
	m = rawMessage{bytes: wireOf(t, appendOptions("s", none))}
	if e, err := m.event(); err == nil {
		t.Errorf("options were read as %+v", e)
	}
}

func TestDecode_EventDoesNotRetainMessage(t *testing.T) {
	e := newEvent(`{"$tb":3}`)
	m := rawMessage{bytes: wireOf(t, e.message())}
	p, _, err := m.proposed("$$stream")
	if err != nil {
		t.Fatal(err)
	}
	before := p.Record(0, 1, "1")
	clear(m.bytes) // the next message comes
	if after := p.Record(0, 1, "1"); !bytes.Equal(after, before) || !bytes.Contains(after, []byte(e.data)) {
		t.Errorf("the event changed with the message: %q", after)
	}
}

// FuzzUsualEvent proves that the quick way of reading an event reads what the general one does,
// wherever it reads anything.
func FuzzUsualEvent(f *testing.F) {
	f.Add(wireOf(f, newEvent(`{}`).message()))
	f.Add(wireOf(f, event{id: uuid.New(), typ: "t", meta: "m", raw: true}.message()))
	f.Add(wireOf(f, appendOptions("s", anyRevision)))
	f.Fuzz(func(t *testing.T, b []byte) {
		quick, usual := decodeCommonEvent(b)
		if !usual {
			return
		}
		msg := &streams.AppendReq{}
		if err := proto.Unmarshal(b, msg); err != nil {
			t.Fatalf("no message: %v", err)
		}
		if msg.GetProposedMessage() == nil {
			t.Fatal("no event")
		}
		general, err := sentOf(msg.GetProposedMessage())
		if err != nil {
			t.Fatal(err)
		}
		if quick.id != general.id || quick.typ != general.typ ||
			quick.hasType != general.hasType || quick.hasContentType != general.hasContentType ||
			(quick.contentType == wire.ContentTypeJSON) != (general.contentType == wire.ContentTypeJSON) ||
			!bytes.Equal(quick.data, general.data) || !bytes.Equal(quick.meta, general.meta) {
			t.Errorf("quick: %+v, general: %+v", quick, general)
		}
	})
}
