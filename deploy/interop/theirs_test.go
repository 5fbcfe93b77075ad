package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/storage/posix"
	witnessclient "github.com/transparency-dev/witness/client/http"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"

	annals "github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/auditfiles/auditfilestest"
)

func key(t *testing.T, name string) (note.Signer, string) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, public
}

func policy(t *testing.T, keys []string, lines ...string) annals.Policy {
	t.Helper()
	p, err := annals.ParsePolicy(auditfilestest.Policy(keys, lines...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// theirs makes a log of Tessera on disk, with entries of other sizes than ours.
func theirs(t *testing.T, signer note.Signer) (dir string, checkpoint []byte) {
	t.Helper()
	dir = t.TempDir()
	driver, err := posix.New(t.Context(), posix.Config{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	appender, shutdown, reader, err := tessera.NewAppender(t.Context(), driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).WithBatching(256, 10*time.Millisecond).WithCheckpointInterval(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	var added []tessera.IndexFuture
	for n := range 300 {
		added = append(added, appender.Add(t.Context(), tessera.NewEntry(fmt.Appendf(nil, "entry %d", n))))
	}
	awaiter := tessera.NewPublicationAwaiter(t.Context(), reader.ReadCheckpoint, 10*time.Millisecond)
	for _, future := range added {
		if _, checkpoint, err = awaiter.Await(t.Context(), future); err != nil {
			t.Fatal(err)
		}
	}
	if err := shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if checkpoint, err = os.ReadFile(filepath.Join(dir, auditfiles.CheckpointFile)); err != nil {
		t.Fatal(err)
	}
	return dir, checkpoint
}

// Our verifier finds a log of Tessera right, and a damaged one wrong.
func TestTheirs_Tree(t *testing.T) {
	signer, public := key(t, "example.com/log")
	dir, checkpoint := theirs(t, signer)
	p := policy(t, []string{public})
	check := func() (found []auditfiles.Found) {
		err := auditfiles.Check(p, []string{filepath.Join(dir, auditfiles.CheckpointFile)}, checkpoint,
			func(f auditfiles.Found) { found = append(found, f) })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, f := range check() {
		if f.Err != nil || f.Tree != nil && f.Tree.Size != 300 {
			t.Errorf("%+v", f)
		}
	}
	path := filepath.Join(dir, filepath.FromSlash(auditfiles.TilePath(-1, 0, 256)))
	entries, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(entries, []byte("entry 7"), []byte("entry 8"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := check(); f[0].Err == nil {
		t.Error("an entry is changed, and the tree is right")
	}
}

// Our verifier reads a proof that was made from a log of Tessera.
func TestTheirs_Proof(t *testing.T) {
	signer, public := key(t, "example.com/log")
	dir, checkpoint := theirs(t, signer)
	files := client.FileFetcher{Root: dir}
	builder, err := client.NewProofBuilder(t.Context(), 300, files.ReadTile)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{0, 255, 299} {
		path, err := builder.InclusionProof(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		file := proof.TLogProof{Index: n, Checkpoint: checkpoint}
		for _, h := range path {
			file.Hashes = append(file.Hashes, [32]byte(h))
		}
		parsed, err := annals.Parse(file.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := client.GetEntryBundle(t.Context(), files.ReadEntryBundle, n/256, 300)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parsed.VerifyEntry(policy(t, []string{public}), bundle.Entries[n%256]); err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
		if _, err := parsed.VerifyEntry(policy(t, []string{public}), []byte("another entry")); err == nil {
			t.Errorf("another entry is proved as %d", n)
		}
	}
}

// A witness that others wrote cosigns our checkpoints, and our policy takes its signatures.
func TestTheirs_Witness(t *testing.T) {
	l, dir, verifier := ours(t)
	private, public, err := note.GenerateKey(rand.Reader, "witness.example.com")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	if err != nil {
		t.Fatal(err)
	}
	if public, err = cosignature.VKeyToCosignatureV1(public); err != nil {
		t.Fatal(err)
	}
	w, err := witness.New(t.Context(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			return verifier, origin == l.Origin, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	served := httptest.NewServer(handler)
	defer served.Close()
	at, err := url.Parse(served.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := witnessclient.NewWitness(at, served.Client())
	p := policy(t, l.Verifiers, "witness w "+public, "quorum w")
	builder, err := client.NewProofBuilder(t.Context(), size, client.FileFetcher{Root: dir}.ReadTile)
	if err != nil {
		t.Fatal(err)
	}
	former := uint64(0)
	for _, n := range []uint64{1, 255, 256, size} {
		checkpoint := l.Checkpoint(t, int64(n), l.Keys)
		if _, err := p.Open(checkpoint); err == nil {
			t.Error("the policy takes a checkpoint that no witness signed")
		}
		var path [][]byte
		if former > 0 {
			if path, err = builder.ConsistencyProof(t.Context(), former, n); err != nil {
				t.Fatal(err)
			}
		}
		signatures, _, err := asked.Update(t.Context(), former, checkpoint, path)
		if err != nil {
			t.Fatalf("size %d: %v", n, err)
		}
		if c, err := p.Open(append(checkpoint, signatures...)); err != nil || len(c.Witnesses) != 1 {
			t.Errorf("size %d: %+v, %v", n, c, err)
		}
		former = n
	}
}
