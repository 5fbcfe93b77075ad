package audit_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/commands/audit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/witnesstest"
)

// witnesses asks some witnesses, as a policy file names them.
func (s *scene) witnesses(list ...*witnesstest.Witness) *audit.Witnesses {
	s.Helper()
	read, err := audit.ReadPolicy(witnesstest.Policy(s, list...))
	runtest.Must(s, err)
	c := s.copier()
	return audit.NewWitnesses(&c, s.journal(), read)
}

// isCosigned reports whether a witness signed the newest checkpoint of a tree.
func (s *scene) isCosigned(organization uuid.UUID, w *witnesstest.Witness) bool {
	s.Helper()
	return w.HasSigned(s.tree(organization).Checkpoint)
}

func TestWitnesses_Cosign(t *testing.T) {
	s := newScene(t)
	organization, signer, one, two := uuid.New(), s.signer(), witnesstest.New(t, "w.example/one"), witnesstest.New(t, "w.example/two")
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
	if n, calls := s.count(organization, cosigned), one.Calls(); n != 3 || calls != 3 {
		t.Errorf("%d events and %d calls for 3 checkpoints", n, calls)
	}
	if s.signed(signer, organization); s.count(organization, signedV1) != 3 {
		t.Error("a cosignature is a reason for a checkpoint")
	}
	// Another database does not know how far the witnesses are: they answer it. One of them starts from nothing.
	_, err := s.kept.DB.Exec(t.Context(), "delete from ops.audit_copies")
	runtest.Must(t, err)
	two.Forget()
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
	other := witnesstest.New(t, "w.example/bad")
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
			signed, err := note.Sign(&note.Note{Text: "other\n0\n" + tlog.Hash{}.String() + "\n"}, other.Signer)
			_, sigs, _ := bytes.Cut(signed, []byte("\n\n"))
			_, _ = w.Write(sigs)
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			organization, good, bad := uuid.New(), witnesstest.New(t, "w.example/good"), witnesstest.New(t, "w.example/bad")
			bad.Set(answer)
			s.happens(organization, 2)
			s.signed(s.signer(), organization)
			ask := s.witnesses(good, bad)
			if err := ask.Pass(t.Context()); err == nil {
				t.Error("no error")
			}
			calls := bad.Calls()
			s.pass(time.Second)
			runtest.Must(t, ask.Pass(t.Context())) // it is left alone for a while
			if !s.isCosigned(organization, good) || s.isCosigned(organization, bad) || bad.Calls() != calls {
				t.Errorf("%d calls, %s", bad.Calls(), s.tree(organization).Checkpoint)
			}
			if since := ask.Since(); since["w.example/bad"] != noon || !since["w.example/good"].IsZero() {
				t.Errorf("they wait since %v", since)
			}
			bad.Set(nil)
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
	organization, w := uuid.New(), witnesstest.New(t, "w.example/one")
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
