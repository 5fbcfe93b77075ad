package transfer

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
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
