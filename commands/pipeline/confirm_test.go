package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

// standstill is projections that do not move.
type standstill map[string]eventstore.Position

func (standstill) Wait(context.Context, eventstore.Position, ...string) error { return nil }
func (s standstill) Position(_ context.Context, name string) (eventstore.Position, error) {
	return s[name], nil
}
func (standstill) Watch(string) (<-chan struct{}, func()) { return nil, func() {} }

type listed []todo.Send

func (l listed) Confirmable(context.Context, int) ([]todo.Send, error) { return l, nil }

// A send waits for the index as long as the index may come back, and then stops with its reason; a failure of its own is told at once.
func TestConfirmerWaitsForTheIndex(t *testing.T) {
	b := newBench(t, "text")
	clock := at
	var trouble error
	waits := todo.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10}
	fails := todo.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10, Failure: &todo.Failure{Code: ingestion.ModelUnavailable, Message: "no answer"}}
	progress := standstill{dataPoints: 5, memories: 20, recallIndex: 9}
	c := &Confirmer{
		Log: b.Log, Sends: listed{waits, fails}, Progress: progress, Logger: b.Logger,
		IndexTrouble: func(context.Context) error { return trouble }, Now: func() time.Time { return clock }, answered: make(map[uuid.UUID]eventstore.Position),
	}
	want := func(id uuid.UUID, types ...string) {
		t.Helper()
		if _, err := c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		facts, err := b.Log.ReadFrom(t.Context(), stream.Name(stream.Ingestion, id), 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range facts {
			got = append(got, f.Type)
		}
		if strings.Join(got, " ") != strings.Join(types, " ") {
			t.Errorf("events %v, want %v", got, types)
		}
	}
	want(fails.IngestionID, "ingestion.failed.v1")
	want(waits.IngestionID)
	trouble = errors.New("disk full")
	want(waits.IngestionID)
	clock = clock.Add(indexPatience)
	want(waits.IngestionID) // not longer than it may
	trouble = nil
	want(waits.IngestionID) // it came back: the patience begins anew
	trouble = errors.New("disk full")
	want(waits.IngestionID)
	clock = clock.Add(indexPatience + time.Second)
	want(waits.IngestionID, "ingestion.failed.v1")
	facts, err := b.Log.ReadFrom(t.Context(), stream.Name(stream.Ingestion, waits.IngestionID), 0)
	if err != nil || facts[0].Event.(*ingestion.Failed).Code != ingestion.IndexUnavailable {
		t.Errorf("it stopped with %+v, %v", facts, err)
	}

	// Once the index is there, a send that waits is confirmed, once.
	other := todo.Send{ProjectID: b.item.ProjectID, IngestionID: uuid.New(), Position: 10}
	c.Sends, trouble = listed{other}, nil
	progress[recallIndex] = 10
	want(other.IngestionID, "ingestion.indexed.v1")
	want(other.IngestionID, "ingestion.indexed.v1")
}
