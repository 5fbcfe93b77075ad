package eventstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/eventstore"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

func codecOf(t *testing.T, catalog []domain.Constructor) *eventstore.Codec {
	t.Helper()
	codec, err := eventstore.NewCodec(catalog)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// named is the event of the tests.
type named struct {
	Title string `json:"title"`
}

func (named) EventType() string { return "thing.named.v1" }

func newNamed() event.Event { return new(named) }

func TestEncode_UnknownName(t *testing.T) {
	codec := codecOf(t, []domain.Constructor{newNamed})
	if _, err := codec.Encode(&project.KeyRevoked{}, 0, event.NewMeta("test", time.Now())); err == nil {
		t.Error("a name that the catalogue does not hold was encoded")
	}
}

func TestNewCodec_InvalidCatalogue(t *testing.T) {
	for what, catalog := range map[string][]domain.Constructor{
		"a name twice":   {newNamed, newNamed},
		"that of chunks": {func() event.Event { return new(blob.Chunk) }},
	} {
		if _, err := eventstore.NewCodec(catalog); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestDecodeRecorded_Errors(t *testing.T) {
	codec := codecOf(t, []domain.Constructor{newNamed})
	good := eventstore.Recorded{
		Stream: "thing-1",
		Type:   "thing.named.v1",
		Data:   []byte(`{}`),
		Meta:   []byte(`{"principal":"operator","schema":1}`),
	}
	if f := codec.DecodeRecorded(good); f.Err != nil || f.Event == nil || f.Details.Principal != "operator" ||
		f.Stream != "thing-1" {
		t.Errorf("got %+v", f)
	}
	for what, spoil := range map[string]func(*eventstore.Recorded){
		"unknown name": func(r *eventstore.Recorded) { r.Type = "thing.gone.v1" },
		"torn payload": func(r *eventstore.Recorded) { r.Data = []byte(`{"title":`) },
		"wrong type":   func(r *eventstore.Recorded) { r.Data = []byte(`{"title":1}`) },
		"no payload":   func(r *eventstore.Recorded) { r.Data = nil },
		"torn meta":    func(r *eventstore.Recorded) { r.Meta = []byte(`{`) },
		"no meta":      func(r *eventstore.Recorded) { r.Meta = nil },
	} {
		bad := good
		spoil(&bad)
		f := codec.DecodeRecorded(bad)
		if f.Err == nil || f.Event != nil {
			t.Errorf("%s: %+v", what, f)
		}
		var unknown *eventstore.UnknownEventError
		if errors.As(f.Err, &unknown) != (what == "unknown name") {
			t.Errorf("%s: %v", what, f.Err)
		}
	}
}

// withoutSalt cuts the salt out of the metadata of encoded events, and returns the salts.
func withoutSalt(
	t *testing.T, proposed []eventstore.Proposed,
) (rest []eventstore.Proposed, salts [][event.SaltSize]byte) {
	t.Helper()
	for _, p := range proposed {
		meta, salt, err := event.SplitSalt(p.Meta)
		if err != nil {
			t.Fatal(err)
		}
		p.Meta = meta
		rest, salts = append(rest, p), append(salts, salt)
	}
	return rest, salts
}

func TestEncode_Metadata(t *testing.T) {
	codec := codecOf(t, []domain.Constructor{newNamed})
	meta := event.Meta{
		RequestID: uuid.UUID{1}, CommandID: uuid.UUID{2}, Principal: "key:<1>", CausationID: uuid.UUID{3}, CorrelationID: uuid.UUID{4},
		At: time.Date(2026, 11, 5, 10, 30, 0, 1999, time.FixedZone("", 3600)),
	}
	for _, e := range []event.Event{&named{}, blob.Chunk{Data: []byte{0xff}}} {
		p, err := codec.Encode(e, 0, meta)
		if err != nil {
			t.Fatal(err)
		}
		rest, _ := withoutSalt(t, []eventstore.Proposed{p})
		want := `{"requestId":"01000000-0000-0000-0000-000000000000","commandId":"02000000-0000-0000-0000-000000000000",` +
			`"principal":"key:<1>","$causationId":"03000000-0000-0000-0000-000000000000",` +
			`"$correlationId":"04000000-0000-0000-0000-000000000000","schema":1,"at":"2026-11-05T09:30:00.000001Z"}`
		if diff := cmp.Diff(want, string(rest[0].Meta)); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		f := codec.DecodeRecorded(eventstore.Recorded{Type: p.Type, Data: p.Data, Meta: p.Meta})
		decoded := meta
		decoded.Schema, decoded.At = event.FirstStep, time.Date(2026, 11, 5, 9, 30, 0, 1000, time.UTC)
		if diff := cmp.Diff(decoded, f.Details); f.Err != nil || diff != "" {
			t.Errorf("decoded, %v: %s", f.Err, diff)
		}
	}
	if _, err := codec.Encode(&named{}, 0, event.Meta{CommandID: uuid.New()}); err == nil {
		t.Error("metadata without a time was encoded")
	}
}

// Encoded twice, the events of a command have the same ids and the same bytes but for the salts.
func TestEncodeAll_DeterministicButForTheSalts(t *testing.T) {
	codec := codecOf(t, domain.Catalog)
	meta := event.NewMeta("pipeline", time.Now())
	events := []event.Event{&project.Archived{}, &project.Archived{}, blob.Chunk{Data: []byte{0xff}}}
	encode := func() []eventstore.Proposed {
		proposed, err := codec.EncodeAll(events, meta)
		if err != nil {
			t.Fatal(err)
		}
		return proposed
	}
	first, salts := withoutSalt(t, encode())
	again, more := withoutSalt(t, encode())
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	drawn := map[[event.SaltSize]byte]bool{}
	for _, salt := range append(salts, more...) {
		if drawn[salt] || salt == ([event.SaltSize]byte{}) {
			t.Errorf("salt %x was drawn twice, or not at all", salt)
		}
		drawn[salt] = true
	}
	meta.CommandID = uuid.New()
	other, err := codec.EncodeAll(events, meta)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uuid.UUID]bool{}
	for _, p := range append(first, other...) {
		if seen[p.ID] || p.ID == uuid.Nil {
			t.Errorf("%s occurs twice, or is the nil id", p.ID)
		}
		seen[p.ID] = true
	}
}

// TestCodec_TextIsUnchanged covers what JSON could change: escapes for HTML would enlarge the text,
// and invalid UTF-8 would be replaced (the edge refuses it).
func TestCodec_TextIsUnchanged(t *testing.T) {
	codec := codecOf(t, domain.Catalog)
	rapid.Check(t, func(t *rapid.T) {
		want := &project.KeyCreated{Name: rapid.String().Draw(t, "name"), Hash: "<&>\u2028"}
		p, err := codec.Encode(want, 0, event.NewMeta("test", time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(p.Data), `\u003c`) {
			t.Fatalf("escaped for HTML: %s", p.Data)
		}
		got, err := codec.Decode(eventstore.Recorded{Type: p.Type, Data: p.Data})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event.Event(want), got); diff != "" {
			t.Fatal(diff)
		}
	})
}
