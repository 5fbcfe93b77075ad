package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// A send that cannot be derived stops with its reason, blocks nobody, and can be retried by its
// owner and by the operator.
func TestSend_Stopped(t *testing.T) {
	t.Parallel()
	s := newService(t, sharedPostgres(t))
	s.start()
	c := s.client()
	r, err := c.IngestBatch(t.Context(), client.Batch{RawItems: []json.RawMessage{
		json.RawMessage(
			`{"id":"good","content":"Bo moved to Lisbon"}`,
		), json.RawMessage(`{"id":"bad","content":"... !!! ---"}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	status := stopped(t.Context(), t, c, r.IngestionID)
	if status.Failure == nil || status.Failure.Code != "content-rejected" || !status.Blocked || status.Settled ||
		status.Readiness.Failed != 1 {
		t.Errorf("status %+v", status)
	}
	// The send failed before its other text was searchable. That text becomes searchable by itself.
	var page *client.RecallResponse
	runtest.Await(t, "the text beside it is recalled", func() bool {
		page, err = c.Recall(t.Context(), client.RecallRequest{Query: "Where does Bo live? Lisbon", Identity: "x"})
		return err != nil || len(page.Results) > 0
	})
	if err != nil || page.Results[0].Sources[0].SourceID != "good" {
		t.Errorf("recall of the other text: %+v, %v", page, err)
	}
	out, err := exec.Command(binary, "failed", "--data-dir", s.dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), r.IngestionID) || !strings.Contains(string(out), "content-rejected") {
		t.Errorf("annals failed: %v\n%s", err, out)
	}
	if _, err := c.RetryIngestion(t.Context(), r.IngestionID); err != nil {
		t.Fatal(err)
	}
	stopped(t.Context(), t, c, r.IngestionID) // the same content stops the same way
	// Changed and sent as a new revision, it completes, and the failure does not count any more.
	fixed, err := c.Ingest(t.Context(), client.DataPoint{ID: "bad", Content: "Now with words"})
	if err != nil {
		t.Fatal(err)
	}
	completed(t.Context(), t, c, fixed.IngestionID)
	if status, err := c.GetIngestion(t.Context(), r.IngestionID); err != nil || status.Status != "failed" || !status.Settled ||
		status.Readiness.Failed != 0 {
		t.Errorf("after a newer revision: %+v, %v", status, err)
	}
	wantRefused(t, errorOf(c.RetryIngestion(t.Context(), fixed.IngestionID)), http.StatusConflict, "ingestion-not-stopped")
}

// stopped waits until a send has failed.
func stopped(ctx context.Context, t *testing.T, c *client.Client, id string) *client.IngestionStatus {
	t.Helper()
	var status *client.IngestionStatus
	var err error
	runtest.Await(t, "send "+id+" fails", func() bool {
		status, err = c.GetIngestion(ctx, id)
		return err != nil || status.Status == "failed"
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}
