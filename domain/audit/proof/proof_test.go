package proof_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auditfiles/auditfilestest"
	"github.com/annals-project/annals/internal/runtest"
)

func policy(t testing.TB, keys []string, lines ...string) proof.Policy {
	t.Helper()
	p, err := proof.ParsePolicy(auditfilestest.Policy(keys, lines...))
	runtest.Must(t, err)
	return p
}

func verify(p proof.Policy, file []byte) (proof.Statement, error) {
	parsed, err := proof.Parse(file)
	if err != nil {
		return proof.Statement{}, err
	}
	return parsed.Verify(p)
}

// Each event of logs of many sizes is proved, without its data, with it, and once it has left the log.
func TestVerify_EachEvent(t *testing.T) {
	l := auditfilestest.New(t, 1)
	l.Some(t, 300)
	p := policy(t, l.Verifiers)
	for _, size := range []int64{1, 2, 3, 255, 256, 257, 300} {
		checkpoint := l.Checkpoint(t, size, l.Keys)
		for n := int64(0); n < size; n += 1 + size/20 {
			e := l.Events[n]
			record, err := e.Record()
			runtest.Must(t, err)
			for _, full := range []bool{false, true} {
				s, err := verify(p, l.Prove(t, n, size, checkpoint, l.Extra(t, n, full)))
				if err != nil || s.Record != record || s.Index != n || s.Size != size || s.Origin != l.Origin {
					t.Fatalf("leaf %d of %d: %+v, %v", n, size, s, err)
				}
				if f := s.Fields; f.EventID != e.ID || f.Stream != e.Stream || f.Revision != e.Revision ||
					f.Organization != e.Organization || f.Type != e.Type {
					t.Errorf("leaf %d of %d: fields %+v", n, size, f)
				}
				if full != bytes.Equal(s.Data, e.Data) || full != (s.Metadata != nil) {
					t.Errorf("leaf %d of %d: data %q", n, size, s.Data)
				}
			}
			kept := &proof.Kept{Record: record[:], Stream: e.Stream, Revision: e.Revision, EventID: e.ID}
			s, err := verify(p, l.Prove(t, n, size, checkpoint, proof.Extra{Kept: kept}))
			if err != nil || s.Record != record || s.Fields != nil || !cmp.Equal(s.Kept, kept) {
				t.Errorf("kept leaf %d of %d: %+v, %v", n, size, s, err)
			}
		}
	}
}

// A file that was made of another event, or with data of another one, proves nothing.
func TestVerify_Refused(t *testing.T) {
	l := auditfilestest.New(t, 2)
	l.Some(t, 20)
	checkpoint := l.Checkpoint(t, 20, l.Keys)
	right := l.Extra(t, 7, true)
	for name, change := range map[string]func(*proof.Extra){
		"another leaf":     func(e *proof.Extra) { e.Leaf = l.Extra(t, 8, true).Leaf },
		"no leaf":          func(e *proof.Extra) { e.Leaf = nil },
		"another data":     func(e *proof.Extra) { e.Data = append(bytes.Clone(e.Data), ' ') },
		"no data":          func(e *proof.Extra) { e.Data = nil },
		"no metadata":      func(e *proof.Extra) { e.Metadata = nil },
		"another salt":     func(e *proof.Extra) { e.Metadata = l.Extra(t, 8, true).Metadata },
		"kept with a leaf": func(e *proof.Extra) { e.Kept = &proof.Kept{Record: make([]byte, 32)} },
		"another record": func(e *proof.Extra) {
			*e = proof.Extra{Kept: &proof.Kept{Record: make([]byte, 32)}}
		},
		"a short record":           func(e *proof.Extra) { *e = proof.Extra{Kept: &proof.Kept{Record: []byte{1}}} },
		"a read of no read record": func(e *proof.Extra) { e.Read = &proof.Read{} },
	} {
		e := right
		change(&e)
		if s, err := verify(policy(t, l.Verifiers), l.Prove(t, 7, 20, checkpoint, e)); err == nil {
			t.Errorf("%s: it proves %+v", name, s)
		}
	}
	other := auditfilestest.New(t, 3)
	if _, err := verify(policy(t, other.Verifiers), l.Prove(t, 7, 20, checkpoint, right)); err == nil {
		t.Error("a policy accepts the key of another log")
	}
}

// A read record is proved by the event of its root.
func TestVerify_ReadRecord(t *testing.T) {
	l := auditfilestest.New(t, 4)
	l.Some(t, 5)
	records := make([]reads.Record, 7)
	for i := range records {
		records[i] = reads.Record{ID: uuid.New(), Way: reads.Recall, By: "key:1"}
	}
	rooted, _, err := reads.Batch(l.Organization, uuid.New(), records)
	runtest.Must(t, err)
	n := l.Add(t, "reads-1", 0, rooted)
	checkpoint := l.Checkpoint(t, n+1, l.Keys)
	for i := range records {
		text, err := records[i].Encode()
		runtest.Must(t, err)
		path, err := reads.Prove(records, i)
		runtest.Must(t, err)
		e := l.Extra(t, n, true)
		e.Read = &proof.Read{Record: text, Number: int64(i), Size: int64(len(records)), Path: path}
		s, err := verify(policy(t, l.Verifiers), l.Prove(t, n, n+1, checkpoint, e))
		if err != nil || !bytes.Equal(s.Read, text) {
			t.Fatalf("record %d: %s, %v", i, s.Read, err)
		}
		for name, change := range map[string]func(*proof.Read){
			"another record": func(r *proof.Read) { r.Record = append(bytes.Clone(text), ' ') },
			"another number": func(r *proof.Read) { r.Number++ },
			"another size":   func(r *proof.Read) { r.Size-- },
			"a short path":   func(r *proof.Read) { r.Path = r.Path[1:] },
		} {
			wrong := *e.Read
			change(&wrong)
			other := e
			other.Read = &wrong
			if _, err := verify(policy(t, l.Verifiers), l.Prove(t, n, n+1, checkpoint, other)); err == nil {
				t.Errorf("record %d with %s is proved", i, name)
			}
		}
	}
}

// Who trusts the first key alone follows the rotations to the newest one, in whichever order the proofs are read.
func TestFollow(t *testing.T) {
	l := auditfilestest.New(t, 5)
	l.Some(t, 3)
	var files []proof.Proof
	name := stream.Name(stream.Audit, l.Organization)
	for i := range 3 {
		public := l.NewKey(t)
		n := l.Add(t, name, int64(i), audit.KeyAdded{OrganizationID: l.Organization, Origin: l.Origin, Verifier: public})
		file, err := proof.Parse(l.Prove(t, n, n+1, l.Checkpoint(t, n+1, l.Keys[i:]), l.Extra(t, n, true)))
		runtest.Must(t, err)
		files = append([]proof.Proof{file}, files...)
	}
	first := policy(t, l.Verifiers[:1])
	newest := l.Checkpoint(t, 6, l.Keys[3:])
	if _, err := first.Open(newest); err == nil {
		t.Error("the first key alone accepts the newest one")
	}
	if _, err := first.Follow(files).Open(newest); err != nil {
		t.Error(err)
	}
	if _, err := first.Follow(files[:2]).Open(newest); err == nil {
		t.Error("the newest key is accepted with the first rotation missing")
	}
}

// A key is not accepted if no known key signed for it, if it did not sign, or if its event is of another stream.
func TestFollow_Refused(t *testing.T) {
	for name, make := range map[string]func(*auditfilestest.Log) (of string, keys []string){
		"not by the former key": func(l *auditfilestest.Log) (string, []string) { return "", l.Keys[1:] },
		"not by the new key":    func(l *auditfilestest.Log) (string, []string) { return "", l.Keys[:1] },
		"of another stream":     func(l *auditfilestest.Log) (string, []string) { return "datapoint-", l.Keys },
	} {
		l := auditfilestest.New(t, 6)
		public := l.NewKey(t)
		of, keys := make(l)
		n := l.Add(t, of+stream.Name(stream.Audit, l.Organization), 0,
			audit.KeyAdded{OrganizationID: l.Organization, Origin: l.Origin, Verifier: public})
		file, err := proof.Parse(l.Prove(t, n, n+1, l.Checkpoint(t, n+1, keys), l.Extra(t, n, true)))
		runtest.Must(t, err)
		followed := policy(t, l.Verifiers[:1]).Follow([]proof.Proof{file})
		if _, err := followed.Open(l.Checkpoint(t, n+1, l.Keys[1:])); err == nil {
			t.Errorf("%s: the new key is accepted", name)
		}
	}
}

// The quorum of witnesses counts, and their addresses do not.
func TestPolicy_Witnesses(t *testing.T) {
	l := auditfilestest.New(t, 7)
	l.Some(t, 3)
	a, lineA := l.NewWitness(t, "witness.example/a")
	b, lineB := l.NewWitness(t, "witness.example/b")
	lineB += " https://b.example"
	both := policy(t, l.Verifiers, lineA, lineB, "group g all witness.example/a witness.example/b", "quorum g")
	any := policy(t, l.Verifiers, lineA, lineB, "# any", "group g any witness.example/a witness.example/b", "quorum g")
	one := policy(t, l.Verifiers, lineA, "quorum witness.example/a")
	for _, c := range []struct {
		name            string
		witnesses       []string
		both, any, one_ bool
	}{
		{"none", nil, false, false, false},
		{"a", []string{a}, false, true, true},
		{"b", []string{b}, false, true, false},
		{"a and b", []string{a, b}, true, true, true},
	} {
		signed := l.Checkpoint(t, 3, l.Keys, c.witnesses...)
		for _, p := range []struct {
			proof.Policy
			want bool
		}{{both, c.both}, {any, c.any}, {one, c.one_}} {
			got, err := p.Open(signed)
			if (err == nil) != p.want || p.want && len(got.Witnesses)+got.Unknown != len(c.witnesses) {
				t.Errorf("signed by %s: %+v, %v, want %t", c.name, got, err, p.want)
			}
		}
	}
}

// A witness that was asked twice has two signatures, which count once.
func TestPolicy_WitnessTwice(t *testing.T) {
	l := auditfilestest.New(t, 12)
	l.Some(t, 3)
	a, line := l.NewWitness(t, "a")
	_, other := l.NewWitness(t, "b")
	signed := l.Checkpoint(t, 3, l.Keys, a, a)
	if c, err := policy(t, l.Verifiers, line, "quorum a").Open(signed); err != nil || len(c.Witnesses) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := policy(t, l.Verifiers, line, other, "group g 2 a b", "quorum g").Open(signed); err == nil {
		t.Error("one witness counts as two")
	}
}

func TestParsePolicy_Refused(t *testing.T) {
	l := auditfilestest.New(t, 8)
	_, w := l.NewWitness(t, "w")
	log := "log " + l.Verifiers[0] + "\n"
	for name, text := range map[string]string{
		"nothing":                 "",
		"no quorum":               log,
		"no log":                  "quorum none\n",
		"two quorums":             log + "quorum none\nquorum none\n",
		"a log twice":             log + log + "quorum none\n",
		"another word":            log + "trust me\nquorum none\n",
		"an unknown quorum":       log + "quorum w\n",
		"a group of none":         log + w + "\ngroup g 0 w\nquorum g\n",
		"an empty group":          log + "group g all\nquorum g\n",
		"a member twice":          log + w + "\ngroup g 2 w w\nquorum g\n",
		"a witness twice":         log + w + "\n" + strings.Replace(w, " w ", " v ", 1) + "\nquorum w\n",
		"the key of a log, wrong": strings.Replace(log, "+A", "+B", 1) + "quorum none\n",
		"too long":                log + "quorum none\n" + strings.Repeat("#\n", 2000),
	} {
		if _, err := proof.ParsePolicy([]byte(text)); err == nil {
			t.Errorf("%s: it is a policy", name)
		}
	}
}

// Of a damaged file nothing else is proved than of the file as it was made.
func TestVerify_Damage(t *testing.T) {
	l := auditfilestest.New(t, 9)
	l.Some(t, 40)
	witness, line := l.NewWitness(t, "w")
	p := policy(t, l.Verifiers, line, "quorum w")
	checkpoint := l.Checkpoint(t, 40, l.Keys, witness)
	random := rand.New(rand.NewPCG(49, 1))
	for _, full := range []bool{false, true} {
		file := l.Prove(t, 21, 40, checkpoint, l.Extra(t, 21, full))
		if _, err := verify(p, file); err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			if damaged := auditfilestest.Damage(random, file); !bytes.Equal(damaged, file) {
				if s, err := verify(p, damaged); err == nil {
					t.Fatalf("it proves %+v:\n%s", s, damaged)
				}
			}
		}
	}
}

// FuzzParse looks for files that make the parser or the check panic, or that have two forms.
func FuzzParse(f *testing.F) {
	l := auditfilestest.New(f, 10)
	l.Some(f, 3)
	p := policy(f, l.Verifiers)
	checkpoint := l.Checkpoint(f, 3, l.Keys)
	f.Add(l.Prove(f, 1, 3, checkpoint, l.Extra(f, 1, false)))
	f.Add(l.Prove(f, 2, 3, checkpoint, l.Extra(f, 2, true)))
	f.Add(l.Prove(f, 0, 3, checkpoint, proof.Extra{Kept: &proof.Kept{Record: make([]byte, 32)}}))
	f.Add(l.Prove(f, 0, 3, checkpoint, proof.Extra{Read: &proof.Read{Path: tlog.RecordProof{{}}}}))
	f.Add([]byte("c2sp.org/tlog-proof@v1\nindex 0\n\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		parsed, err := proof.Parse(file)
		if err != nil {
			return
		}
		if !bytes.Equal(parsed.Encode(), file) {
			t.Error("the file has another form")
		}
		if s, err := parsed.Verify(p); err == nil && s.Index >= s.Size {
			t.Error(fmt.Errorf("it proves %+v", s))
		}
	})
}

// FuzzParsePolicy looks for policies that make the parser panic, or that accept a note that nobody signed.
func FuzzParsePolicy(f *testing.F) {
	l := auditfilestest.New(f, 11)
	_, line := l.NewWitness(f, "w")
	f.Add(auditfilestest.Policy(l.Verifiers))
	f.Add(auditfilestest.Policy(l.Verifiers, line, "group g 1 w", "quorum g"))
	f.Add([]byte("log x+1+AQ==\nquorum none"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := proof.ParsePolicy(text)
		if err != nil {
			return
		}
		if _, err := p.Open([]byte("a\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n")); err == nil {
			t.Error("it accepts a checkpoint without signatures")
		}
	})
}
