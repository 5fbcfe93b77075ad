package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// countingStore counts the appends to streams and the reads of streams of some categories.
type countingStore struct {
	logStore
	categories []string

	mu    sync.Mutex
	calls map[string]int
}

func (c *countingStore) count(kind, name string) {
	category := stream.Category(name)
	if !slices.Contains(c.categories, category) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[kind+" "+category]++
}

// reset returns what was counted, and begins to count from zero.
func (c *countingStore) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := c.calls
	c.calls = map[string]int{}
	return counted
}

func (c *countingStore) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	c.count("append", name)
	return c.logStore.Append(ctx, name, expected, events)
}

func (c *countingStore) Read(
	ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	c.count("read", name)
	return c.logStore.Read(ctx, name, from, direction, limit)
}

func (c *countingStore) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	c.count("read", name)
	return c.logStore.ReadLast(ctx, name)
}

// A send of a new data point makes two appends until it is completed, and reads no stream. The watermark that
// ends it ends others with it, so stream pipeline is not counted, nor what runs without sends.
func TestIngest_CallsToTheEventStore(t *testing.T) {
	unraced(t)
	for name, separate := range map[string]bool{"embedded": false, "separate": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); countCalls(t, separate) })
	}
}

func countCalls(t *testing.T, separate bool) {
	h := newHarness(t)
	c := &countingStore{calls: map[string]int{}, categories: []string{
		stream.DataPoint, stream.Memory, stream.Identity, stream.Ingestion, stream.Blob, stream.Audiences,
	}}
	h.set = func(cfg *Config) {
		cfg.wrapStore = func(s logStore) logStore { c.logStore = s; return c }
		if separate {
			cfg.EventStore = nodetest.Start(t, node.Config{Insecure: true}).Connection().ConnectionString()
		}
	}
	h.start()
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "first", "content": "Ana likes tea.", "identity": "ana"})
	runtest.Await(t, "the directory has the author", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/identities/ana", nil)
		return status == http.StatusOK
	})
	created := map[string]int{"append datapoint": 1, "append memory": 1}
	// The append of a send that is taken for new is refused, and decided again on one read.
	changed := map[string]int{"append datapoint": 2, "append memory": 1, "read datapoint": 1}
	// Few enough that a slow machine has sent them before the finisher looks after a fan-out that takes long.
	batch := make([]point, 100)
	for i := range batch {
		batch[i] = point{"id": fmt.Sprint("item ", i), "content": "Ana likes tea.", "identity": "ana"}
	}
	for _, tt := range []struct {
		name, path string
		body       any
		want       map[string]int
	}{
		{"new", "/ingest", point{"id": "a", "content": "Ana likes tea."}, created},
		{"new, by a known author", "/ingest", point{"id": "b", "content": "Ana likes tea.", "identity": "ana"}, created},
		{
			"new, with all that is optional", "/ingest",
			point{"id": "c", "content": "Ana likes tea.", "label": "Talk", "metadata": point{"a": 1}, "audience": "project"},
			created,
		},
		{"new, long", "/ingest", point{"id": "d", "content": strings.Repeat("Ana likes tea. ", 8000)}, created},
		{"changed", "/ingest", point{"id": "a", "content": "Ana likes coffee."}, changed},
		{"changed again", "/ingest", point{"id": "a", "content": "Ana likes juice."}, changed},
		{"changed, by a known author", "/ingest", point{"id": "b", "content": "Ana likes coffee.", "identity": "ana"}, changed},
		{"changed, with stored metadata", "/ingest", point{"id": "c", "content": "Ana likes coffee."}, changed},
		{
			"sent again", "/ingest",
			point{"id": "a", "content": "Ana likes juice."},
			map[string]int{"append datapoint": 2, "read datapoint": 1},
		},
		{
			"batch", "/ingest/batch",
			point{"items": batch},
			map[string]int{
				"append datapoint": 100, "append memory": 100, "append ingestion": 2,
				"append blob": 1, "read blob": 1, // the stage, and its end
			},
		},
	} {
		c.reset()
		h.send(key, tt.path, "completed", tt.body)
		if diff := cmp.Diff(tt.want, c.reset()); diff != "" {
			t.Errorf("calls of a send that is %s (-want +got):\n%s", tt.name, diff)
		}
	}
}
