package pg

import (
	"archive/zip"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository serves programs that answer to --version as 16.9 and do nothing else.
func repository(t *testing.T) (url string, asked *[]string) {
	t.Helper()
	programs, err := os.ReadFile(filepath.Join("testdata", "programs.txz"))
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	entry, err := archive.Create("postgres-test.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Write(programs); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			http.NotFound(w, r)
			return
		}
		if _, err := w.Write(jar.Bytes()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections() // the library fetches with it
	})
	return server.URL, asked
}

func TestMissingProgramsAreFetchedOnce(t *testing.T) {
	url, asked := repository(t)
	home := t.TempDir()
	s := &Server{cfg: Config{searchPath: []string{filepath.Join(home, "none")}, repository: url}, log: discard()}
	for range 2 {
		got, err := s.binaries(t.Context(), 16, home)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(home, "cache", "16", "bin"); got.major != 16 || got.version != "16.9" || got.dir != want {
			t.Errorf("found %+v, want 16.9 in %s", got, want)
		}
	}
	if len(*asked) != 2 { // the archive and its checksum
		t.Errorf("asked for %v, want one archive", *asked)
	}
	left, err := filepath.Glob(filepath.Join(home, "cache", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetchThatFailsLeavesNothing(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	home := t.TempDir()
	s := &Server{cfg: Config{searchPath: []string{home}, repository: server.URL}, log: discard()}
	_, err := s.binaries(t.Context(), 0, home)
	if err == nil || !strings.Contains(err.Error(), "none could be fetched: install one, or name a server") {
		t.Errorf("without programs: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(home, "cache", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() {
		close(release)
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fetch(ctx, t.TempDir(), 16, server.URL); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("fetch under a cancelled context: %v", err)
	}
}
