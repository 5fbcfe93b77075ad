package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
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

// batchService is a server that refuses every third batch and completes a send at the second question.
type batchService struct {
	mu    sync.Mutex
	calls int
	items int
	asked map[string]int
}

func (s *batchService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any
	if r.URL.Path == "/api/v1/ingest/batch" {
		if s.calls++; s.calls%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body struct{ Items []json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		s.items += len(body.Items)
		answer = client.BatchReceipt{IngestionID: fmt.Sprintf("b%d", s.calls)}
	} else {
		id := strings.TrimPrefix(r.URL.Path, "/api/v1/ingest/")
		s.asked[id]++
		status := client.IngestionStatus{Status: "processing"}
		if s.asked[id] > 1 {
			status.Status = "completed"
		}
		answer = status
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// A refused batch is counted and not repeated.
func TestImport_RefusedIsNotRepeated(t *testing.T) {
	s := &batchService{asked: map[string]int{}}
	server := httptest.NewServer(s)
	defer server.Close()
	to, err := client.New(server.URL, "k", client.WithMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Import{To: to, Batches: 10, Size: 4, Clients: 3, Run: "r"}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.calls != 10 || got.Refused != 3 || got.Accepted != 7 || s.items != 28 || len(got.Sent) != 7 ||
		len(got.Times) != 7 {
		t.Errorf("%d calls of %d items: %+v", s.calls, s.items, got)
	}
	if err := AwaitCompleted(t.Context(), to, got.Sent); err != nil {
		t.Fatal(err)
	}
	for _, id := range got.Sent {
		if s.asked[id] != 2 {
			t.Errorf("send %s was asked for %d times", id, s.asked[id])
		}
	}
}
