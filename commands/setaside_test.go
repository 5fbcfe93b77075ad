package commands_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

func TestSetEventAside(t *testing.T) {
	codec := eventstoretest.Codec(t)
	store := eventstoretest.NewMemory()
	log := commands.NewJournal(store, codec, slog.New(slog.DiscardHandler))
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	start := commands.FirstStart{Organization: "Annals", HashKey: make([]byte, 32), At: at}
	if err := commands.Bootstrap(t.Context(), log, start); err != nil {
		t.Fatal(err)
	}
	first, err := store.Read(t.Context(), stream.Registry, 0, eventstore.Forwards, 1)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	odd, err := store.Append(t.Context(), stream.Registry, 3,
		[]eventstore.Proposed{{ID: id, Type: "registry.unheard-of.v9", Data: []byte(`{}`), Meta: []byte(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		at   eventstore.Position
		want error
	}{
		"a position without an event": {odd.Position + 1, commands.ErrNoSuchEvent},
		"the id of the log":           {first[0].Position, commands.ErrNotSetAside},
	} {
		if _, err := commands.SetEventAside(t.Context(), log, commands.SetAside{Position: c.at, At: at}); !errors.Is(
			err, c.want,
		) {
			t.Errorf("%s: %v", name, err)
		}
	}
	setAside := func(projections ...string) registry.EventSetAside {
		t.Helper()
		e, err := commands.SetEventAside(t.Context(), log, commands.SetAside{
			Position:    odd.Position,
			Projections: projections,
			Reason:      "written by mistake",
			By:          "operator",
			At:          at,
		})
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	again := commands.SetAside{Position: last[0].Position, At: at}
	if _, err := commands.SetEventAside(t.Context(), log, again); !errors.Is(err, commands.ErrNotSetAside) {
		t.Errorf("a decision itself is set aside: %v", err)
	}
}
