package eventstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func codecOf(t *testing.T, catalog []domain.Constructor) *eventstore.Codec {
	t.Helper()
	codec, err := eventstore.NewCodec(catalog)
	runtest.Must(t, err)
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
		runtest.Must(t, err)
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
		runtest.Must(t, err)
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
		runtest.Must(t, err)
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
	runtest.Must(t, err)
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
		runtest.Must(t, err)
		if strings.Contains(string(p.Data), `\u003c`) {
			t.Fatalf("escaped for HTML: %s", p.Data)
		}
		got, err := codec.Decode(eventstore.Recorded{Type: p.Type, Data: p.Data})
		runtest.Must(t, err)
		if diff := cmp.Diff(event.Event(want), got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// titled is named at its third step.
type titled struct {
	Title    string   `json:"title"`
	Language *string  `json:"language,omitempty" since:"2"`
	Tags     []string `json:"tags,omitempty" since:"3"`
	Pages    int      `json:"pages,omitzero" since:"3"`
}

func (titled) EventType() string { return new(named).EventType() }

func recorded(t *testing.T, codec *eventstore.Codec, e event.Event) eventstore.Recorded {
	t.Helper()
	p, err := codec.Encode(e, 0, event.NewMeta("test", time.Now()))
	runtest.Must(t, err)
	return eventstore.Recorded{Stream: "thing-1", Type: p.Type, Data: p.Data, Meta: p.Meta}
}

// An event is stored at the least step that has what it sets, so that a program of before reads what it can read whole,
// and stops at what it would read in part.
func TestCodec_Steps(t *testing.T) {
	before := codecOf(t, []domain.Constructor{newNamed})
	after := codecOf(t, []domain.Constructor{func() event.Event { return new(titled) }})
	for _, c := range []struct {
		e    titled
		step int
	}{
		{titled{Title: "a"}, 1},
		{titled{Title: "a", Language: new("de")}, 2},
		{titled{Title: "a", Language: new("")}, 2},
		{titled{Title: "a", Tags: []string{"x"}}, 3},
		{titled{Pages: 4}, 3},
		{titled{Title: "a", Language: new("de"), Pages: 1}, 3},
	} {
		stored := recorded(t, after, &c.e)
		got := after.DecodeRecorded(stored)
		if diff := cmp.Diff(event.Event(&c.e), got.Event); got.Err != nil || diff != "" || got.Details.Schema != c.step {
			t.Errorf("%+v: step %d, want %d, %v: %s", c.e, got.Details.Schema, c.step, got.Err, diff)
		}
		old := before.DecodeRecorded(stored)
		unknown, is := errors.AsType[*eventstore.UnknownEventError](old.Err)
		switch {
		case c.step > 1 && (!is || unknown.Step != c.step || old.Event != nil || !strings.Contains(old.Err.Error(), "step")):
			t.Errorf("%+v is read without what step %d brought: %v", c.e, c.step, old.Err)
		case c.step == 1 && (old.Err != nil || old.Event.(*named).Title != c.e.Title):
			t.Errorf("%+v cannot be read by a program of before: %v", c.e, old.Err)
		}
	}
	// What a program of before stored means what it meant.
	f := after.DecodeRecorded(recorded(t, before, &named{Title: "a"}))
	if diff := cmp.Diff(event.Event(&titled{Title: "a"}), f.Event); f.Err != nil || diff != "" {
		t.Errorf("%v: %s", f.Err, diff)
	}
}

type (
	noStep struct {
		A int `json:"a,omitempty" since:"x"`
	}
	firstOne struct {
		A int `json:"a,omitempty" since:"1"`
	}
	stored struct {
		A int `json:"a" since:"2"`
	}
	gap struct {
		A int `json:"a,omitempty" since:"3"`
	}
	inPart struct{ Parts []gap }
)

func (noStep) EventType() string   { return "thing.a.v1" }
func (firstOne) EventType() string { return "thing.a.v1" }
func (stored) EventType() string   { return "thing.a.v1" }
func (gap) EventType() string      { return "thing.a.v1" }
func (inPart) EventType() string   { return "thing.a.v1" }

func TestNewCodec_InvalidSteps(t *testing.T) {
	for _, e := range []event.Event{new(noStep), new(firstOne), new(stored), new(gap), new(inPart)} {
		if _, err := eventstore.NewCodec([]domain.Constructor{func() event.Event { return e }}); err == nil {
			t.Errorf("%T: taken", e)
		}
	}
}

// What a leaf belongs to is the same whether the event is decoded or not, for each event of the catalogue.
func TestLeafOwner_DecodedOrNot(t *testing.T) {
	owner, owned := uuid.New(), 0
	for _, construct := range domain.Catalog {
		e := construct()
		data, err := os.ReadFile("../domain/testdata/events/" + e.EventType() + ".json")
		runtest.Must(t, err)
		runtest.Must(t, json.Unmarshal(data, e))
		category, _, _ := strings.Cut(e.EventType(), ".")
		names := []string{stream.Name(category, owner)}
		switch category {
		case stream.Registry, stream.Pipeline:
			names = []string{category}
		case stream.Usage:
			names = []string{stream.UsageName(owner, "2026-11")}
		case "audience":
			names = []string{stream.Name(stream.Audiences, owner)}
		case stream.Reads:
			names = []string{stream.ReadsName(owner, "2026-11-05")}
		case "visit":
			names = []string{stream.VisitsName(owner, owner, "2026-11")}
		case stream.Audit:
			names = append(names, stream.RecordsName(stream.Name(stream.Identity, owner)))
		}
		for _, name := range names {
			decoded := eventstore.DecodedEvent{Recorded: eventstore.Recorded{Stream: name, Data: data}, Event: e}
			passed := eventstore.DecodedEvent{Recorded: decoded.Recorded, Event: eventstore.PassedOver{}}
			organization, project := decoded.LeafOwner()
			if o, p := passed.LeafOwner(); o != organization || p != project {
				t.Errorf("%s is of %s and %s, and not decoded of %s and %s", e.EventType(), organization, project, o, p)
			}
			if organization != uuid.Nil || project != uuid.Nil {
				owned++
			}
		}
	}
	if owned < len(domain.Catalog)/2 {
		t.Errorf("%d of %d events belong to an organization", owned, len(domain.Catalog))
	}
}

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
		runtest.Must(f, err)
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
