package recalltest

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"os"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/embeddings"
)

// EmbeddingsVariable names the environment variable that makes every harness use semantic search.
const EmbeddingsVariable = "ANNALS_TEST_EMBEDDINGS"

// HashModel is the model name of Hashed.
const HashModel = "hashed words"

// hashDims is how many dimensions vectors of Hashed have: so many that few words share one.
const hashDims = 1024

// Hashed is an embedding that only distinguishes words: each stem adds to one dimension.
func Hashed(_ context.Context, text string) ([]float32, error) {
	vector := make([]float32, hashDims)
	for _, term := range recall.NewAnalyzer().Stems(text) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(term))
		vector[h.Sum32()%hashDims]++
	}
	return vector, nil
}

// UseSemantic turns semantic search on, with an embedding or, if that is nil, Hashed.
func (h *Harness) UseSemantic(embed embeddings.Embed) *embeddings.Finder {
	if embed == nil {
		embed = Hashed
	}
	h.semantic = true
	return embeddings.NewFinder(embed, embeddings.NewColumns(h.DB, HashModel), slog.New(slog.DiscardHandler))
}

func alwaysSemantic() bool { return os.Getenv(EmbeddingsVariable) != "" }

// embed stores the vectors of new events, as the pipeline does.
func (h *Harness) embed() {
	h.t.Helper()
	for {
		recorded, err := h.Store.ReadAll(h.t.Context(), h.embedded, h.PageSize)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(recorded) == 0 {
			return
		}
		for _, r := range recorded {
			h.embedded = r.Position
			switch e := h.Codec.DecodeRecorded(r).Event.(type) {
			case *datapoint.RevisionAccepted:
				h.storeVectors(r.Stream, e.Effect.Revision, h.vectorsOf(e))
			case *memory.Derived:
				h.storeVectors(r.Stream, e.Revision, h.lineVectors(r.Stream, e))
			}
		}
	}
}

func vector(text string) (v memory.Vector, ok bool) {
	direction, _ := Hashed(context.Background(), text) // Hashed never fails
	v.Scale, v.Code, ok = memory.Quantize(direction)
	return v, ok
}

func (h *Harness) vectorsOf(e *datapoint.RevisionAccepted) (vectors []memory.Vector) {
	content := e.Content.Inline
	if e.Content.Blob != nil {
		data, err := h.ReadBlob(h.t.Context(), *e.Content.Blob)
		if err != nil {
			return nil
		}
		content = string(data)
	}
	for span := range recall.Split(content) {
		if v, ok := vector(content[span.Start:span.End]); ok {
			v.Passage = len(vectors)
			vectors = append(vectors, v)
		}
	}
	return vectors
}

// lineVectors returns the vectors of a captured revision, including those of its passages.
func (h *Harness) lineVectors(name string, e *memory.Derived) (vectors []memory.Vector) {
	owner := stream.Owner(name)
	records, err := h.Store.Read(h.t.Context(), stream.Name(stream.DataPoint, owner), 0, eventstore.Forwards, h.PageSize)
	if err != nil {
		return nil
	}
	for _, r := range records {
		if accepted, ok := h.Codec.DecodeRecorded(r).Event.(*datapoint.RevisionAccepted); ok &&
			accepted.Effect.Revision == e.Revision {
			vectors = h.vectorsOf(accepted)
		}
	}
	for _, m := range e.Memories {
		if v, ok := vector(m.Content); ok {
			v.Memory = m.ID
			vectors = append(vectors, v)
		}
	}
	return vectors
}

func (h *Harness) storeVectors(name string, revision int, vectors []memory.Vector) {
	h.t.Helper()
	name = stream.Name(stream.Memory, stream.Owner(name))
	expected := eventstore.NoStream
	last, ok, err := h.Store.ReadLast(h.t.Context(), name)
	if errors.Is(err, eventstore.ErrDeleted) {
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if ok {
		expected = last.Revision
	}
	proposed, err := h.Codec.Encode(memory.Embedded{
		ProjectID: h.Project.ID, Revision: revision, Model: HashModel, Dims: hashDims, Part: 1, Parts: 1, Vectors: vectors,
		EmbeddedAt: h.Now,
	}, 0, event.NewMeta("", h.Now))
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Store.Append(h.t.Context(), name, expected, []eventstore.Proposed{proposed}); err != nil {
		h.t.Fatal(err)
	}
}
