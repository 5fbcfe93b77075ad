package transfer

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/internal/client"
)

// A server under load refuses for a while: the import waits for it, within a bound.
func TestImport_IsPatient(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int64
		sent     int
		failure  string
	}{
		"one refusal less than it bears": {patient - 1, 1, ""},
		"as many refusals as it bears":   {patient, 0, "more is sent than can be derived"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/ingest/batch" {
					return
				}
				if calls.Add(1) <= c.refusals {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, `{"code":"service-unavailable","debugMessage":"more is sent than can be derived"}`)
					return
				}
				receipt := client.BatchReceipt{ProjectID: 1, IngestionID: "send-1", Items: make([]client.ItemReceipt, 1)}
				if err := json.NewEncoder(w).Encode(receipt); err != nil {
					panic(err)
				}
			}))
			defer server.Close()
			sum, err := Import{
				Connect:  func(o client.Options) (*client.Client, error) { return client.New(server.URL, "svc_sk_secret", o) },
				Parallel: 1,
				Terminal: terminal.Streams{In: strings.NewReader(`{"id":"p0","content":"tea"}` + "\n"), Out: io.Discard},
			}.Points(t.Context(), "-")
			if sum.Sent != c.sent || (err == nil) != (c.failure == "") || err != nil && !strings.Contains(err.Error(), c.failure) {
				t.Errorf("after %d calls %+v, %v", calls.Load(), sum, err)
			}
			if calls.Load() != patient {
				t.Errorf("the batch was sent %d times, want %d", calls.Load(), patient)
			}
		})
	}
}

// Next to a folder that cannot be written, the progress is below the state folder of the user, one file for each path.
func TestImport_ProgressFile(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	var said bytes.Buffer
	i := Import{Terminal: terminal.Streams{Out: &said}, canWrite: func(string) bool { return true }}
	if got, err := i.ownState("mail/box"); err != nil || got != "mail/box.progress" || said.Len() > 0 {
		t.Errorf("writable: %q, %v, %s", got, err, &said)
	}
	i.canWrite = func(string) bool { return false }
	one, err := i.ownState("mail/box")
	if err != nil || filepath.Dir(one) != filepath.Join(state, "annals", "import") || !strings.Contains(said.String(), one) {
		t.Errorf("not writable: %q, %v, %s", one, err, &said)
	}
	again, _ := i.ownState("mail/box")
	other, _ := i.ownState("other/box")
	if again != one || other == one {
		t.Errorf("the same path: %q and %q, another one: %q", one, again, other)
	}
	if err := os.WriteFile(one, nil, 0o600); err != nil {
		t.Error(err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(one, "below"))
	if _, err := i.ownState("mail/box"); err == nil || !strings.Contains(err.Error(), "--state") {
		t.Errorf("nowhere writable: %v", err)
	}
}

func TestIsWritable(t *testing.T) {
	dir := t.TempDir()
	if !isWritable(filepath.Join(dir, "new")) || isWritable(filepath.Join(dir, "missing", "new")) {
		t.Error("a folder that is there and one that is not are alike")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
