package commands_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
)

func TestSetEventAside(t *testing.T) {
	codec := eventstoretest.Codec(t)
	store := eventstoretest.NewMemory()
	log := engine.NewJournal(store, codec, slog.New(slog.DiscardHandler))
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	start := tenancy.FirstStart{Organization: "Annals", HashKey: make([]byte, 32), At: at}
	runtest.Must(t, tenancy.Bootstrap(t.Context(), log, start))
	first, err := store.Read(t.Context(), stream.Registry, 0, eventstore.Forwards, 1)
	runtest.Must(t, err)
	id := uuid.New()
	odd, err := store.Append(t.Context(), stream.Registry, 3,
		[]eventstore.Proposed{{ID: id, Type: "registry.unheard-of.v9", Data: []byte(`{}`), Meta: []byte(`{}`)}})
	runtest.Must(t, err)
	fakes := &fakeProjections{}
	asides := tenancy.EventAsides{
		Journal: log, Projections: fakes, IsStuck: func(eventstore.Position) bool { return fakes.stuck },
	}
	call := engine.Call{Principal: auth.Principal{Kind: "operator"}, ReceivedAt: at}
	order := tenancy.SetAside{Position: odd.Position, Reason: "written by mistake"}
	forced := order
	forced.Force = true
	for name, c := range map[string]struct {
		change func(*tenancy.SetAside)
		want   string
	}{
		"no reason":                   {func(o *tenancy.SetAside) { o.Reason = "" }, "a reason is missing"},
		"an unknown projection":       {func(o *tenancy.SetAside) { o.Projection = "apples" }, "there is no projection apples"},
		"nothing stopped":             {func(o *tenancy.SetAside) { o.Projection = "access"; o.Force = false }, "no projection is stopped at position %d; use --force with --projection to set it aside anyway"},
		"nothing stopped or named":    {func(*tenancy.SetAside) {}, "no projection is stopped at position %d: name one, or all"},
		"a position without an event": {func(o *tenancy.SetAside) { o.Position, o.Projection = odd.Position+1, "all" }, "there is no event at this position: %d"},
		"the id of the log":           {func(o *tenancy.SetAside) { o.Position, o.Projection = first[0].Position, "all" }, "this event cannot be set aside: the log needs " + first[0].Type},
	} {
		in := forced
		c.change(&in)
		want := c.want
		if strings.Contains(want, "%d") {
			want = fmt.Sprintf(want, in.Position)
		}
		_, err := asides.SetAside(t.Context(), call, in)
		if f, is := errors.AsType[*fault.Error](err); !is || f.Msg != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	setAside := func(projections ...string) registry.EventSetAside {
		t.Helper()
		in := order
		fakes.stopped, fakes.stuck = projections, false
		switch {
		case len(projections) == 0:
			in.Projection, in.Force = tenancy.AllProjections, true
		case projections[0] == "datapoints": // a deletion that cannot be completed
			fakes.stopped, fakes.stuck = nil, true
		}
		e, err := asides.SetAside(t.Context(), call, in)
		runtest.Must(t, err)
		fakes.setAside = map[eventstore.Position]registry.EventSetAside{odd.Position: e}
		return e
	}
	want := registry.EventSetAside{
		Position: uint64(
			odd.Position,
		), EventID: id, Stream: stream.Registry, Type: "registry.unheard-of.v9", Projections: []string{"access"},
		Reason: "written by mistake", By: "operator", At: at,
	}
	for _, step := range []struct {
		projections, want []string
		events            int
	}{
		{[]string{"access"}, []string{"access"}, 6},
		{[]string{"access"}, []string{"access"}, 6}, // once is enough
		{[]string{"memories", "access"}, []string{"access", "memories"}, 7},
		{nil, nil, 8},
		{[]string{"datapoints"}, nil, 8},
	} {
		want.Projections = step.want
		if diff := cmp.Diff(want, setAside(step.projections...)); diff != "" {
			t.Errorf("set aside for %v (-want +got):\n%s", step.projections, diff)
		}
		events, err := store.Read(t.Context(), stream.Registry, 0, eventstore.Forwards, 100)
		if err != nil || len(events) != step.events {
			t.Errorf("%d events are in the registry, want %d: %v", len(events), step.events, err)
		}
	}
	last, err := store.Read(t.Context(), stream.Registry, 7, eventstore.Forwards, 1)
	runtest.Must(t, err)
	again := forced
	again.Position, again.Projection = last[0].Position, tenancy.AllProjections
	_, err = asides.SetAside(t.Context(), call, again)
	if f, is := errors.AsType[*fault.Error](err); !is || !strings.HasPrefix(f.Msg, "this event cannot be set aside") {
		t.Errorf("a decision itself is set aside: %v", err)
	}
	// The same decision again needs no name.
	fakes.stopped, fakes.stuck = nil, false
	if e, err := asides.SetAside(t.Context(), call, order); err != nil || e.Projections != nil || fakes.refreshed != 6 {
		t.Errorf("again: %+v, %v, %d refreshes", e, err, fakes.refreshed)
	}
}

// What the event did not cause is no reason to set it aside, also with --force.
func TestSetEventAside_CauseOutside(t *testing.T) {
	const access, memories = "projection access repeats: error 42501", "projection memories repeats: error 42501"
	outside := map[string]error{"access": errors.New(access), "memories": errors.New(memories)}
	for name, c := range map[string]struct {
		stopped []string
		in      tenancy.SetAside
		want    string // "" for another refusal: the position is that of no event
	}{
		"none named":                {nil, tenancy.SetAside{}, access},
		"the one that fails":        {nil, tenancy.SetAside{Projection: "memories"}, memories},
		"all":                       {[]string{"datapoints"}, tenancy.SetAside{Projection: "all"}, access},
		"another one":               {nil, tenancy.SetAside{Projection: "datapoints"}, ""},
		"those that it has stopped": {[]string{"datapoints"}, tenancy.SetAside{}, ""},
	} {
		asides := tenancy.EventAsides{
			Journal: engine.NewJournal(
				eventstoretest.NewMemory(), eventstoretest.Codec(t), slog.New(slog.DiscardHandler),
			),
			Projections: &fakeProjections{stopped: c.stopped, outside: outside},
			IsStuck:     func(eventstore.Position) bool { return false },
		}
		c.in.Position, c.in.Reason, c.in.Force = 7, "to go on", true
		_, err := asides.SetAside(t.Context(), engine.Call{}, c.in)
		want := "there is no event at this position: 7"
		if c.want != "" {
			want = "the event at position 7 is not the cause, so it cannot be set aside, also not with --force: " + c.want +
				"; once that is repaired, the projection goes on by itself"
		}
		if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Conflict || f.Msg != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// fakeProjections are projections, some of which are stopped.
type fakeProjections struct {
	stopped   []string
	outside   map[string]error
	stuck     bool
	setAside  map[eventstore.Position]registry.EventSetAside
	refreshed int
}

func (*fakeProjections) Names() []string { return []string{"access", "datapoints", "memories"} }

func (f *fakeProjections) HeldUpAt(context.Context, eventstore.Position) ([]string, map[string]error) {
	return f.stopped, f.outside
}

func (f *fakeProjections) IsSetAside() map[eventstore.Position]registry.EventSetAside {
	return f.setAside
}

func (f *fakeProjections) RefreshSetAside(context.Context) error { f.refreshed++; return nil }
