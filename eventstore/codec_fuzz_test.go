package eventstore_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// encodeAgain encodes a decoded event. Every event that can be decoded can be encoded.
func encodeAgain(t *testing.T, codec *eventstore.Codec, e event.Event) eventstore.Proposed {
	t.Helper()
	p, err := codec.Encode(e, 0, event.Meta{CommandID: uuid.Nil, At: time.Unix(1, 0)})
	if err != nil {
		t.Fatalf("%s was decoded and cannot be encoded: %v", e.EventType(), err)
	}
	return p
}

// FuzzFact decodes stored events of any name and payload. It checks that nothing panics, and that a
// decoded event is encoded as a payload that decodes to the same event.
func FuzzFact(f *testing.F) {
	golden, err := filepath.Glob("../domain/testdata/events/*.json")
	if err != nil || len(golden) < len(domain.Catalog) {
		f.Fatalf("%d golden payloads for %d names: %v", len(golden), len(domain.Catalog), err)
	}
	for _, file := range golden {
		payload, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.TrimSuffix(filepath.Base(file), ".json"), payload,
			[]byte(`{"schema":1,"requestId":"`+uuid.NewString()+`","principal":"x"}`))
	}
	f.Add(blob.ChunkType, []byte("\x00\xff raw"), []byte(`{}`))
	f.Add("datapoint.moved.v1", []byte(`{}`), []byte(`{}`))
	f.Add("datapoint.revision-accepted.v1",
		[]byte(`{"content":{"inline":"\ud800"},"occurredAt":"0001-01-01T00:00:00Z","effect":null}`), []byte(`[]`))
	codec := eventstoretest.Codec(f)
	f.Fuzz(func(t *testing.T, name string, payload, meta []byte) {
		fact := codec.DecodeRecorded(eventstore.Recorded{Stream: "s-x", Type: name, Data: payload, Meta: meta})
		if (fact.Event == nil) == (fact.Err == nil) {
			t.Fatalf("event %v, error %v", fact.Event, fact.Err)
		}
		e, err := codec.Decode(eventstore.Recorded{Stream: "s-x", Type: name, Data: payload})
		if err != nil {
			return
		}
		first := encodeAgain(t, codec, e)
		if first.Type != name {
			t.Fatalf("%s is written as %s", name, first.Type)
		}
		again, err := codec.Decode(eventstore.Recorded{Stream: "s-x", Type: first.Type, Data: first.Data})
		if err != nil {
			t.Fatalf("%s is written as %s, which cannot be read: %v", payload, first.Data, err)
		}
		if second := encodeAgain(t, codec, again); !bytes.Equal(first.Data, second.Data) {
			t.Fatalf("written as\n%s\nand written again as\n%s", first.Data, second.Data)
		}
		if name != blob.ChunkType && !json.Valid(first.Data) {
			t.Fatalf("the encoded payload is not JSON: %s", first.Data)
		}
	})
}
