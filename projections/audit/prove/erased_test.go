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

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

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
