package recall_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
	"github.com/annals-project/annals/projections/runner"
)

// firstRevision is the first revision of a data point.
func firstRevision(project, id uuid.UUID, text string) datapoint.RevisionAccepted {
	send := uuid.Must(uuid.NewV7())
	return datapoint.RevisionAccepted{
		Send: datapoint.Send{
			ProjectID: project, IngestionID: send, Items: 1, AcceptedAt: at(1), RequestID: send,
			Bytes: int64(len(text)), Month: "2025-05",
		},
		States: datapoint.States{Effect: datapoint.State{
			SourceID: id.String(), Revision: 1, LastNumber: 1, OccurredAt: at(1), IngestionID: send,
		}},
		Body: datapoint.Body{Content: datapoint.Text{Inline: text}},
	}
}

// appendFiller appends so many events of unknown types.
func appendFiller(t *testing.T, store *eventstoretest.Memory, events int) {
	t.Helper()
	const page = 500
	for n := 0; n < events; n += page {
		filler := make([]eventstore.Proposed, page)
		for i := range filler {
			filler[i] = eventstore.Proposed{ID: uuid.New(), Type: "nothing.of-ours.v1", Data: []byte("{}")}
		}
		if _, err := store.Append(t.Context(), fmt.Sprint("filler-", n), eventstore.NoStream, filler); err != nil {
			t.Fatal(err)
		}
	}
}

// A rebuild may read text that is erased meanwhile. What it indexed and deleted again is in no file
// once the new index is in use.
func TestRebuild_TextErasedMeanwhile(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	codec := eventstoretest.Codec(t)
	store := eventstoretest.NewMemory()
	folder := filepath.Join(t.TempDir(), "index")
	index, err := bleve.Open(folder, bleve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := index.Close(); err != nil {
			t.Error(err)
		}
	})
	logID, project := uuid.New(), uuid.New()
	runtime, err := runner.New(runner.Config{
		DB: pgtest.Database(t), Store: store, Codec: codec, Logger: log,
		LogID: func(context.Context) (uuid.UUID, error) { return logID, nil },
		Projectors: []projections.Projector{recallindex.New(index, eventstore.Journal{Store: store, Codec: codec},
			recall.NewAnalyzers(), log)},
	})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, expected eventstore.Revision, events ...event.Event) {
		t.Helper()
		proposed, err := codec.EncodeAll(events,
			event.NewMeta("key:test", time.Now()))
		if err == nil {
			_, err = store.Append(t.Context(), name, expected, proposed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send := func(text string) uuid.UUID {
		t.Helper()
		id := uuid.New()
		write(stream.Name(stream.DataPoint, id), eventstore.NoStream, firstRevision(project, id, text))
		return id
	}
	send("A fennec stays.")
	deleted := send("A quokkazebra goes.")
	// The text and its deletion are in different pages.
	appendFiller(t, store, 5000)
	held := false
	rebuild := func() {
		t.Helper()
		err := runtime.Rebuild(t.Context(), recallindex.Name, func(p runner.RebuildProgress) {
			held = held || !p.Done && len(blevetest.Holding(t, folder, "quokkazebra")) > 0
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rebuild()
	if !held || len(blevetest.Holding(t, folder, "quokkazebra")) == 0 {
		t.Fatal("the word is in no file before it is deleted")
	}
	write(stream.Name(stream.DataPoint, deleted), 0,
		datapoint.Deleted{ProjectID: project, DeletionID: uuid.New(), DeletedAt: at(2)})
	held = false
	rebuild()
	if !held {
		t.Error("the rebuild did not come past the text: this test shows nothing")
	}
	if files := blevetest.Holding(t, folder, "quokkazebra"); len(files) > 0 {
		t.Errorf("the word is in %v", files)
	}
	if n, err := index.Count(t.Context(), project); err != nil || n != 1 {
		t.Errorf("%d documents, %v; want 1", n, err)
	}
}
