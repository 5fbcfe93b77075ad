package elastic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

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
