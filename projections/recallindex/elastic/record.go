package elastic

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// record is what a hit returns of a document, all that is needed to score it and to write it again. It is one
// doc value: Elasticsearch would have to unpack a block of documents for every source or id that it
// returns. Most of an index are records, so they are packed.
type record struct {
	project func(uuid.UUID) bool // whether it is of a project
	key     recallindex.Key
	at      int64
	tie     uint16
	traits  recall.Traits
	// The terms of label and text, in any order.
	label, text []counted
}

// counted is a term and how often it occurs.
type counted struct {
	term string
	n    int
}

// document returns the document that the record is of, in an audience.
func (r record) document(audience uuid.UUID) recallindex.Document {
	return recallindex.Document{
		Key: r.key, Audience: audience, OccurredAt: time.UnixMilli(r.at), Tie: r.tie,
		Terms: recall.Terms{Text: repeated(r.text), Label: repeated(r.label), Traits: r.traits},
	}
}

func repeated(list []counted) (terms []string) {
	for _, c := range list {
		for range c.n {
			terms = append(terms, c.term)
		}
	}
	return terms
}

// A record is the beginning of its project, the data point, revision, part and passage or memory, time, tie and
// traits; then two lists of terms, label and text.
const projectBytes = 4

func encodeRecord(project uuid.UUID, d recallindex.Document) []byte {
	out := slices.Concat(project[:projectBytes], d.DataPoint[:])
	out = binary.AppendUvarint(out, uint64(d.Revision))
	if d.Part() == recallindex.Memories {
		out = append(append(out, recallindex.Memories[0]), d.Memory[:]...)
	} else {
		out = binary.AppendUvarint(append(out, recallindex.Sources[0]), uint64(d.N))
	}
	out = binary.AppendVarint(out, d.OccurredAt.UnixMilli())
	out = append(binary.AppendUvarint(out, uint64(d.Tie)), byte(d.Terms.Traits))
	return packTerms(packTerms(out, d.Terms.Label), d.Terms.Text)
}

func parseRecord(data []byte) (r record, err error) {
	u := unpacker{rest: data}
	project := uuid.UUID{}
	copy(project[:], u.bytes(projectBytes))
	r.project = func(p uuid.UUID) bool { return string(p[:projectBytes]) == string(project[:projectBytes]) }
	copy(r.key.DataPoint[:], u.bytes(len(r.key.DataPoint)))
	r.key.Revision = u.number()
	switch u.byte() {
	case recallindex.Memories[0]:
		copy(r.key.Memory[:], u.bytes(len(r.key.Memory)))
	case recallindex.Sources[0]:
		r.key.N = u.number()
	default:
		u.fail()
	}
	r.at, r.tie, r.traits = u.signed(), uint16(u.number()), recall.Traits(u.byte())
	r.label = u.terms()
	r.text = u.terms()
	if len(u.rest) > 0 {
		u.fail()
	}
	return r, u.err
}

// errRecord reports a record that this package did not write.
var errRecord = errors.New("the record of a document is unreadable")

// unpacker reads a record. After an error it reads zeros.
type unpacker struct {
	rest []byte
	err  error
}

func (u *unpacker) fail() { u.rest, u.err = nil, errRecord }

func (u *unpacker) bytes(n int) []byte {
	if n < 0 || n > len(u.rest) {
		u.fail()
		return nil
	}
	b := u.rest[:n]
	u.rest = u.rest[n:]
	return b
}

func (u *unpacker) byte() byte {
	if b := u.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// maxNumber bounds a number in a record, so that a damaged one makes no large list.
const maxNumber = 1 << 30

func (u *unpacker) number() int {
	n, size := binary.Uvarint(u.rest)
	if size <= 0 || n > maxNumber {
		u.fail()
		return 0
	}
	u.rest = u.rest[size:]
	return int(n)
}

func (u *unpacker) signed() int64 {
	n, size := binary.Varint(u.rest)
	if size <= 0 {
		u.fail()
		return 0
	}
	u.rest = u.rest[size:]
	return n
}
