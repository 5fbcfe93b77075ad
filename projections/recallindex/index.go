// Package recallindex keeps the search index of recall up to date with the log: the port to an
// engine, and the projector that feeds it.
//
// An index proposes passages, and counts the words of a query in them. It decides nothing: package
// recall checks what a viewer may read, in Postgres, and ranks.
package recallindex

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
)

// Part is one of the two kinds of documents of a project, each with separate frequencies.
type Part string

// The parts: passages of the newest revisions of sources, and derived memories.
const (
	Sources  Part = "source"
	Memories Part = "memory"
)

// Key names a document: the N-th passage of a revision, from 0, or if Memory is set that memory of
// a revision.
type Key struct {
	DataPoint uuid.UUID
	Revision  int
	N         int
	Memory    uuid.UUID
}

// Part returns the part that the document belongs to.
func (k Key) Part() Part {
	if k.Memory != uuid.Nil {
		return Memories
	}
	return Sources
}

// Document is one entry of the index. Audience is zero if it is project-visible.
type Document struct {
	Key
	Audience   uuid.UUID
	OccurredAt time.Time
	// Tie orders documents of one second and equal score. It is the same for equal texts in every project.
	Tie   uint16
	Terms recall.Terms
}

// Order is the place of a document among those of equal score: the newer first, then by Tie. Times are
// compared by the second.
func (d Document) Order() uint64 {
	const end, tieBits = 253_402_300_800, 16 // the year 10000 in seconds of 1970
	return uint64(max(end-d.OccurredAt.Unix(), 0))<<tieBits | uint64(d.Tie)
}

// TieOf returns the Tie of a document, from what is the same in every project.
func TieOf(parts ...string) uint16 {
	sum := fnv.New32a()
	for _, part := range parts {
		_, _ = sum.Write(append([]byte(part), 0)) // a hash never fails
	}
	return uint16(sum.Sum32() ^ sum.Sum32()>>16)
}

// Scope names all documents of one part of a revision of a data point.
type Scope struct {
	DataPoint uuid.UUID
	Part      Part
	Revision  int
}

// Move gives every document of a data point another audience.
type Move struct {
	DataPoint uuid.UUID
	Audience  uuid.UUID
}

// Change is what one page does to the documents of one project: first deletes, then upserts, which
// replace equal keys, then moves. All documents of a data point have the audience of its newest
// move or upsert.
type Change struct {
	Project uuid.UUID
	// Position is that of the newest event of the page, 0 if unknown. An index that several processes
	// use does not let a page replace what a newer one wrote.
	Position eventstore.Position
	// Analysis is the version of the analysis that made the terms of Upserts.
	Analysis int
	Deletes  []Scope
	Upserts  []Document
	Moves    []Move
}

// Query searches the parts of a project for documents with any of the terms.
type Query struct {
	Project uuid.UUID
	// Sources and Memories are the most hits of each part: those with the best scores, and of equal scores the
	// first by Order. A part of which none is wanted is not searched.
	Sources, Memories int
	// Terms are distinct; without any, nothing is found. Analysis is the version of the analysis that made
	// them.
	Terms    []recall.Term
	Analysis int
	// Audiences are those that the viewer reaches, uuid.Nil for project-visible; none reaches nothing.
	Audiences []uuid.UUID
	// From and To bound OccurredAt, inclusive; nil is open. An index may also return documents
	// outside, but must not miss any inside.
	From, To *time.Time
}

// PartQuery is what a query asks of one part: Size is the most hits of it.
type PartQuery struct {
	Query
	Part Part
	Size int
}

// Parts returns what the query asks of each part that it searches.
func (q Query) Parts() []PartQuery {
	var parts []PartQuery
	for _, p := range []PartQuery{{q, Sources, q.Sources}, {q, Memories, q.Memories}} {
		if p.Size > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}

// Hit is a document that matches: how often it contains each term of the query, the length of its
// text in terms, and its traits.
type Hit struct {
	Key
	Counts []recall.Count
	Length int
	Traits recall.Traits
}

// Result is the answer of one part. Hits are in no order. Statistics are those of the whole part of
// the project, of the same snapshot, for the terms of the query in order.
type Result struct {
	Hits       []Hit
	Statistics recall.Statistics
}

// Found is the answer to a query, both parts of the same generation. That of a part that is not searched is zero.
type Found struct{ Sources, Memories Result }

// Of returns the answer of one part.
func (f *Found) Of(part Part) *Result {
	if part == Memories {
		return &f.Memories
	}
	return &f.Sources
}

// Index is a search engine. It is safe for concurrent use; every call ends with its context.
type Index interface {
	// Apply makes the changes of one page, at most one of each project. When it returns nil, they are
	// durable and every later search sees them. Applying a page again changes nothing; a page that
	// failed may be applied in part. It returns ErrOtherAnalysis, and changes nothing, if the generation
	// in use is of another analysis than one of the upserts.
	Apply(ctx context.Context, changes []Change) error
	// Search finds documents. A project without documents has none. It returns ErrIncomplete if
	// documents of the project are lost and not all refilled, and ErrOtherAnalysis if the generation in
	// use is of another analysis than the query.
	Search(ctx context.Context, q Query) (Found, error)
	// Spellings returns, for each word that no readable document of part Sources holds in its text or
	// label, the spellings that such documents hold, at most Size, in the order of SortSpellings; nil for a
	// word that one holds. An index bounds how many words it compares and looks for, and leaves out what is
	// beyond.
	Spellings(ctx context.Context, q SpellingQuery) ([][]string, error)
	// Count returns the number of documents of a project, both parts.
	Count(ctx context.Context, project uuid.UUID) (int, error)
	// Total returns the number of documents of all projects.
	Total(ctx context.Context) (int, error)
	// Purge returns once no file contains anything of the documents that were deleted before, and how
	// many parts of the index it rewrote.
	Purge(ctx context.Context) (parts int, err error)
	// DropProject removes all documents of a project.
	DropProject(ctx context.Context, project uuid.UUID) error
	// Reset removes everything and begins a new generation.
	Reset(ctx context.Context) error
	// Generation names the contents. While it is the same, nothing that Apply made durable was lost,
	// except what Losses names. A new generation is empty.
	Generation() string
	// Analysis is the version of the analysis of the documents that searches find. It changes when
	// another generation is put into use.
	Analysis() int
	// Losses returns the parts of the index that lost documents and are not refilled yet. Changes are
	// applied there meanwhile.
	Losses() []Loss
	// Refilled records durably that all documents of a loss up to a data point are refilled, or with
	// nil that all are. It returns ErrDamaged if the part was lost again.
	Refilled(ctx context.Context, loss Loss, reached *Cursor) error
	// Close waits for running calls; later calls return ErrClosed.
	Close() error
}

// Loss is a part of the index that lost its documents and must be refilled from the log.
type Loss struct {
	// ID distinguishes losses of one part.
	ID uuid.UUID
	// Part names the part, for people.
	Part string
	// Holds reports whether the part held documents of a project.
	Holds func(project uuid.UUID) bool
	// Reached is up to where it is refilled, zero for nothing.
	Reached Cursor
}

// Cursor is a position in the order of data points: by project, then by id.
type Cursor struct {
	Project   uuid.UUID
	DataPoint uuid.UUID
}

// The errors that callers distinguish, with errors.Is.
var (
	ErrClosed = errors.New("recall index is closed")
	// ErrDamaged reports an index that lost documents.
	ErrDamaged = errors.New("recall index is damaged")
	// ErrIncomplete reports a project whose documents are lost in part and not refilled yet.
	ErrIncomplete = errors.New("recall index of the project is being refilled")
	// ErrOtherAnalysis reports terms of another analysis than that of the generation in use: analyse the
	// text again.
	ErrOtherAnalysis = errors.New("recall index is of another analysis")
)
