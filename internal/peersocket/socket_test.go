package peersocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/peersocket"
)

// Through a real socket the peer is the user of this process: also where the path is long, and where a server died.
func TestServe_KnowsItsPeer(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	died := t.TempDir()
	left, err := net.Listen("unix", filepath.Join(died, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"short": t.TempDir(), "deep": deep, "left": died} {
		path := filepath.Join(dir, "socket")
		l, err := peersocket.Listen(t.Context(), path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(name, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- peersocket.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p, known := peersocket.Of(r.Context())
				_, _ = fmt.Fprint(w, p.UID, known)
			}))
		}()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: socket %v, %v", name, info, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%s: the folder holds %v, %v", name, files, err)
		}
		if got, want := get(t, path), fmt.Sprint(os.Geteuid(), true); got != want {
			t.Errorf("%s: the peer is %s, want %s", name, got, want)
		}
		stop()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the socket is still there: %v", name, err)
		}
	}
	if _, known := peersocket.Of(t.Context()); known {
		t.Error("a call of no socket has a peer")
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return peersocket.Dial(ctx, path) },
	}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://server")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
