package operatorapi_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
)

// sends is a service with stopped sends.
type sends struct {
	stopped []operatorapi.Failed
	retried []uuid.UUID
	refuse  error
}

func (s *sends) FailedSends(_ context.Context, limit int, after uuid.UUID) ([]operatorapi.Failed, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	from := 0
	for i, f := range s.stopped {
		if f.IngestionID == after {
			from = i + 1
		}
	}
	return s.stopped[from:min(from+limit, len(s.stopped))], nil
}

func (s *sends) Retry(_ context.Context, id uuid.UUID) error {
	s.retried = append(s.retried, id)
	return s.refuse
}

// serve serves the handler on the socket of a folder until the test ends.
func serve(t *testing.T, dir string, s *sends) *operatorapi.Client {
	t.Helper()
	t.Cleanup(func() { // runs after the end of the server
		if _, err := os.Stat(operatorapi.Socket(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	operatortest.Serve(t, dir, operatorapi.SendRoutes(s)...)
	return operatorapi.Dial(dir)
}

func list(t *testing.T, c *operatorapi.Client, limit int, after string) (operatorapi.FailedList, error) {
	t.Helper()
	return operatorapi.ListFailed.Call(t.Context(), c, operatorapi.FailedRequest{Limit: limit, After: after})
}

func failed(n byte) operatorapi.Failed {
	at := time.Date(2026, 5, 1, 0, 0, int(n), 0, time.UTC)
	return operatorapi.Failed{
		IngestionID: uuid.UUID{n}, Project: "default", Code: "content-rejected", Message: "nothing to index",
		Items: 1, AcceptedAt: at, FailedAt: at.Add(time.Second),
	}
}

func TestFailed_PageByPage(t *testing.T) {
	s := &sends{stopped: []operatorapi.Failed{failed(1), failed(2), failed(3)}}
	c := serve(t, t.TempDir(), s)
	var got []operatorapi.Failed
	after, pages := "", 0
	for {
		page, err := list(t, c, 2, after)
		if err != nil {
			t.Fatal(err)
		}
		got, pages = append(got, page.Failed...), pages+1
		if after = page.After; after == "" {
			break
		}
	}
	if diff := cmp.Diff(s.stopped, got); diff != "" || pages != 2 {
		t.Errorf("%d pages: %s", pages, diff)
	}
}

func TestRetry_Refusals(t *testing.T) {
	s := &sends{}
	c := serve(t, t.TempDir(), s)
	for _, want := range []error{nil, operatorapi.ErrNotFound, operatorapi.ErrNotStopped, operatorapi.ErrDisabled} {
		s.refuse = want
		if _, err := operatorapi.Retry.Call(
			t.Context(), c, operatorapi.RetryRequest{ID: uuid.UUID{7}},
		); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if len(s.retried) != 4 || s.retried[0] != (uuid.UUID{7}) {
		t.Errorf("retried %v", s.retried)
	}
}

func TestFailed_ServiceFails(t *testing.T) {
	c := serve(t, t.TempDir(), &sends{refuse: errors.New("database is away")})
	if _, err := list(t, c, 1, ""); err == nil || !strings.Contains(err.Error(), "database is away") {
		t.Fatalf("got %v", err)
	}
}

func TestSocket_OtherUsers(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, &sends{})
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
	c := serve(t, dir, &sends{stopped: []operatorapi.Failed{failed(1)}})
	page, err := list(t, c, 10, "")
	if err != nil || len(page.Failed) != 1 {
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
	if _, err := list(t, operatorapi.Dial(dir), 1, ""); err == nil ||
		!strings.Contains(err.Error(), "no server is running") {
		t.Fatalf("got %v", err)
	}
	if _, err := list(t, serve(t, dir, &sends{}), 1, ""); err != nil {
		t.Fatal(err)
	}
}

func TestClient_NoServer(t *testing.T) {
	_, err := list(t, operatorapi.Dial(t.TempDir()), 1, "")
	if err == nil || !strings.HasPrefix(err.Error(), "no server is running on data folder") {
		t.Fatalf("got %v", err)
	}
}
