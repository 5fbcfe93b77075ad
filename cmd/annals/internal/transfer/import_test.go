package transfer

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
)

// busyServer refuses each batch until a time. It takes no time to answer.
type busyServer struct {
	until time.Time
	calls int
}

func (s *busyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	status, header, body := http.StatusOK, http.Header{}, "{}"
	switch {
	case r.URL.Path != "/api/v1/ingest/batch":
	case time.Now().Before(s.until):
		s.calls++
		header.Set("Retry-After", "5")
		status = http.StatusServiceUnavailable
		body = `{"code":"service-unavailable","debugMessage":"more is sent than can be derived"}`
	default:
		s.calls++
		body = `{"projectId":1,"ingestionId":"send-1","items":[{}]}`
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A server under load refuses for a while: the import waits for it, within a bound.
func TestImport_IsPatient(t *testing.T) {
	for name, c := range map[string]struct {
		busy    time.Duration
		sent    int
		failure string
	}{
		"less than it bears": {patience - time.Minute, 1, ""},
		"more than it bears": {patience + time.Minute, 0, "more is sent than can be derived"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &busyServer{until: time.Now().Add(c.busy)}
				connect := func(options ...client.Option) (*client.Client, error) {
					options = append(options, client.WithTransport(server))
					return client.New("http://annals.test", "svc_sk_secret", options...)
				}
				began := time.Now()
				sum, err := Import{
					Connect:  connect,
					Parallel: 1,
					Terminal: terminal.Streams{In: strings.NewReader(`{"id":"p0","content":"tea"}` + "\n"), Out: io.Discard},
				}.Points(t.Context(), "-")
				failed := err != nil && strings.Contains(err.Error(), c.failure)
				if sum.Sent != c.sent || failed != (c.sent == 0) {
					t.Errorf("after %d calls %+v, %v", server.calls, sum, err)
				}
				if took := time.Since(began); took < patience-2*time.Minute || took > patience {
					t.Errorf("it took %v", took)
				}
			})
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
