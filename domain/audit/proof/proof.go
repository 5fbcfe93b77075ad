// Package proof is the file that proves that an event is in the audit log (docs/audit-files.md). It is a C2SP
// tlog-proof, and its extra data has the leaf of the event, so that its fields can be read.
package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
)

// Ending is how the names of files end. WithSalt stands before it if the file can confirm the text of the event.
const (
	Ending   = ".tlog-proof"
	WithSalt = ".with-salt"
)

// MaxFile bounds a file. The largest event of the log fits.
const MaxFile = 4 << 20

// Format is the format of the extra data.
const Format = "annals-proof/1"

// Extra is the extra data of a file.
type Extra struct {
	Format string `json:"format"`
	// Leaf is the leaf of the event, empty if that has left the log. Metadata and Data are then given too where the
	// file can confirm what the event holds.
	Leaf     []byte `json:"leaf,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
	Data     []byte `json:"data,omitempty"`
	// Read is a read record whose root is in the event.
	Read *Read `json:"read,omitempty"`
	// Kept is what was kept of an event that has left the log.
	Kept *Kept `json:"kept,omitempty"`
}

// Kept is the record of an event that has left the log, with the place where it was.
type Kept struct {
	Record   []byte    `json:"record"`
	Stream   string    `json:"stream"`
	Revision int64     `json:"revision"`
	EventID  uuid.UUID `json:"eventId"`
}

// Read is a read record, and its path to the root of its batch.
type Read struct {
	Record []byte           `json:"record"`
	Number int64            `json:"number"`
	Size   int64            `json:"size"`
	Path   tlog.RecordProof `json:"path"`
}

// Proof is a file.
type Proof struct {
	Index      int64
	Path       tlog.RecordProof
	Checkpoint []byte
	// Extra is encoded, as the file has it.
	Extra []byte
}

// Encode returns extra data as it is in a file.
func (e Extra) Encode() ([]byte, error) {
	e.Format = Format
	return json.Marshal(e)
}

const extraLine = "extra "

// Encode returns the bytes of the file.
func (p Proof) Encode() []byte {
	out := proof.TLogProof{Index: uint64(p.Index), Checkpoint: p.Checkpoint, ExtraData: p.Extra}
	for _, h := range p.Path {
		out.Hashes = append(out.Hashes, h)
	}
	return out.Marshal()
}

// Parse reads a file. The extra data is taken out first, since the parser has a bound on lines that events pass.
func Parse(file []byte) (p Proof, err error) {
	if len(file) > MaxFile {
		return p, errors.New("proof: the file is too long")
	}
	head, rest, _ := bytes.Cut(file, []byte("\n"))
	if bytes.HasPrefix(rest, []byte(extraLine)) {
		var text []byte
		text, rest, _ = bytes.Cut(rest[len(extraLine):], []byte("\n"))
		if p.Extra, err = base64.StdEncoding.DecodeString(string(text)); err != nil {
			return p, fmt.Errorf("proof: extra data: %w", err)
		}
	}
	var parsed proof.TLogProof
	if err := parsed.Unmarshal(append(append(head[:len(head):len(head)], '\n'), rest...)); err != nil {
		return p, fmt.Errorf("proof: %w", err)
	}
	if parsed.Index > math.MaxInt64 {
		return p, errors.New("proof: the index is too large")
	}
	p.Index, p.Checkpoint = int64(parsed.Index), parsed.Checkpoint
	for _, h := range parsed.Hashes {
		p.Path = append(p.Path, h)
	}
	if !bytes.Equal(p.Encode(), file) {
		return p, errors.New("proof: the file is not in the one form that it has")
	}
	return p, nil
}

// Statement is what a file proves.
type Statement struct {
	Checkpoint
	Index  int64
	Record audit.Record
	// Fields are those of the leaf, nil for an event that has left the log.
	Fields *audit.Fields
	// Data is the event, and with Metadata of it, nil if the file does not hold it.
	Metadata, Data []byte
	// Read is the read record that the root in the event is of, nil for another file.
	Read []byte
	// Kept is what the file states of an event that has left the log. Only the record is proved by this file: the
	// others are in the event that kept it.
	Kept *Kept
}

// VerifyEntry checks that an entry is in the log of a policy, whatever made it.
func (p Proof) VerifyEntry(policy Policy, entry []byte) (Checkpoint, error) {
	c, err := policy.Open(p.Checkpoint)
	if err == nil {
		err = tlog.CheckRecord(p.Path, c.Size, c.Root, p.Index, tlog.RecordHash(entry))
	}
	if err != nil {
		return c, fmt.Errorf("proof of entry %d: %w", p.Index, err)
	}
	return c, nil
}

// Verify checks a file of Annals.
func (p Proof) Verify(policy Policy) (s Statement, err error) {
	var e Extra
	if err := json.Unmarshal(p.Extra, &e); err != nil {
		return s, fmt.Errorf("proof: extra data: %w", err)
	}
	if again, err := json.Marshal(e); err != nil || e.Format != Format || !bytes.Equal(again, p.Extra) {
		return s, errors.New("proof: the extra data is not in the form " + Format)
	}
	switch {
	case e.Kept != nil && len(e.Kept.Record) == len(s.Record) && e.Leaf == nil && e.Metadata == nil && e.Read == nil:
		s.Record, s.Kept = audit.Record(e.Kept.Record), e.Kept
	case e.Kept == nil:
		s.Record = sha256.Sum256(e.Leaf)
		f, err := audit.ParseLeaf(e.Leaf)
		if err != nil {
			return s, err
		}
		s.Fields = &f
	default:
		return s, errors.New("proof: the extra data is of no event")
	}
	if s.Checkpoint, err = p.VerifyEntry(policy, s.Record[:]); err != nil {
		return s, err
	}
	s.Index = p.Index
	if e.Metadata != nil {
		if err := s.Fields.Check(e.Metadata, e.Data); err != nil {
			return s, err
		}
		s.Metadata, s.Data = e.Metadata, e.Data
	} else if e.Data != nil {
		return s, errors.New("proof: it has data without metadata")
	}
	if e.Read != nil {
		s.Read = e.Read.Record
		return s, e.Read.check(s)
	}
	return s, nil
}

// check checks that the record is under the root in the event.
func (r Read) check(s Statement) error {
	var rooted reads.Rooted
	if s.Fields.Type != rooted.EventType() || s.Data == nil {
		return errors.New("proof: a read record without the event of its root")
	}
	if err := json.Unmarshal(s.Data, &rooted); err != nil {
		return fmt.Errorf("proof: root of read records: %w", err)
	}
	if int64(rooted.Size) != r.Size || len(rooted.Root) != tlog.HashSize {
		return errors.New("proof: the root is of another batch of read records")
	}
	if err := tlog.CheckRecord(r.Path, r.Size, tlog.Hash(rooted.Root), r.Number, tlog.RecordHash(r.Record)); err != nil {
		return fmt.Errorf("proof: read record: %w", err)
	}
	return nil
}

// maxPolicy and maxPolicyLines bound a policy.
const (
	maxPolicy      = 1 << 18
	maxPolicyLines = 1 << 10
)

// Policy is whose signatures make a checkpoint valid: a key of a log, and the quorum of witnesses (C2SP tlog-policy).
type Policy struct {
	logs, witnesses []note.Verifier
	quorum          witness.Group
}

// ParsePolicy reads a policy. Witnesses need no address.
func ParsePolicy(text []byte) (p Policy, err error) {
	if len(text) > maxPolicy || strings.Count(string(text), "\n") > maxPolicyLines {
		return p, errors.New("policy: it is too long")
	}
	var lines, keys []string
	quorums := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch key := ""; {
		case fields[0] == "log" && len(fields) > 1 && len(fields) < 4:
			key = fields[1]
			v, err := cosignature.NewVerifier(key)
			if err != nil {
				return p, fmt.Errorf("policy: key of a log: %w", err)
			}
			p.logs, keys = append(p.logs, v), append(keys, key)
			continue
		case fields[0] == "witness" && len(fields) == 3: // the parser wants an address
			fields = append(fields, "https://witness.invalid/"+fields[1])
			fallthrough
		case fields[0] == "witness" && len(fields) == 4:
			keys = append(keys, fields[2])
		case fields[0] == "quorum":
			quorums++
		case fields[0] == "group" && len(fields) > 3 && strings.TrimLeft(fields[2], "0") != "" && !repeats(fields[3:]):
		default:
			return p, fmt.Errorf("policy: invalid line %q", strings.TrimSpace(line))
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	for i, key := range keys {
		keys[i] = key[strings.LastIndexByte(key, '+')+1:]
	}
	if quorums != 1 || len(p.logs) == 0 || repeats(keys) {
		return p, errors.New("policy: it needs the key of a log and one quorum, and has no key twice")
	}
	if p.quorum, err = witness.ParsePolicy([]byte(strings.Join(lines, "\n"))); err != nil {
		return p, fmt.Errorf("policy: %w", err)
	}
	p.witnesses = slices.Collect(maps.Values(p.quorum.Endpoints()))
	return p, nil
}

func repeats(list []string) bool {
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s] {
			return true
		}
		seen[s] = true
	}
	return false
}

// Checkpoint is a checkpoint whose signatures a policy accepts.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	// Keys are the keys of the log that signed it, as name and hash, and Witnesses those of the policy. Unknown counts
	// signatures of others, which prove nothing.
	Keys, Witnesses []string
	Unknown         int
}

// Open checks the signatures of a checkpoint: one of a key of the log, and those of the quorum.
func (p Policy) Open(checkpoint []byte) (c Checkpoint, err error) {
	n, err := note.Open(checkpoint, note.VerifierList(slices.Concat(p.logs, p.witnesses)...))
	if err != nil {
		return c, fmt.Errorf("checkpoint: %w", err)
	}
	for _, s := range slices.Concat(n.Sigs, n.UnverifiedSigs) { // package note passes over bits that mean nothing
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return c, fmt.Errorf("checkpoint: signature of %q: %w", s.Name, err)
		}
	}
	var text log.Checkpoint
	if _, err = text.Unmarshal([]byte(n.Text)); err != nil {
		return c, fmt.Errorf("checkpoint: %w", err)
	}
	if text.Size > math.MaxInt64 || len(text.Hash) != tlog.HashSize {
		return c, errors.New("checkpoint: its size or root is none")
	}
	c = Checkpoint{
		Origin: text.Origin, Size: int64(text.Size), Root: tlog.Hash(text.Hash), Unknown: len(n.UnverifiedSigs),
	}
	for _, s := range n.Sigs {
		key := fmt.Sprintf("%s+%08x", s.Name, s.Hash)
		if by := (known{s.Name, s.Hash}); by.in(p.witnesses) {
			c.Witnesses = append(c.Witnesses, key)
		} else if s.Name == c.Origin {
			c.Keys = append(c.Keys, key)
		}
	}
	if len(c.Keys) == 0 {
		return c, fmt.Errorf("checkpoint of %q: no key of this log in the policy signed it", c.Origin)
	}
	if !p.quorum.Satisfied(checkpoint) {
		return c, fmt.Errorf("checkpoint of %q, size %d: not enough witnesses of the policy signed it", c.Origin, c.Size)
	}
	return c, nil
}

// LogAlone returns the policy without its quorum: that of a rotation, which needs no witness. Who has the key before
// can sign any tree, and the checkpoint of that needs the quorum.
func (p Policy) LogAlone() Policy {
	p.quorum = witness.Group{}
	return p
}

// known is a key, by what signatures name it by.
type known struct {
	name string
	hash uint32
}

func (k known) in(list []note.Verifier) bool {
	return slices.ContainsFunc(list, func(v note.Verifier) bool { return v.Name() == k.name && v.KeyHash() == k.hash })
}

// Follow returns the policy with the keys that its logs have added since: each is proved by the event that added it,
// under a checkpoint that a key known before and the new one have signed (LogAlone). Other proofs add none.
func (p Policy) Follow(proofs []Proof) Policy {
	for added := true; added; {
		added = false
		for _, file := range proofs {
			if v := p.added(file); v != nil && !(known{v.Name(), v.KeyHash()}).in(p.logs) {
				p.logs, added = append(slices.Clone(p.logs), v), true
			}
		}
	}
	return p
}

// added returns the key that the event of a proof added, nil if the proof shows none.
func (p Policy) added(file Proof) note.Verifier {
	s, err := file.Verify(p.LogAlone())
	if err != nil || s.Data == nil {
		return nil
	}
	var e audit.KeyAdded
	if s.Fields.Type != e.EventType() || json.Unmarshal(s.Data, &e) != nil || e.Origin != s.Origin ||
		s.Fields.Stream != stream.Name(stream.Audit, s.Fields.Organization) {
		return nil
	}
	v, err := note.NewVerifier(e.Verifier)
	if err != nil || v.Name() != e.Origin {
		return nil
	}
	if _, err := note.Open(file.Checkpoint, note.VerifierList(v)); err != nil {
		return nil
	}
	return v
}
