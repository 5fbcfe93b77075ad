package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// Somebody soft-deletes the stream of a data point in the event store: the next send completes, and operators read
// which stream it was, while others read that there was one.
func TestServer_StreamHidden(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	store := h.onNode()
	h.start()
	own, _ := h.keys()
	send := func(text string) {
		t.Helper()
		var receipt struct{ IngestionID string }
		h.must(own, http.MethodPost, api+"/ingest", map[string]any{"content": text, "id": "tea"}, &receipt)
		h.await(own, receipt.IngestionID, "completed")
	}
	send("The tea is in the red tin.")
	var name string
	for _, r := range eventstoretest.All(t, store, 0) {
		if stream.Category(r.Stream) == stream.DataPoint {
			name = r.Stream
		}
	}
	_, err := store.Append(t.Context(), "$$"+name, eventstore.NoStream, []eventstore.Proposed{
		{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(`{"$tb":9223372036854775807}`)},
	})
	runtest.Must(t, err)
	runtest.Await(t, "the damaged stream is shown", func() bool {
		return strings.Contains(h.readyz().body, `"streamsDamaged":"somebody else`)
	})
	if seen := h.readyz().body; strings.Contains(seen, "streamsRestored") || strings.Contains(seen, name) {
		t.Errorf("before: %s", seen)
	}
	if text := h.remarks(true).StreamsDamaged; !strings.Contains(text, name+" hidden") {
		t.Errorf("operators read %q", text)
	}
	if !strings.Contains(h.metrics(), "annals_streams_damaged 1\n") {
		t.Error("annals_streams_damaged is not 1")
	}
	send("The tea is in the blue tin.")
	runtest.Await(t, "no stream is damaged", func() bool { return !strings.Contains(h.readyz().body, "streamsDamaged") })
	if seen := h.readyz().body; !strings.Contains(seen, `"streamsRestored":"somebody else`) || strings.Contains(seen, name) {
		t.Errorf("after: %s", seen)
	}
	if text := h.remarks(true).StreamsRestored; !strings.Contains(text, name) {
		t.Errorf("operators read %q", text)
	}
}
