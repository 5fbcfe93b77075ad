package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// The main job: text in, memory derived, recalled with its sources, also after a restart.
func TestMainJob(t *testing.T) {
	t.Parallel()
	onEngines(t, mainJob)
}

func mainJob(t *testing.T, index []string) {
	s := newService(t, index...)
	s.start()
	c := s.client()
	r, err := c.Ingest(t.Context(), client.DataPoint{
		Content: "My favourite editor is Helix. I moved the launch to 3 June 2025.", ID: "call-1", Label: "Planning call",
		Timestamp: "2025-05-12T09:30:00+02:00", Metadata: json.RawMessage(`{"channel":"zoom","n":1.50}`), Identity: "Ana",
	})
	if err != nil || r.Status != "queued" || r.SourceID != "call-1" {
		t.Fatalf("receipt %+v, %v", r, err)
	}
	completed(t.Context(), t, c, r.IngestionID)
	check := func() {
		t.Helper()
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: "Which editor does Ana like?", Identity: "bo"})
		if err != nil || len(page.Results) == 0 {
			t.Fatalf("recall: %+v, %v", page, err)
		}
		kinds := make(map[string]client.RecallResult)
		for i, result := range page.Results {
			if result.Rank != i+1 {
				t.Errorf("rank %d at place %d", result.Rank, i+1)
			}
			kinds[result.Artifact.Kind] = result
		}
		source := kinds["source"]
		if !strings.HasPrefix(source.Content, "My favourite editor") || len(source.Sources) != 1 ||
			len(source.Sources[0].Excerpts) != 0 {
			t.Errorf("source %+v", source)
		}
		if at := source.OccurredAt; !at.Equal(time.Date(2025, 5, 12, 7, 30, 0, 0, time.UTC)) {
			t.Errorf("occurred at %s", at)
		}
		if got := source.Sources[0]; got.SourceID != "call-1" || got.Label != "Planning call" ||
			string(got.Metadata) != `{"channel":"zoom","n":1.50}` {
			t.Errorf("evidence %+v", got)
		}
		claim, ok := kinds["claim"]
		if !ok || !strings.Contains(claim.Content, "Helix") || len(claim.Sources) != 1 ||
			len(claim.Sources[0].Excerpts) != 1 ||
			!strings.Contains(source.Content, claim.Sources[0].Excerpts[0]) {
			t.Errorf("claim %+v of %+v", claim, page.Results)
		}
	}
	check()
	s.stop()
	s.start()
	check()
}

func TestPipeline_Off(t *testing.T) {
	t.Parallel()
	s := newService(t, sharedPostgres(t), "ANNALS_PIPELINE=off")
	s.start()
	c := s.client()
	r, err := c.Ingest(t.Context(), client.DataPoint{Content: "Bo prefers green tea over coffee"})
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.GetIngestion(t.Context(), r.IngestionID)
	if err != nil || status.Status != "processing" || status.Readiness.Raw != 1 || status.Settled || status.Blocked {
		t.Errorf("status %+v, %v", status, err)
	}
	wantRefused(t, errorOf(c.RetryIngestion(t.Context(), r.IngestionID)), http.StatusServiceUnavailable, "pipeline-disabled")
	// The words themselves are recalled before anything was derived from them.
	runtest.Await(t, "the text is recalled", func() bool {
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: "green tea", Identity: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Results) == 1 && page.Results[0].Artifact.Kind == "source"
	})
	s.stop()
	s.env = nil
	s.start()
	completed(t.Context(), t, c, r.IngestionID)
}

// A deletion is refused to a neighbour and takes effect at once for the owner.
func TestNeighboursAndDeletion(t *testing.T) {
	t.Parallel()
	onEngines(t, neighboursAndDeletion)
}

func neighboursAndDeletion(t *testing.T, index []string) {
	s := newService(t, append(index, sharedPostgres(t))...)
	s.start()
	owner := s.client()
	neighbour, slug, key := s.neighbour()
	r, err := owner.Ingest(t.Context(), client.DataPoint{Content: "The vault code is 4711", ID: "a/b c", IdempotencyKey: "key"})
	if err != nil {
		t.Fatal(err)
	}
	completed(t.Context(), t, owner, r.IngestionID)

	_, err = neighbour.GetIngestion(t.Context(), r.IngestionID)
	wantRefused(t, err, http.StatusNotFound, "not-found")
	wantRefused(t, errorOf(neighbour.RetryIngestion(t.Context(), r.IngestionID)), http.StatusNotFound, "not-found")
	wantRefused(t, neighbour.DeleteIngestion(t.Context(), r.IngestionID), http.StatusNotFound, "not-found")
	_, err = neighbour.DeleteDataPoints(t.Context(), []string{"a/b c"})
	wantRefused(t, err, http.StatusNotFound, "data-point-not-found")
	if page, err := neighbour.Recall(t.Context(), client.RecallRequest{Query: "vault code", Identity: "x"}); err != nil ||
		len(page.Results) != 0 {
		t.Errorf("the neighbour recalls %+v, %v", page, err)
	}
	// The same id and the same key are others next door.
	if other, err := neighbour.Ingest(t.Context(), client.DataPoint{Content: "mine", ID: "a/b c", IdempotencyKey: "key"}); err != nil ||
		other.IngestionID == r.IngestionID {
		t.Errorf("next door: %+v, %v", other, err)
	}
	wantRefused(t, errorOf(owner.RetryIngestion(t.Context(), r.IngestionID)), http.StatusConflict, "ingestion-not-stopped")
	wantRefused(t, errorOf(owner.RetryIngestion(t.Context(), uuid.NewString())), http.StatusNotFound, "not-found")

	receipt, err := owner.DeleteDataPoints(t.Context(), []string{"a/b c"})
	if err != nil || len(receipt.IDs) != 1 {
		t.Fatalf("deletion %+v, %v", receipt, err)
	}
	if page, err := owner.Recall(t.Context(), client.RecallRequest{Query: "vault code", Identity: "x"}); err != nil ||
		len(page.Results) != 0 {
		t.Errorf("after its deletion it is recalled: %+v, %v", page, err)
	}
	_, err = owner.DeleteDataPoints(t.Context(), []string{"a/b c"})
	wantRefused(t, err, http.StatusNotFound, "data-point-not-found")
	_, err = owner.Ingest(t.Context(), client.DataPoint{Content: "again", ID: "a/b c"})
	wantRefused(t, err, http.StatusConflict, "data-point-deleted")
	if status, err := owner.GetIngestion(t.Context(), r.IngestionID); err != nil || status.Status != "completed" ||
		!status.Settled {
		t.Errorf("the deleted send polls %+v, %v", status, err)
	}

	if err := s.management().RevokeProjectKey(t.Context(), slug, key); err != nil {
		t.Fatal(err)
	}
	_, err = neighbour.Recall(t.Context(), client.RecallRequest{Query: "mine", Identity: "x"})
	wantRefused(t, err, http.StatusUnauthorized, "unauthorized")
}

func wantRefused(t *testing.T, err error, status int, code string) {
	t.Helper()
	var refused *client.APIError
	if !errors.As(err, &refused) || refused.Status != status || refused.Code != code {
		t.Errorf("answered %v, want %d %s", err, status, code)
	}
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// What keeps a service from starting is one clear line, after the first of the log.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command(binary, append([]string{"serve"}, args...)...).CombinedOutput()
		_, cause, said := strings.Cut("\n"+strings.TrimSpace(string(out)), "\nannals: ")
		if err == nil || !said || strings.Contains(cause, "\n") || !strings.Contains(cause, want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	fails(
		"choose another with ANNALS_API_ADDR (--api-addr)",
		"--data-dir", t.TempDir(), "--api-addr", s.addr, "--console-addr", "127.0.0.1:0",
	)
	fails(
		"choose another with ANNALS_CONSOLE_ADDR (--console-addr)",
		"--data-dir", t.TempDir(), "--api-addr", "127.0.0.1:0", "--console-addr", s.addr,
	)
	fails("in use by another process", "--data-dir", s.dir, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0")
	fails("ANNALS_PIPELINE", "--data-dir", t.TempDir(), "--pipeline", "maybe")
}
