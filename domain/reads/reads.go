// Package reads is what the log keeps of who was shown which texts: read records.
//
// A record holds ids, numbers and keyed hashes: no text, no name and no source id. So nothing of it has to go when a
// text or a person is erased.
package reads

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"
)

// Way is how texts were shown.
type Way string

// The ways.
const (
	Recall   Way = "recall"
	Newest   Way = "newest" // the newest texts, as a recall lists them
	Text     Way = "text"   // one text by its source id, as an identity
	Explain  Way = "explain"
	Roots    Way = "roots" // the lists of sources and memories of trace
	Node     Way = "node"
	Lineage  Way = "lineage"
	Timeline Way = "timeline"
	Body     Way = "body"  // the bodies of a logged call
	Point    Way = "point" // a data point with its history
	List     Way = "list"  // the beginnings of data points
	Export   Way = "export"
	Past     Way = "past" // the texts that a read record names
)

// Ways are all of them.
func Ways() []Way {
	return []Way{Recall, Newest, Text, Explain, Roots, Node, Lineage, Timeline, Body, Point, List, Export, Past}
}

// Span is a part of a text, in bytes, or in characters where a client was shown a part that it chose: from the first
// up to, and without, the second.
type Span [2]int

// Shown is a text that was shown. Without spans it is the whole text, or the beginning of it in a list.
type Shown struct {
	// Node is the id of a revision of a data point, or of a memory; zero for a data point of which only that is known.
	Node uuid.UUID `json:"node,omitzero"`
	// DataPoint and Revision are those of the revision, or of that which a memory was derived from.
	DataPoint uuid.UUID `json:"dataPoint,omitzero"`
	Revision  int       `json:"revision,omitempty"`
	// Leaf is the record of the event that holds the text (audit.Record), empty if that had left the log, or was not
	// projected yet.
	Leaf  []byte `json:"leaf,omitempty"`
	Spans []Span `json:"spans,omitempty"`
}

// Record is what one request was shown. A request that was shown much has several, which are its parts.
type Record struct {
	// ID is that of the request.
	ID   uuid.UUID `json:"id"`
	Part int       `json:"part,omitempty"`
	At   time.Time `json:"at"`
	Way  Way       `json:"way"`
	// By is the principal, such as key:<uuid> or person:<uuid>, and As the identity that it asked as, zero for none.
	By string    `json:"by"`
	As uuid.UUID `json:"as,omitzero"`
	// Question is the keyed hash of the question (stream.Namespaces.Question), "" without one.
	Question string `json:"question,omitempty"`
	// Shown are the texts. Those that an answer left out at its end are not among them.
	Shown []Shown `json:"shown"`
	// Call is the logged call whose bodies were shown, zero for another way.
	Call uuid.UUID `json:"call,omitzero"`
}

// Encode returns the bytes of a record, as they are in the event that holds it.
func (r Record) Encode() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Rooted has the root of the tree over the records of the event after it (RFC 6962): the leaves are the bytes of the
// records in their order (Record.Encode).
type Rooted struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	ProjectID      uuid.UUID `json:"projectId"`
	Size           int       `json:"size"`
	// Root is the SHA-256 at the top.
	Root []byte `json:"root"`
}

func (Rooted) EventType() string { return "reads.rooted.v1" }

// Recorded has the records of a batch.
type Recorded struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	ProjectID      uuid.UUID `json:"projectId"`
	Records        []Record  `json:"records"`
}

func (Recorded) EventType() string { return "reads.recorded.v1" }

// Batch returns the two events of a batch of records, which one append stores.
func Batch(organization, project uuid.UUID, records []Record) (Rooted, Recorded, error) {
	tree, err := newTree(records)
	if err != nil {
		return Rooted{}, Recorded{}, err
	}
	root, err := tlog.TreeHash(int64(len(records)), tree)
	return Rooted{organization, project, len(records), root[:]}, Recorded{organization, project, records}, err
}

// Prove returns the path from a record of a batch to its root.
func Prove(records []Record, n int) (tlog.RecordProof, error) {
	tree, err := newTree(records)
	if err != nil {
		return nil, err
	}
	return tlog.ProveRecord(int64(len(records)), int64(n), tree)
}

// tree holds the hashes of a tree, in the order in which package tlog stores them.
type tree []tlog.Hash

// ReadHashes implements tlog.HashReader.
func (t tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		found[i] = t[n]
	}
	return found, nil
}

func newTree(records []Record) (t tree, err error) {
	for n, r := range records {
		leaf, err := r.Encode()
		if err != nil {
			return nil, err
		}
		hashes, err := tlog.StoredHashes(int64(n), leaf, t)
		if err != nil {
			return nil, err
		}
		t = append(t, hashes...)
	}
	return t, nil
}
