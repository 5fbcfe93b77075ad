package load

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

func TestFill_MatchesAService(t *testing.T) {
	codec := eventstoretest.Codec(t)
	store, project, namespace := eventstoretest.NewMemory(), uuid.New(), uuid.New()
	fill := Fill{Store: store, Codec: codec, Project: project, Namespace: namespace, Words: 5, Callers: 3}
	for _, span := range [][2]int{{0, 7}, {7, 12}} {
		if err := fill.Run(t.Context(), span[0], span[1]); err != nil {
			t.Fatal(err)
		}
	}
	types := func(name string) (list []string) {
		t.Helper()
		recorded, err := store.Read(t.Context(), name, 0, eventstore.Forwards, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recorded {
			if _, err := codec.Decode(r); err != nil {
				t.Fatal(err)
			}
			list = append(list, r.Type)
		}
		return list
	}
	for n := range 12 {
		id := stream.DataPointID(namespace, fmt.Sprintf("fill/%d", n))
		if got := types(stream.Name(stream.DataPoint, id)); !slices.Equal(got, []string{"datapoint.revision-accepted.v1"}) {
			t.Errorf("text %d: %v", n, got)
		}
		if got := types(stream.Name(stream.Memory, id)); !slices.Equal(got, []string{"memory.derived.v1"}) {
			t.Errorf("memory of text %d: %v", n, got)
		}
	}
	// Written twice, a text is refused: the log has it already.
	if err := fill.Run(t.Context(), 3, 4); err == nil {
		t.Error("a text was written twice")
	}
}
