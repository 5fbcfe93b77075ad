package prove

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/internal/auditfiles"
)

// A bundle is right by the keys that it has, by the first one alone, and lists what there is.
func TestExport(t *testing.T) {
	s := newStory(t)
	for i := range 130 {
		s.send(s.here, uuid.New(), 0, 1, fmt.Sprintf("more %d", i), 1)
	}
	s.rotate(s.here)
	s.sign(s.here, 2)
	s.erase(s.here, "more 7")
	s.sign(s.here, 1)
	bundle := sink{}
	err := s.Export(t.Context(), ExportRequest{Organization: s.here.id, From: noon, To: noon.Add(time.Hour)}, bundle)
	if err != nil {
		t.Fatal(err)
	}
	own, err := proof.ParsePolicy(bundle[auditfiles.PolicyFile].Data)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := auditfiles.CheckTree(fstest.MapFS(bundle), own, nil)
	whole, _, failed := s.trees.Tree(t.Context(), s.here.id)
	if err != nil || failed != nil || tree.Size != whole.Size-1 || tree.Listed != tree.Size || tree.Erased != 6 {
		t.Errorf("tree %+v of %d leaves, %v, %v", tree, whole.Size, err, failed)
	}
	var keys []proof.Proof
	erased := 0
	for name, file := range bundle {
		if !strings.HasSuffix(name, proof.Ending) {
			continue
		}
		p, err := proof.Parse(file.Data)
		if err == nil {
			_, err = p.Verify(own)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "keys/") {
			keys = append(keys, p)
		} else {
			erased++
		}
	}
	if _, err := auditfiles.CheckTree(fstest.MapFS(bundle), s.policy(s.here), nil); err == nil {
		t.Error("the first key alone accepts the checkpoint of the second")
	}
	if _, err := auditfiles.CheckTree(fstest.MapFS(bundle), s.policy(s.here).Follow(keys), nil); err != nil {
		t.Error(err)
	}
	if len(keys) != 2 || erased != 2 {
		t.Errorf("%d proofs of keys, %d of events that kept records", len(keys), erased)
	}
	for name, file := range bundle {
		if strings.Contains(string(file.Data), "tea at five") {
			t.Errorf("%s has a text", name)
		}
	}
}

// The list of a bundle has the events of the times of the request, and an hour around them.
func TestExport_Times(t *testing.T) {
	s := newStory(t)
	first := s.n
	s.n += 3 * 3600
	s.send(s.here, uuid.New(), 0, 1, "later", 1)
	s.n += 3 * 3600
	s.send(s.here, uuid.New(), 0, 1, "last", 1)
	s.sign(s.here, 1)
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	for _, c := range []struct {
		from, to time.Time
		listed   int64
	}{
		{at(first + 2*3600 + 1800), at(first + 4*3600), 2},
		{at(first + 2*3600 + 1800), time.Time{}, 4},
		{at(s.n + 2*3600), time.Time{}, 0},
	} {
		bundle := sink{}
		if err := s.Export(t.Context(), ExportRequest{s.here.id, c.from, c.to}, bundle); err != nil {
			t.Fatal(err)
		}
		tree, err := auditfiles.CheckTree(fstest.MapFS(bundle), s.policy(s.here), nil)
		if err != nil || tree.Listed != c.listed {
			t.Errorf("from %s to %s: %d leaves are listed, want %d, %v", c.from, c.to, tree.Listed, c.listed, err)
		}
	}
}

// A bundle names the witnesses of the operator's policy only if enough of them signed, so that it is right by its own
// policy.
func TestExport_Witnesses(t *testing.T) {
	s := newStory(t)
	var lines, keys []string
	for _, name := range []string{"a", "b"} {
		private, public, err := note.GenerateKey(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		lines, keys = append(lines, "witness "+name+" "+public+" https://"+name+".example"), append(keys, private)
	}
	s.Policy = "log ignored\n# both\n" + strings.Join(lines, "\n") + "\ngroup g all a b\nquorum g\n"
	for signed := range 3 {
		if signed > 0 {
			s.cosign(s.here, keys[:signed])
		}
		bundle := sink{}
		if err := s.Export(t.Context(), ExportRequest{Organization: s.here.id}, bundle); err != nil {
			t.Fatal(err)
		}
		own, err := proof.ParsePolicy(bundle[auditfiles.PolicyFile].Data)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if signed == 2 {
			want = 2
		}
		tree, err := auditfiles.CheckTree(fstest.MapFS(bundle), own, nil)
		if err != nil || len(tree.Witnesses) != want {
			t.Errorf("%d witnesses signed: %+v, %v", signed, tree, err)
		}
	}
}
