package audit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/commands/audit"
	"github.com/annals-project/annals/internal/runtest"
)

// anchored reads an anchor as a stranger does: by its files, a path for each, and the public key.
type anchored func(path string) ([]byte, error)

func (read anchored) Height() int { return 8 }

func (read anchored) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader. A full tile takes the place of a partial one.
func (read anchored) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range tiles {
		data, err := read.tile("tile/", tile)
		if err != nil {
			return nil, err
		}
		all = append(all, data[:tile.W*tlog.HashSize])
	}
	return all, nil
}

func (read anchored) tile(folder string, tile tlog.Tile) ([]byte, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(tile.Path(), "tile/8/"), "data/")
	data, err := read(folder + path)
	if whole, _, partial := strings.Cut(path, ".p/"); err != nil && partial {
		data, err = read(folder + whole)
	}
	return data, err
}

// check verifies the checkpoint, that the tiles hash to it, and that the entries are those of the tiles.
func (read anchored) check(t *testing.T, verifier string) (size int64) {
	t.Helper()
	key, err := note.NewVerifier(verifier)
	runtest.Must(t, err)
	signed, err := read("checkpoint")
	runtest.Must(t, err)
	n, err := note.Open(signed, note.VerifierList(key))
	runtest.Must(t, err)
	tree, err := tlog.ParseTree([]byte("go.sum database tree\n" + strings.SplitN(n.Text, "\n", 2)[1]))
	runtest.Must(t, err)
	hashes := tlog.TileHashReader(tree, read)
	for from := int64(0); from < tree.N; from += 256 {
		width := int(min(tree.N-from, 256))
		entries, err := read.tile("tile/entries/", tlog.Tile{H: 8, L: -1, N: from / 256, W: width})
		runtest.Must(t, err)
		for i := range width {
			length := int(binary.BigEndian.Uint16(entries))
			record := entries[2 : 2+length]
			entries = entries[2+length:]
			got, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, from+int64(i))})
			if err != nil || got[0] != tlog.RecordHash(record) {
				t.Fatalf("leaf %d: %v, %v", from+int64(i), got, err)
			}
		}
	}
	return tree.N
}

func (s *scene) anchor(to audit.Place) *audit.Anchor {
	c := s.copier()
	return audit.NewAnchor(&c, to)
}

func inFolder(dir, origin string) anchored {
	return func(path string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, filepath.FromSlash(origin), filepath.FromSlash(path)))
	}
}

// The folder of an origin is a whole tree at each size, and partial tiles go once a tile is full.
func TestAnchor_Folder(t *testing.T) {
	s := newScene(t)
	dir := filepath.Join(t.TempDir(), "anchor")
	to, err := audit.OpenPlace(dir, "")
	runtest.Must(t, err)
	organization, signer, anchor := uuid.New(), s.signer(), s.anchor(to)
	s.happens(organization, 1)
	s.signed(signer, organization)
	if err := anchor.Pass(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("while the folder is missing: %v", err)
	}
	runtest.Must(t, os.Mkdir(dir, 0o700))
	s.pass(time.Minute)
	for _, more := range []int{1, 250, 8, 300, 1} {
		s.happens(organization, more)
		tree := s.signed(signer, organization)
		for range 2 {
			runtest.Must(t, anchor.Pass(t.Context()))
		}
		if size := inFolder(dir, tree.Origin).check(t, tree.Verifiers[0]); size != tree.CheckpointSize {
			t.Errorf("%d leaves, want %d", size, tree.CheckpointSize)
		}
	}
	if !anchor.Since().IsZero() {
		t.Errorf("something waits since %s", anchor.Since())
	}
	origin := filepath.Join(dir, filepath.FromSlash(s.tree(organization).Origin))
	if _, err := os.Stat(filepath.Join(origin, "tile", "0", "000.p")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("partial tiles of a full one: %v", err)
	}
}

// A place that fails is tried again, the age of what waits is known meanwhile, and a checkpoint is never there before
// its tiles.
func TestAnchor_PlaceFails(t *testing.T) {
	s := newScene(t)
	organization, signer := uuid.New(), s.signer()
	s.happens(organization, 3)
	tree := s.signed(signer, organization)
	place := &shelf{fails: true}
	anchor := s.anchor(place)
	for range 3 {
		if err := anchor.Pass(t.Context()); err == nil && place.calls == 0 {
			t.Error("no failure")
		}
		s.pass(time.Second)
	}
	if place.calls != 1 || anchor.Since() != noon {
		t.Errorf("%d calls within 3 s, waiting since %s", place.calls, anchor.Since())
	}
	restarted := s.anchor(place)
	if err := restarted.Pass(t.Context()); err == nil || restarted.Since() != noon {
		t.Errorf("after a restart %v, waiting since %s", err, restarted.Since())
	}
	place.fails = false
	runtest.Must(t, s.anchor(place).Pass(t.Context()))
	read := anchored(func(path string) ([]byte, error) { return place.get(tree.Origin + "/" + path) })
	if size := read.check(t, tree.Verifiers[0]); size != 4 {
		t.Errorf("%d leaves", size)
	}
	if last := place.order[len(place.order)-1]; last != tree.Origin+"/checkpoint" {
		t.Errorf("the last file is %s", last)
	}
}

// shelf is a place in memory.
type shelf struct {
	fails bool
	calls int
	order []string
	files map[string][]byte
}

func (s *shelf) String() string { return "shelf" }

func (s *shelf) Put(_ context.Context, path string, data []byte, _ bool) error {
	if s.calls++; s.fails {
		return errors.New("it is away")
	}
	if s.files == nil {
		s.files = map[string][]byte{}
	}
	s.files[path], s.order = data, append(s.order, path)
	return nil
}

func (s *shelf) get(path string) ([]byte, error) {
	if data, is := s.files[path]; is {
		return data, nil
	}
	return nil, os.ErrNotExist
}

// A server takes the files by PUT, with the token, and its refusal is an error.
func TestAnchor_Web(t *testing.T) {
	s := newScene(t)
	var mu sync.Mutex
	files := map[string][]byte{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil || r.Method != http.MethodPut || r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusForbidden)
		default:
			files[r.URL.Path] = body
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	runtest.Must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	organization, signer := uuid.New(), s.signer()
	s.happens(organization, 1)
	tree := s.signed(signer, organization)
	refused, err := audit.OpenPlace(server.URL+"/logs/", "")
	runtest.Must(t, err)
	audit.SetClient(refused, server.Client())
	if err := s.anchor(refused).Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("without the token: %v", err)
	}
	taken, err := audit.OpenPlace(server.URL+"/logs/", token)
	runtest.Must(t, err)
	audit.SetClient(taken, server.Client())
	runtest.Must(t, s.anchor(taken).Pass(t.Context()))
	anchored(func(path string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if data, is := files["/logs/"+tree.Origin+"/"+path]; is {
			return data, nil
		}
		return nil, os.ErrNotExist
	}).check(t, tree.Verifiers[0])
}

func TestOpenPlace_Refused(t *testing.T) {
	for _, setting := range []string{"http://host/", "https://", "https://user:pass@host/", "https://host/?a", "s3://bucket", "https://%"} {
		if _, err := audit.OpenPlace(setting, ""); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if _, err := audit.OpenPlace("https://host/", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a token file that is not there")
	}
}

// A later place is filled from the beginning, and a new origin is another tree.
func TestAnchor_AnotherPlace(t *testing.T) {
	s := newScene(t)
	organization, signer := uuid.New(), s.signer()
	s.happens(organization, 2)
	tree := s.signed(signer, organization)
	for _, place := range []string{t.TempDir(), t.TempDir()} {
		to, err := audit.OpenPlace(place, "")
		runtest.Must(t, err)
		runtest.Must(t, s.anchor(to).Pass(t.Context()))
		inFolder(place, tree.Origin).check(t, tree.Verifiers[0])
	}
}
