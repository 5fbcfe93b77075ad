package audit_test

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
	"time"

	"github.com/google/uuid"
	f_note "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/commands/audit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// witness cosigns checkpoints as C2SP tlog-witness demands it.
type witness struct {
	*httptest.Server
	signer *f_note.Signer
	key    note.Verifier
	vkey   string

	mu     sync.Mutex
	seen   map[string]tlog.Tree
	calls  int
	answer func(w http.ResponseWriter) bool // in place of a cosignature; nil cosigns
}

func newWitness(t *testing.T, name string) *witness {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	runtest.Must(t, err)
	w := &witness{seen: map[string]tlog.Tree{}, vkey: vkey}
	w.signer, err = f_note.NewSignerForCosignatureV1(skey)
	runtest.Must(t, err)
	w.key, err = f_note.NewVerifierForCosignatureV1(vkey)
	runtest.Must(t, err)
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

func (w *witness) set(answer func(http.ResponseWriter) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *witness) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.seen)
}

func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
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
	signed, err := note.Sign(&note.Note{Text: string(text) + "\n"}, w.signer)
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	_, sigs, _ := bytes.Cut(signed, []byte("\n\n"))
	_, _ = out.Write(sigs)
}

// witnesses asks some witnesses, as a policy file names them.
func (s *scene) witnesses(list ...*witness) *audit.Witnesses {
	s.Helper()
	var policy, names strings.Builder
	for i, w := range list {
		fmt.Fprintf(&policy, "witness w%d %s %s/at/\n", i, w.vkey, w.URL)
		fmt.Fprintf(&names, " w%d", i)
	}
	fmt.Fprintf(&policy, "group g any%s\nquorum g\n", names.String())
	path := filepath.Join(s.TempDir(), "policy")
	runtest.Must(s, os.WriteFile(path, []byte(policy.String()), 0o600))
	read, err := audit.ReadPolicy(path)
	runtest.Must(s, err)
	c := s.copier()
	return audit.NewWitnesses(&c, s.journal(), read)
}

// isCosigned reports whether a witness signed the newest checkpoint of a tree.
func (s *scene) isCosigned(organization uuid.UUID, w *witness) bool {
	s.Helper()
	n, err := note.Open([]byte(s.tree(organization).Checkpoint), note.VerifierList(w.key))
	return err == nil && len(n.Sigs) == 1
}

func TestWitnesses_Cosign(t *testing.T) {
	s := newScene(t)
	organization, signer, one, two := uuid.New(), s.signer(), newWitness(t, "w.example/one"), newWitness(t, "w.example/two")
	ask := s.witnesses(one, two)
	for _, more := range []int{1, 5, 300} {
		s.happens(organization, more)
		s.signed(signer, organization)
		for range 2 {
			runtest.Must(t, ask.Pass(t.Context()))
		}
		if !s.isCosigned(organization, one) || !s.isCosigned(organization, two) {
			t.Errorf("not cosigned: %s", s.tree(organization).Checkpoint)
		}
	}
	if n, calls := s.count(organization, cosigned), one.called(); n != 3 || calls != 3 {
		t.Errorf("%d events and %d calls for 3 checkpoints", n, calls)
	}
	if s.signed(signer, organization); s.count(organization, signedV1) != 3 {
		t.Error("a cosignature is a reason for a checkpoint")
	}
	// Another database does not know how far the witnesses are: they answer it. One of them starts from nothing.
	_, err := s.kept.DB.Exec(t.Context(), "delete from ops.audit_copies")
	runtest.Must(t, err)
	two.forget()
	s.happens(organization, 1)
	s.signed(signer, organization)
	runtest.Must(t, ask.Pass(t.Context()))
	if !s.isCosigned(organization, one) || !s.isCosigned(organization, two) {
		t.Error("not cosigned after the sizes were lost")
	}
	for name, since := range ask.Since() {
		if !since.IsZero() {
			t.Errorf("%s waits since %s", name, since)
		}
	}
}

// A witness that is away, refuses, or signs with another key holds up no other, and its age is known.
func TestWitnesses_OneFails(t *testing.T) {
	other := newWitness(t, "w.example/bad")
	for name, answer := range map[string]func(http.ResponseWriter) bool{
		"away":        func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true },
		"refuses":     func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusForbidden); return true },
		"redirects":   func(w http.ResponseWriter) bool { w.Header().Set("Location", "/"); w.WriteHeader(302); return true },
		"larger size": func(w http.ResponseWriter) bool { w.WriteHeader(409); _, _ = io.WriteString(w, "99\n"); return true },
		"no size":     func(w http.ResponseWriter) bool { w.WriteHeader(409); _, _ = io.WriteString(w, "many\n"); return true },
		"wrong size":  func(w http.ResponseWriter) bool { w.WriteHeader(409); _, _ = io.WriteString(w, "1\n"); return true },
		"nonsense": func(w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, strings.Repeat("— x y\n", 100_000))
			return true
		},
		"nothing": func(http.ResponseWriter) bool { return true },
		"other key": func(w http.ResponseWriter) bool {
			signed, err := note.Sign(&note.Note{Text: "other\n0\n" + tlog.Hash{}.String() + "\n"}, other.signer)
			_, sigs, _ := bytes.Cut(signed, []byte("\n\n"))
			_, _ = w.Write(sigs)
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			organization, good, bad := uuid.New(), newWitness(t, "w.example/good"), newWitness(t, "w.example/bad")
			bad.set(answer)
			s.happens(organization, 2)
			s.signed(s.signer(), organization)
			ask := s.witnesses(good, bad)
			if err := ask.Pass(t.Context()); err == nil {
				t.Error("no error")
			}
			calls := bad.called()
			s.pass(time.Second)
			runtest.Must(t, ask.Pass(t.Context())) // it is left alone for a while
			if !s.isCosigned(organization, good) || s.isCosigned(organization, bad) || bad.called() != calls {
				t.Errorf("%d calls, %s", bad.called(), s.tree(organization).Checkpoint)
			}
			if since := ask.Since(); since["w.example/bad"] != noon || !since["w.example/good"].IsZero() {
				t.Errorf("they wait since %v", since)
			}
			bad.set(nil)
			s.pass(time.Hour)
			runtest.Must(t, ask.Pass(t.Context()))
			if !s.isCosigned(organization, bad) || !s.isCosigned(organization, good) || !ask.Since()["w.example/bad"].IsZero() {
				t.Errorf("once it answers: %s", s.tree(organization).Checkpoint)
			}
		})
	}
}

// A cosignature that is not stored is asked for again.
func TestWitnesses_AppendFails(t *testing.T) {
	s := newScene(t)
	organization, w := uuid.New(), newWitness(t, "w.example/one")
	s.happens(organization, 1)
	s.signed(s.signer(), organization)
	ask := s.witnesses(w)
	ask.Journal.Store = loses{s.log, func(string) error { return errors.New("the store is away") }}
	if err := ask.Pass(t.Context()); err == nil {
		t.Error("no error")
	}
	runtest.Must(t, s.witnesses(w).Pass(t.Context()))
	if !s.isCosigned(organization, w) {
		t.Error("not cosigned")
	}
	conflicts := s.witnesses(w)
	tries := 0
	conflicts.Journal.Store = loses{s.log, func(string) error {
		if tries++; tries < 3 {
			return eventstore.ErrConflict
		}
		return nil
	}}
	s.happens(organization, 1)
	s.signed(s.signer(), organization)
	runtest.Must(t, conflicts.Pass(t.Context()))
	if !s.isCosigned(organization, w) {
		t.Error("not cosigned after conflicts")
	}
}

func TestReadPolicy_Refused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy")
	if _, err := audit.ReadPolicy(path); err == nil {
		t.Error("a file that is not there")
	}
	for _, text := range []string{"", "witness w nokey https://w.example\nquorum w\n", "quorum w\n"} {
		runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := audit.ReadPolicy(path); err == nil || !strings.Contains(err.Error(), "ANNALS_AUDIT_POLICY") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
