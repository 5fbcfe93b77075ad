package inspect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/runtest"
)

// logOf is a log with a stream "s" of some events, whose payload is their number, or no JSON.
func logOf(t *testing.T, events int) inspect.Log {
	t.Helper()
	store := eventstoretest.NewMemory()
	for n := range events {
		data := []byte(`{ "n": 1 }`)
		if n == 1 {
			data = []byte("no JSON")
		}
		_, err := store.Append(t.Context(), "s", eventstore.Revision(n-1),
			[]eventstore.Proposed{{ID: uuid.New(), Type: "tested.v1", Data: data, Meta: []byte(`{"a": "b"}`)}})
		runtest.Must(t, err)
	}
	return inspect.Log{Store: store}
}

func TestLog_Events(t *testing.T) {
	log := logOf(t, 150)
	for _, c := range []struct {
		in    inspect.Range
		count int
		first int64
	}{
		{inspect.Range{Stream: "s"}, 150, 0},
		{inspect.Range{Stream: "s", Limit: 100}, 100, 0},
		{inspect.Range{Stream: "s", From: new(int64(149))}, 1, 149},
		{inspect.Range{Stream: "s", Backwards: true, Limit: 65}, 65, 149},
		{inspect.Range{Stream: "s", Backwards: true, From: new(int64(40))}, 41, 40},
		{inspect.Range{Stream: "other"}, 0, 0},
	} {
		var got []inspect.Event
		err := log.Events(t.Context(), c.in, func(e inspect.Event) error { got = append(got, e); return nil })
		if err != nil || len(got) != c.count || c.count > 0 && got[0].Revision != c.first {
			t.Errorf("%+v: %d events, %v", c.in, len(got), err)
		}
	}
	stop := errors.New("enough")
	var got []inspect.Event
	err := log.Events(t.Context(), inspect.Range{Stream: "s", Limit: 2}, func(e inspect.Event) error {
		if got = append(got, e); len(got) == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || string(got[0].Data) != `{"n":1}` || got[0].Raw != nil || got[1].Data != nil ||
		string(got[1].Raw) != "no JSON" || string(got[0].Metadata) != `{"a":"b"}` || got[0].Size != 20 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLog_EventsRefused(t *testing.T) {
	log := logOf(t, 1)
	for name, in := range map[string]inspect.Range{
		"no stream": {}, "limit": {Stream: "s", Limit: -1}, "revision": {Stream: "s", From: new(int64(-1))},
	} {
		err := log.Events(t.Context(), in, func(inspect.Event) error { return nil })
		if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Invalid || !strings.Contains(f.Msg, "not below 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
