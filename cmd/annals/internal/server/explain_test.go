package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
)

// explainedCall is the answer of explain.
type explainedCall struct {
	IngestionID  *string        `json:"ingestionId"`
	RequestID    string         `json:"requestId"`
	Status       int            `json:"status"`
	ErrorCode    *string        `json:"errorCode"`
	AcceptedAt   time.Time      `json:"acceptedAt"`
	SettledAt    *time.Time     `json:"settledAt"`
	Phase        string         `json:"phase"`
	Failure      map[string]any `json:"failure"`
	Items        []explainedItem
	ItemsOmitted int      `json:"itemsOmitted"`
	Credits      *float64 `json:"credits"`
	Next         string   `json:"next"`
}

type explainedItem struct {
	DataPointID *string `json:"dataPointId"`
	Revision    int     `json:"revision"`
	Status      string  `json:"status"`
	Searchable  bool    `json:"searchable"`
	Memories    int     `json:"memories"`
	SourceID    *string `json:"sourceId"`
}

func (h *harness) explain(key, id string) (e explainedCall) {
	h.t.Helper()
	h.must(key, http.MethodGet, api+"/ingest/"+id+"/explain", nil, &e)
	return e
}

// sendOnce sends without waiting, and returns the ids of the send and of the request.
func (h *harness) sendOnce(key, path string, status int, body any) (ingestion, request string) {
	h.t.Helper()
	got, header, answer := h.callWithHeader(key, http.MethodPost, api+path, body)
	var receipt struct {
		IngestionID string `json:"ingestionId"`
	}
	if err := json.Unmarshal(answer, &receipt); err != nil || got != status {
		h.t.Fatalf("%d %s, %v", got, answer, err)
	}
	return receipt.IngestionID, header.Get("X-Request-Id")
}

// A send is explained from the moment that it is answered until after its deletion.
func TestServer_ExplainASend(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	key, management := h.credentials()[datafolder.ProjectKeyName], h.createAcme().ManagementKey
	other := h.newProject(management, "Tea")

	id, request := h.sendOnce(key, "/ingest", 202, point{"id": "a/b", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"})
	at := h.explain(key, id)
	if at.RequestID != request || *at.IngestionID != id || at.Status != 202 || at.ErrorCode != nil ||
		at.Credits != nil || at.Next == "" {
		t.Errorf("at once: %+v", at)
	}
	h.await(key, id, "completed")
	done := h.explain(key, request)
	if done.Phase != "indexed" || done.SettledAt == nil || done.SettledAt.Before(done.AcceptedAt) || len(done.Items) != 1 {
		t.Fatalf("indexed: %+v", done)
	}
	item := done.Items[0]
	if item.Memories == 0 || item.SourceID == nil || !item.Searchable || *item.DataPointID != "a/b" || item.Status != "created" {
		t.Errorf("item %+v", item)
	}
	node := *item.SourceID
	for _, stranger := range []string{other, management} {
		status, code := 404, "not-found"
		if stranger == management {
			status, code = 401, "unauthorized"
		}
		h.wants(stranger, http.MethodGet, api+"/ingest/"+id+"/explain", nil, status, code)
		h.wants(stranger, http.MethodGet, api+"/ingest/"+request+"/explain", nil, status, code)
	}
	h.wants(key, http.MethodGet, api+"/ingest/"+uuid.NewString()+"/explain", nil, 404, "not-found")

	same, _ := h.sendOnce(key, "/ingest", 200, point{"id": "a/b", "content": "Ana likes tea. Bo lives in Rome.", "identity": "Ana"})
	unchanged := h.explain(key, same)
	if unchanged.Phase != "nothing-changed" || unchanged.Status != 200 || unchanged.Items[0].Status != "unchanged" ||
		*unchanged.Items[0].SourceID != node || unchanged.Items[0].Memories != item.Memories {
		t.Errorf("unchanged: %+v", unchanged)
	}

	h.must(key, http.MethodDelete, api+"/ingest/"+id, nil, nil)
	gone := h.explain(key, request)
	want := []explainedItem{{Revision: 1, Status: "deleted", SourceID: &node}}
	if diff := cmp.Diff(want, gone.Items); diff != "" || !strings.HasPrefix(gone.Next, "Nothing: what was sent is deleted") {
		t.Errorf("deleted (-want +got):\n%s%+v", diff, gone)
	}
	if again := h.explain(key, same); again.Items[0].Status != "deleted" || again.Items[0].DataPointID != nil {
		t.Errorf("the unchanged item of a deleted data point: %+v", again.Items)
	}
}

// The first 100 items of a batch are listed, and what it cost.
func TestServer_ExplainABatch(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	key := h.newProject(h.createAcme().ManagementKey, "Tea")
	items := make([]point, 130)
	for n := range items {
		items[n] = point{"id": fmt.Sprint(n), "content": fmt.Sprintf("Ana likes tea number %d.", n)}
	}
	id, _ := h.sendOnce(key, "/ingest/batch", 202, point{"items": items})
	h.await(key, id, "completed")
	e := h.explain(key, id)
	if len(e.Items) != 100 || e.ItemsOmitted != 30 || e.Credits == nil || *e.Credits != 130 {
		t.Fatalf("%d items, %d omitted, credits %v", len(e.Items), e.ItemsOmitted, e.Credits)
	}
	for n, item := range e.Items {
		if *item.DataPointID != fmt.Sprint(n) || !item.Searchable || item.Revision != 1 || item.Memories == 0 {
			t.Errorf("item %d: %+v", n, item)
		}
	}
}
