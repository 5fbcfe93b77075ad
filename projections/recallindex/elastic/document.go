package elastic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// document is what Elasticsearch indexes. It keeps only the record.
type document struct {
	Group     string `json:"g"` // the part of the project
	DataPoint string `json:"d"`
	Scope     string `json:"s"`
	Audience  string `json:"a"`
	// Impacts are by term, Labels are terms; both have the prefix of the part.
	Impacts map[string]float32 `json:"v,omitempty"`
	Labels  []string           `json:"l,omitempty"`
	At      int64              `json:"at"` // in milliseconds, rounded down
	// Order decides between equal scores.
	Order  uint64 `json:"o,omitempty"`
	Record []byte `json:"c"`
}

// encodeDocument returns the JSON of a document.
func encodeDocument(project uuid.UUID, d recallindex.Document) ([]byte, error) {
	part := d.Part()
	doc := document{
		Group: group(project, part), DataPoint: dataPoint(project, d.DataPoint),
		Scope:    scope(project, recallindex.Scope{DataPoint: d.DataPoint, Part: part, Revision: d.Revision}),
		Audience: d.Audience.String(), At: d.OccurredAt.UnixMilli(), Order: d.Order(), Record: encodeRecord(project, d),
	}
	in := prefix(project, part)
	counts := make(map[string]int, len(d.Terms.Text))
	for _, t := range d.Terms.Text {
		counts[t]++
	}
	doc.Impacts = make(map[string]float32, len(counts))
	for t, n := range counts {
		doc.Impacts[in.feature(t)] = stored(recall.Impact(n, len(d.Terms.Text)))
	}
	for _, t := range d.Terms.Label {
		doc.Labels = append(doc.Labels, in.feature(t))
	}
	return json.Marshal(doc)
}

// stored returns the number that Elasticsearch keeps of a positive one in a sparse vector: it cuts off
// the last fifteen bits.
func stored(impact float64) float32 {
	const cut = 15
	return math.Float32frombits(math.Float32bits(float32(impact)) >> cut << cut)
}

// partPrefix begins every term of a part of a project.
type partPrefix string

// prefix is short, since it is in every term: a part of another project with the same prefix, among
// billions, would count in its frequencies, and never be found.
func prefix(project uuid.UUID, part recallindex.Part) partPrefix {
	const enough = 8
	sum := sha256.Sum256(project[:])
	return partPrefix(base64.RawURLEncoding.EncodeToString(sum[:enough]) + string(part[0]))
}

// dots escapes what Elasticsearch forbids in the name of a feature.
var dots = strings.NewReplacer("%", "%25", ".", "%2e")

func (p partPrefix) feature(term string) string { return string(p) + dots.Replace(term) }

func group(project uuid.UUID, part recallindex.Part) string {
	return project.String() + ":" + string(part)
}

// groups returns both parts of a project.
func groups(project uuid.UUID) []string {
	return []string{group(project, recallindex.Sources), group(project, recallindex.Memories)}
}

func dataPoint(project, id uuid.UUID) string { return encode(project) + encode(id) }

func scope(project uuid.UUID, s recallindex.Scope) string {
	return dataPoint(project, s.DataPoint) + string(s.Part[0]) + strconv.Itoa(s.Revision)
}

func encode(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// idLength is the length of a UUID in an id.
const idLength = 22

// identifier returns the id of a document: its scope, and passage or memory.
func identifier(project uuid.UUID, k recallindex.Key) string {
	last := strconv.Itoa(k.N)
	if k.Memory != uuid.Nil {
		last = encode(k.Memory)
	}
	return scope(project, recallindex.Scope{DataPoint: k.DataPoint, Part: k.Part(), Revision: k.Revision}) + ":" + last
}

// parseIdentifier parses what identifier returned.
func parseIdentifier(id string) (project uuid.UUID, k recallindex.Key, err error) {
	bad := func() (uuid.UUID, recallindex.Key, error) {
		return uuid.Nil, recallindex.Key{}, fmt.Errorf("document id %.200q is unreadable", id)
	}
	if len(id) <= 2*idLength {
		return bad()
	}
	kind := id[2*idLength]
	revision, last, ok := strings.Cut(id[2*idLength+1:], ":")
	if !ok || !decode(&project, id[:idLength]) || !decode(&k.DataPoint, id[idLength:2*idLength]) {
		return bad()
	}
	if k.Revision, err = strconv.Atoi(revision); err != nil {
		return bad()
	}
	switch kind {
	case recallindex.Memories[0]:
		ok = decode(&k.Memory, last)
	case recallindex.Sources[0]:
		k.N, err = strconv.Atoi(last)
		ok = err == nil
	default:
		ok = false
	}
	if !ok {
		return bad()
	}
	return project, k, nil
}

func decode(id *uuid.UUID, text string) bool {
	if len(text) != idLength {
		return false
	}
	_, err := base64.RawURLEncoding.Decode(id[:], []byte(text))
	return err == nil
}

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
