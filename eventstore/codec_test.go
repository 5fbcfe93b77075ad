package eventstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

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

func codecOf(t *testing.T, catalog []domain.Entry) *eventstore.Codec {
	t.Helper()
	codec, err := eventstore.NewCodec(catalog)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// named is the third shape of an event: it began as {"name"}, became {"label"}, and is {"title",
// "words"} now.
type named struct {
	Title string `json:"title"`
	Words int    `json:"words"`
}

func (named) EventType() string { return "thing.named.v3" }

func history() []domain.Entry {
	return []domain.Entry{
		{Name: "thing.named.v1", Up: func(b json.RawMessage) (string, json.RawMessage, error) {
			var old struct{ Name string }
			if err := json.Unmarshal(b, &old); err != nil {
				return "", nil, err
			}
			newer, err := json.Marshal(map[string]string{"label": old.Name})
			return "thing.named.v2", newer, err
		}},
		{Name: "thing.named.v2", Up: func(b json.RawMessage) (string, json.RawMessage, error) {
			var old struct{ Label string }
			if err := json.Unmarshal(b, &old); err != nil {
				return "", nil, err
			}
			newer, err := json.Marshal(named{Title: old.Label, Words: len(strings.Fields(old.Label))})
			return "thing.named.v3", newer, err
		}},
		{Name: "thing.named.v3", New: func() event.Event { return new(named) }},
	}
}

func TestDecode_OldNames(t *testing.T) {
	codec := codecOf(t, history())
	want := &named{Title: "two words", Words: 2}
	for name, payload := range map[string]string{
		"thing.named.v1": `{"name":"two words"}`,
		"thing.named.v2": `{"label":"two words"}`,
		"thing.named.v3": `{"title":"two words","words":2}`,
	} {
		got, err := codec.Decode(eventstore.Recorded{Type: name, Data: []byte(payload)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(event.Event(want), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestEncode_OldOrUnknownName(t *testing.T) {
	codec := codecOf(t, append(history(), domain.Entry{
		Name: "project.archived.v1", Up: func(b json.RawMessage) (string, json.RawMessage, error) { return "thing.named.v3", b, nil },
	}))
	if _, err := codec.Encode(&project.Archived{}, 0, event.Meta{}); err == nil {
		t.Error("a name that is only read was encoded")
	}
	if _, err := codec.Encode(&project.KeyRevoked{}, 0, event.Meta{}); err == nil {
		t.Error("a name that the catalogue does not hold was encoded")
	}
}

func TestDecode_InvalidUpcasters(t *testing.T) {
	to := func(name string) func(json.RawMessage) (string, json.RawMessage, error) {
		return func(b json.RawMessage) (string, json.RawMessage, error) { return name, b, nil }
	}
	broken := errors.New("broken")
	codec := codecOf(t, []domain.Entry{
		{Name: "to.itself.v1", Up: to("to.itself.v1")},
		{Name: "in.circles.v1", Up: to("in.circles.v2")},
		{Name: "in.circles.v2", Up: to("in.circles.v1")},
		{Name: "to.nothing.v1", Up: to("nothing.there.v1")},
		{Name: "to.ruin.v1", Up: func(json.RawMessage) (string, json.RawMessage, error) { return "", nil, broken }},
	})
	for _, name := range []string{"to.itself.v1", "in.circles.v1", "in.circles.v2", "to.nothing.v1", "to.ruin.v1"} {
		got, err := codec.Decode(eventstore.Recorded{Type: name, Data: []byte(`{}`)})
		if err == nil {
			t.Errorf("%s: decoded to %v", name, got)
		}
		var unknown *eventstore.UnknownEventError
		if errors.As(err, &unknown) != (name == "to.nothing.v1") {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, broken) != (name == "to.ruin.v1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewCodec_InvalidCatalogue(t *testing.T) {
	construct := func() event.Event { return new(named) }
	up := func(b json.RawMessage) (string, json.RawMessage, error) { return "x", b, nil }
	for what, catalog := range map[string][]domain.Entry{
		"a name twice":         {{Name: "thing.named.v3", New: construct}, {Name: "thing.named.v3", New: construct}},
		"neither of the two":   {{Name: "thing.named.v3"}},
		"both":                 {{Name: "thing.named.v3", New: construct, Up: up}},
		"constructs another":   {{Name: "thing.named.v4", New: construct}},
		"constructs a chunk's": {{Name: blob.ChunkType, New: construct}},
	} {
		if _, err := eventstore.NewCodec(catalog); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestDecodeRecorded_Errors(t *testing.T) {
	codec := codecOf(t, history())
	good := eventstore.Recorded{
		Stream: "thing-1",
		Type:   "thing.named.v3",
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

func TestEncodeAll_DeterministicIDs(t *testing.T) {
	codec := codecOf(t, domain.Catalog)
	meta := event.Meta{CommandID: uuid.New(), Principal: "pipeline"}
	events := []event.Event{&project.Archived{}, &project.Archived{}, blob.Chunk{Data: []byte{0xff}}}
	first, err := codec.EncodeAll(events, meta)
	if err != nil {
		t.Fatal(err)
	}
	again, err := codec.EncodeAll(events, meta)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
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
		p, err := codec.Encode(want, 0, event.Meta{CommandID: uuid.New()})
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
