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
	"math"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/reads"
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
