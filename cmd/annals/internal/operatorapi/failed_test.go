package operatorapi_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/projections/datapoints"
)

// serve serves the handler on the socket of a folder until the test ends.
func serve(t *testing.T, dir string, s *operatortest.Sends) *operatorapi.Client {
	t.Helper()
	t.Cleanup(func() { // runs after the end of the server
		if _, err := os.Stat(operatorapi.Socket(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	operatortest.Serve(t, dir, s.Routes()...)
	return operatorapi.Dial(dir)
}

func list(t *testing.T, c *operatorapi.Client) (all []datapoints.StoppedSend, err error) {
	t.Helper()
	err = operatorapi.ListFailed.Call(t.Context(), c, operatorapi.None{}, func() {}, func(f datapoints.StoppedSend) error {
		all = append(all, f)
		return nil
	})
	return all, err
}

func failed(n byte) datapoints.StoppedSend {
	at := time.Date(2026, 5, 1, 0, 0, int(n), 0, time.UTC)
	return datapoints.StoppedSend{
		IngestionID: uuid.UUID{n}, Project: "default", Code: "content-rejected", Message: "nothing to index",
		Items: 1, AcceptedAt: at, FailedAt: at.Add(time.Second),
	}
}

func TestFailed_OneAfterTheOther(t *testing.T) {
	s := &operatortest.Sends{Stopped: []datapoints.StoppedSend{failed(1), failed(2), failed(3)}}
	got, err := list(t, serve(t, t.TempDir(), s))
	if diff := cmp.Diff(s.Stopped, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
}

func TestRetry_Refusals(t *testing.T) {
	s := &operatortest.Sends{}
	c := serve(t, t.TempDir(), s)
	for _, want := range []error{nil, operatorapi.ErrNotFound, operatorapi.ErrNotStopped, operatorapi.ErrDisabled} {
		s.Refuse = want
		if _, err := operatorapi.Retry.Call(
			t.Context(), c, operatorapi.RetryRequest{ID: uuid.UUID{7}},
		); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if len(s.Retried) != 4 || s.Retried[0] != (uuid.UUID{7}) {
		t.Errorf("retried %v", s.Retried)
	}
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if by := s.RetriedBy[0]; by != "operator "+current.Username {
		t.Errorf("retried by %q, want the user at the other end of the socket", by)
	}
}

func TestFailed_ServiceFails(t *testing.T) {
	c := serve(t, t.TempDir(), &operatortest.Sends{Refuse: errors.New("database is away")})
	if _, err := list(t, c); err == nil || !strings.Contains(err.Error(), "database is away") {
		t.Fatalf("got %v", err)
	}
}

func TestSocket_OtherUsers(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, &operatortest.Sends{})
	info, err := os.Stat(operatorapi.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("folder holds %v, %v", left, err)
	}
}

func TestSocket_DeepDataFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir, &operatortest.Sends{Stopped: []datapoints.StoppedSend{failed(1)}})
	page, err := list(t, c)
	if err != nil || len(page) != 1 {
		t.Fatalf("got %v, %v", page, err)
	}
}

func TestSocket_LeftByADeadServer(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", operatorapi.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := list(t, operatorapi.Dial(dir)); err == nil ||
		!strings.Contains(err.Error(), "no server is running") {
		t.Fatalf("got %v", err)
	}
	if _, err := list(t, serve(t, dir, &operatortest.Sends{})); err != nil {
		t.Fatal(err)
	}
}

func TestClient_NoServer(t *testing.T) {
	_, err := list(t, operatorapi.Dial(t.TempDir()))
	if err == nil || !strings.HasPrefix(err.Error(), "no server is running on data folder") {
		t.Fatalf("got %v", err)
	}
}
