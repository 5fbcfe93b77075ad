package eventstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
