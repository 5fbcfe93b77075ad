package eventstore_test

import (
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
	if _, err := codec.Encode(&project.KeyRevoked{}, 0, event.Meta{}); err == nil {
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
