package interop

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/proof"
	merkle "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/auditfiles/auditfilestest"
)

// size is that of the log of the tests: its last tile is not full.
const size = 600

// ours makes a log, and its files as an export and an anchor write them.
func ours(t *testing.T) (l *auditfilestest.Log, dir string, verifier note.Verifier) {
	t.Helper()
	l = auditfilestest.New(t, 1)
	l.Some(t, size)
	dir = filepath.Join(t.TempDir(), "ours")
	to, err := auditfiles.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.WriteTree(t, to, size, l.Checkpoint(t, size, l.Keys))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if verifier, err = note.NewVerifier(l.Verifiers[0]); err != nil {
		t.Fatal(err)
	}
	return l, dir, verifier
}

// hashes returns the hashes of the entries of a bundle.
func hashes(bundle []byte) (list [][]byte, err error) {
	var entries api.EntryBundle
	if err = entries.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	for _, e := range entries.Entries {
		list = append(list, rfc6962.DefaultHasher.HashLeaf(e))
	}
	return list, nil
}

// The fsck of Tessera finds our tree right, and any file of it that is damaged wrong.
func TestTessera_Fsck(t *testing.T) {
	l, dir, verifier := ours(t)
	check := func() error {
		return fsck.New(l.Origin, verifier, client.FileFetcher{Root: dir}, hashes, fsck.Opts{N: 2}).Check(t.Context())
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		auditfiles.CheckpointFile, auditfiles.TilePath(-1, 0, 256), auditfiles.TilePath(-1, 2, size%256),
		auditfiles.TilePath(0, 1, 256), auditfiles.TilePath(0, 2, size%256), auditfiles.TilePath(1, 0, 2),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		right, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wrong := bytes.Clone(right)
		wrong[len(wrong)/2] ^= 1
		if err := os.WriteFile(path, wrong, 0o600); err != nil {
			t.Fatal(err)
		}
		if check() == nil {
			t.Errorf("%s is damaged, and fsck finds it right", name)
		}
		if err := os.WriteFile(path, right, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The client of Tessera makes the proofs from our tiles that we make, and reads our entries and our checkpoint.
func TestTessera_Client(t *testing.T) {
	l, dir, verifier := ours(t)
	files := client.FileFetcher{Root: dir}
	checkpoint, raw, _, err := client.FetchCheckpoint(t.Context(), files.ReadCheckpoint, verifier, l.Origin)
	if err != nil || checkpoint.Size != size {
		t.Fatalf("checkpoint %+v, %v", checkpoint, err)
	}
	builder, err := client.NewProofBuilder(t.Context(), size, files.ReadTile)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{0, 1, 255, 256, 511, 512, 599} {
		made, err := builder.InclusionProof(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		var file proof.TLogProof
		if err := file.Unmarshal(l.Prove(t, int64(n), size, raw, l.Extra(t, int64(n), false))); err != nil {
			t.Fatal(err)
		}
		var mine [][]byte
		for _, h := range file.Hashes {
			mine = append(mine, h[:])
		}
		if !equal(made, mine) {
			t.Errorf("leaf %d: the proofs differ", n)
		}
		bundle, err := client.GetEntryBundle(t.Context(), files.ReadEntryBundle, n/256, size)
		if err != nil {
			t.Fatal(err)
		}
		record, err := l.Events[n].Record()
		if err != nil || !bytes.Equal(bundle.Entries[n%256], record[:]) {
			t.Errorf("entry %d is %x, want %x, %v", n, bundle.Entries[n%256], record, err)
		}
		leaf := rfc6962.DefaultHasher.HashLeaf(record[:])
		if err := merkle.VerifyInclusion(rfc6962.DefaultHasher, n, size, leaf, mine, checkpoint.Hash); err != nil {
			t.Errorf("leaf %d: %v", n, err)
		}
		// The package of the checksum database checks it too.
		var path tlog.RecordProof
		for _, h := range file.Hashes {
			path = append(path, h)
		}
		if err := tlog.CheckRecord(path, size, tlog.Hash(checkpoint.Hash), int64(n), tlog.Hash(leaf)); err != nil {
			t.Errorf("leaf %d: %v", n, err)
		}
	}
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// Torchwood reads our files over HTTP: each entry, checked against our checkpoint.
func TestTorchwood(t *testing.T) {
	l, dir, _ := ours(t)
	served := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer served.Close()
	files, err := torchwood.NewTileFetcher(served.URL)
	if err != nil {
		t.Fatal(err)
	}
	text, err := files.ReadEndpoint(t.Context(), auditfiles.CheckpointFile)
	if err != nil {
		t.Fatal(err)
	}
	body, _, _ := bytes.Cut(text, []byte("\n\n"))
	checkpoint, err := torchwood.ParseCheckpoint(string(body) + "\n")
	if err != nil || checkpoint.N != size || checkpoint.Origin != l.Origin {
		t.Fatalf("checkpoint %+v, %v", checkpoint, err)
	}
	reader, err := torchwood.NewClient(files)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for start := int64(0); start < size; {
		before := start
		for n, entry := range reader.Entries(t.Context(), checkpoint.Tree, start) {
			record, err := l.Events[n].Record()
			if err != nil || !bytes.Equal(entry, record[:]) {
				t.Fatalf("entry %d is %x, want %x, %v", n, entry, record, err)
			}
			read, start = read+1, n+1
		}
		if err := reader.Err(); err != nil || start == before {
			t.Fatalf("after entry %d: %v", start, err)
		}
	}
	if read != size {
		t.Errorf("%d entries", read)
	}
	for _, n := range []int64{0, 300, 599} {
		entry, path, err := reader.Entry(t.Context(), checkpoint.Tree, n)
		if err == nil {
			err = tlog.CheckRecord(path, size, checkpoint.Hash, n, tlog.RecordHash(entry))
		}
		if err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
	}
}
