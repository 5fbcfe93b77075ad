package pg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// repository serves programs that answer to --version as 16.9 and do nothing else.
func repository(t *testing.T) (url, checksum string, asked *[]string) {
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
		if _, err := w.Write(jar.Bytes()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(programs)
	return server.URL, hex.EncodeToString(sum[:]), asked
}

// self runs programs as they are.
var self = osUser{name: "self", apply: func(*syscall.SysProcAttr) {}}

func TestFetch_MissingProgramsOnce(t *testing.T) {
	url, checksum, asked := repository(t)
	home := t.TempDir()
	s := &Server{logger: discard(), cfg: Config{
		searchPath: []string{filepath.Join(home, "none")}, repository: url, checksum: checksum, fallbackBase: home,
	}}
	cache, err := s.cacheFolder(t.Context(), home, home, self)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := s.binaries(t.Context(), 16, home, home, self)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(cache, "16", "bin"); got.major != 16 || got.version != "16.9" || got.dir != want {
			t.Errorf("found %+v, want 16.9 in %s", got, want)
		}
	}
	name := "embedded-postgres-binaries-" + platform()
	if want := "/io/zonky/test/postgres/" + name + "/16.9.0/" + name + "-16.9.0.jar"; !slices.Equal(*asked, []string{want}) {
		t.Errorf("asked for %v, want once %s", *asked, want)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetch_FailureLeavesNothing(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	home := t.TempDir()
	s := &Server{cfg: Config{searchPath: []string{home}, repository: server.URL, fallbackBase: home}, logger: discard()}
	cache, err := s.cacheFolder(t.Context(), home, home, self)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.binaries(t.Context(), 0, home, home, self)
	if err == nil || !strings.Contains(err.Error(), "none could be fetched: install one, or name a server") {
		t.Errorf("without programs: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetch_ContextEnds(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() {
		close(release)
		server.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &Server{cfg: Config{repository: server.URL, checksum: "any"}, logger: discard()}
	if _, err := s.fetch(ctx, t.TempDir(), 16); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("fetch under a cancelled context: %v", err)
	}
}

// An archive that is not the pinned one is refused before anything of it is unpacked.
func TestFetch_AnotherArchive(t *testing.T) {
	url, checksum, _ := repository(t)
	cache := t.TempDir()
	for want, ok := range map[string]bool{checksum: true, strings.Repeat("0", 64): false, "": false} {
		s := &Server{cfg: Config{repository: url, checksum: want}, logger: discard()}
		folder, err := s.fetch(t.Context(), cache, 16)
		if ok {
			if _, statErr := os.Stat(filepath.Join(folder, "postgres")); err != nil || statErr != nil {
				t.Errorf("the pinned archive: %v, %v", err, statErr)
			}
		} else if err == nil || !strings.Contains(err.Error(), "the archive is not the one that this program trusts") {
			t.Errorf("pinned as %q: %v", want, err)
		}
		left, err := os.ReadDir(cache)
		if err != nil || len(left) > 0 && !ok {
			t.Errorf("pinned as %q: the cache holds %v, %v", want, left, err)
		}
		if err := os.RemoveAll(filepath.Join(cache, "16")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnpack_OutsideOfItsFolder(t *testing.T) {
	for name, header := range map[string]tar.Header{
		"file above":    {Typeflag: tar.TypeReg, Name: "../evil", Mode: 0o755},
		"absolute file": {Typeflag: tar.TypeReg, Name: "/evil", Mode: 0o755},
		"link above":    {Typeflag: tar.TypeSymlink, Name: "bin/link", Linkname: "../../evil"},
		"absolute link": {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc/passwd"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := unpackTar(tar.NewReader(&b), filepath.Join(t.TempDir())); err == nil {
			t.Errorf("%s is unpacked", name)
		}
	}
}

func TestChecksums_Complete(t *testing.T) {
	sum := regexp.MustCompile(`^[0-9a-f]{64}$`)
	for _, on := range []string{"linux-amd64", "linux-arm64v8", "darwin-amd64", "darwin-arm64v8", "linux-amd64-alpine"} {
		for _, version := range fetchable {
			if strings.HasSuffix(on, "arm64v8") && (strings.HasPrefix(version, "14.") || strings.HasPrefix(version, "15.")) {
				continue // those versions were not to be had for it
			}
			if !sum.MatchString(checksums[on][version]) {
				t.Errorf("Postgres %s for %s is not pinned: %q", version, on, checksums[on][version])
			}
		}
	}
}

// A system without a C library runs no Postgres: nothing is fetched, and one line names the way out.
func TestStart_SystemWithoutCLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fetched := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("something is fetched") }))
	t.Cleanup(fetched.Close)
	none := []string{filepath.Join(dir, "none")}
	_, err := Start(t.Context(), Config{DataDir: dir, searchPath: none, loaders: none, repository: fetched.URL})
	if err == nil || !strings.Contains(err.Error(), "ANNALS_POSTGRES") || strings.Contains(err.Error(), "\n") {
		t.Errorf("start: %v", err)
	}
}
