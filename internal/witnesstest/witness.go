// Package witnesstest is a witness of checkpoints for tests.
package witnesstest

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	f_note "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/internal/runtest"
)

// Witness cosigns checkpoints as C2SP tlog-witness demands it.
type Witness struct {
	*httptest.Server
	Signer *f_note.Signer
	Key    note.Verifier
	vkey   string

	mu     sync.Mutex
	seen   map[string]tlog.Tree
	calls  int
	answer func(w http.ResponseWriter) bool // in place of a cosignature; nil cosigns
}

// New starts a witness whose key has a name. It ends with the test.
func New(t testing.TB, name string) *Witness {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	runtest.Must(t, err)
	w := &Witness{seen: map[string]tlog.Tree{}, vkey: vkey}
	w.Signer, err = f_note.NewSignerForCosignatureV1(skey)
	runtest.Must(t, err)
	w.Key, err = f_note.NewVerifierForCosignatureV1(vkey)
	runtest.Must(t, err)
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

// Set has the witness answer in another way, nil in its own. answer reports whether it answered.
func (w *Witness) Set(answer func(http.ResponseWriter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// Calls returns how many calls came.
func (w *Witness) Calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// Forget has the witness start from nothing.
func (w *Witness) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.seen)
}

// ServeHTTP implements http.Handler.
func (w *Witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if w.answer != nil && w.answer(out) {
		return
	}
	head, checkpoint, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	old, parsed := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if err != nil || !ok || parsed != nil || r.URL.Path != "/at/add-checkpoint" || r.Method != http.MethodPost {
		http.Error(out, "the request cannot be read", http.StatusBadRequest)
		return
	}
	text, _, _ := bytes.Cut(checkpoint, []byte("\n\n"))
	origin, rest, _ := strings.Cut(string(text)+"\n", "\n")
	tree, err := tlog.ParseTree([]byte("go.sum database tree\n" + rest))
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		hash, failed := base64.StdEncoding.DecodeString(line)
		proof, err = append(proof, tlog.Hash(hash)), errors.Join(err, failed)
	}
	before := w.seen[origin]
	switch {
	case err != nil:
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	case before.N != old:
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(out, "%d\n", before.N)
		return
	case old == tree.N && before.Hash == tree.Hash, old == 0 && len(proof) == 0:
	default:
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, old, before.Hash); err != nil {
			http.Error(out, err.Error(), http.StatusUnprocessableEntity)
			return
		}
	}
	w.seen[origin] = tree
	signed, err := note.Sign(&note.Note{Text: string(text) + "\n"}, w.Signer)
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	_, sigs, _ := bytes.Cut(signed, []byte("\n\n"))
	_, _ = out.Write(sigs)
}

// Policy writes a policy file of some witnesses, one of which is enough, and returns its path.
func Policy(t testing.TB, list ...*Witness) string {
	t.Helper()
	var policy, names strings.Builder
	for i, w := range list {
		fmt.Fprintf(&policy, "witness w%d %s %s/at/\n", i, w.vkey, w.URL)
		fmt.Fprintf(&names, " w%d", i)
	}
	fmt.Fprintf(&policy, "group g any%s\nquorum g\n", names.String())
	path := filepath.Join(t.TempDir(), "policy")
	runtest.Must(t, os.WriteFile(path, []byte(policy.String()), 0o600))
	return path
}

// HasSigned reports whether the witness signed a checkpoint.
func (w *Witness) HasSigned(checkpoint string) bool {
	n, err := note.Open([]byte(checkpoint), note.VerifierList(w.Key))
	return err == nil && len(n.Sigs) == 1
}
