package prove

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
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

// erasures is how many texts are erased: ANNALS_TEST_ERASURES, or few.
func erasures(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_TEST_ERASURES")
	if text == "" {
		return 25
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// After erasures every older proof verifies, a new one proves the same record at the same place, and nothing that is
// left confirms a text to somebody who knows it: the salts are gone from the log, the proofs and the bundle.
func TestErased_ProvedAndNotConfirmed(t *testing.T) {
	f := newFixture(t)
	f.rotate(f.here)
	f.rotate(f.there)
	count := erasures(t)
	source := func(i int) Request {
		return Request{Organization: f.here.id, Project: "notes", Kind: Source, ID: fmt.Sprintf("source %d", i)}
	}
	for i := range count {
		f.send(f.here, uuid.New(), 0, 1, source(i).ID, 1)
	}
	read := reads.Record{ID: uuid.New(), At: noon, Way: reads.Recall, Shown: []reads.Shown{}}
	f.read(f.here, read)
	f.sign(f.here, 1)
	older := map[string]File{}
	prove := func(i int, see func(File, proof.Statement)) {
		t.Helper()
		files, err := f.Prove(t.Context(), source(i))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			see(file, f.verified(file))
		}
	}
	for i := range count {
		prove(i, func(file File, _ proof.Statement) { older[file.Name] = file })
	}
	var gone []eventstore.Recorded
	for i := range count {
		point := stream.DataPointID(f.here.namespace, source(i).ID)
		for _, family := range []string{stream.DataPoint, stream.Memory} {
			events, err := f.store.Read(t.Context(), stream.Name(family, point), 0, eventstore.Forwards, 10)
			if err != nil {
				t.Fatal(err)
			}
			gone = append(gone, events...)
		}
		f.erase(f.here, source(i).ID)
	}
	f.sign(f.here, 1)
	left := f.left(read.ID)
	for i := range count {
		prove(i, func(file File, said proof.Statement) {
			left = append(left, file.Data...)
			before, was := older[file.Name]
			if !was { // the deletion itself
				return
			}
			if old := f.verified(before); said.Kept == nil || old.Record != said.Record || old.Index != said.Index {
				t.Errorf("%s: %+v, before the erasure %+v", file.Name, said, old)
			}
			left = append(append(left, before.Data...), opened(t, before.Data)...)
			left = append(left, opened(t, file.Data)...)
		})
	}
	for _, e := range gone {
		_, salt, err := event.SplitSalt(e.Meta)
		if err != nil {
			t.Fatal(err)
		}
		data, text := sha256.Sum256(e.Data), sha256.Sum256([]byte("tea at five"))
		for what, secret := range map[string][]byte{"salt": salt[:], "hash of the data": data[:], "hash of the text": text[:]} {
			for _, form := range [][]byte{
				secret, []byte(base64.StdEncoding.EncodeToString(secret)), []byte(hex.EncodeToString(secret)),
			} {
				if bytes.Contains(left, form) {
					t.Errorf("the %s of event %d of %s is left", what, e.Revision, e.Stream)
				}
			}
		}
	}
	if bytes.Contains(left, []byte("tea at five")) || len(gone) != 2*count {
		t.Errorf("a text is left, of %d events", len(gone))
	}
}

// verified returns what a file states.
func (f *fixture) verified(file File) proof.Statement {
	f.t.Helper()
	p, err := proof.Parse(file.Data)
	if err != nil {
		f.t.Fatal(err)
	}
	said, err := p.Verify(f.policy(f.here))
	if err != nil {
		f.t.Errorf("%s: %v", file.Name, err)
	}
	return said
}

// opened returns what is encoded in the extra data of a proof.
func opened(t *testing.T, file []byte) []byte {
	t.Helper()
	p, err := proof.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	var e proof.Extra
	if err := json.Unmarshal(p.Extra, &e); err != nil {
		t.Fatal(err)
	}
	return bytes.Join([][]byte{p.Extra, e.Leaf, e.Metadata, e.Data}, []byte("\n"))
}

// left is all that the log, a bundle and the proof of a read hold.
func (f *fixture) left(read uuid.UUID) (left []byte) {
	f.t.Helper()
	for _, r := range eventstoretest.All(f.t, f.store, 0) {
		left = append(append(left, r.Data...), r.Meta...)
	}
	bundle := sink{}
	if err := f.Export(f.t.Context(), ExportRequest{Organization: f.here.id, From: noon}, bundle); err != nil {
		f.t.Fatal(err)
	}
	for name, file := range bundle {
		if left = append(left, file.Data...); strings.HasSuffix(name, proof.Ending) {
			left = append(left, opened(f.t, file.Data)...)
		}
	}
	files, err := f.Prove(f.t.Context(), Request{Organization: f.here.id, Kind: Read, ID: read.String()})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, file := range files {
		left = append(append(left, file.Data...), opened(f.t, file.Data)...)
	}
	return left
}
