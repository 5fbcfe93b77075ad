// Package recallindex keeps the search index of recall in step with the log: the port to an engine, and the projector that feeds it.
//
// An index answers which passages may matter and how often the words of a query stand in them. It decides nothing: what a
// reader may see, and the order, is decided by who asks, from Postgres.
package recallindex

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
)

// Part is one of the two bodies of documents of a project, each with frequencies of its own.
type Part string

// The parts: passages of the newest revisions of sources, and derived memories.
const (
	Sources  Part = "source"
	Memories Part = "memory"
)

// Key names a document: the N-th passage of a revision, from 0, or where Memory is set that memory of a revision.
type Key struct {
	DataPoint uuid.UUID
	Revision  int
	N         int
	Memory    uuid.UUID
}

// Part is the body that the document belongs to.
func (k Key) Part() Part {
	if k.Memory != uuid.Nil {
		return Memories
	}
	return Sources
}

// Document is one entry of the index. Audience is zero for project-visible.
type Document struct {
	Key
	Audience   uuid.UUID
	OccurredAt time.Time
	Terms      recall.Terms
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

// Change is what one page does to the documents of one project: deletes first, then upserts, which replace equal keys, then moves.
// All documents of a data point have one audience: that of its newest move or upsert.
type Change struct {
	Project uuid.UUID
	Deletes []Scope
	Upserts []Document
	Moves   []Move
}

// Query asks for the documents of one part that hold any of the terms.
type Query struct {
	Project uuid.UUID
	Part    Part
	// Terms are distinct; without any, nothing is found. Those from Own on are related to the first ones, and count less.
	Terms []string
	Own   int
	// Audiences are those that the reader reaches, uuid.Nil for what is project-visible; none reaches nothing.
	Audiences []uuid.UUID
	// From and To bound OccurredAt, inclusive; nil is open. An index may find what lies outside of them, never less than what lies inside.
	From, To *time.Time
	// Size is the most hits, the best ones by the index's own reckoning.
	Size int
}

// Hit is a document that was found: how often each term of the query stands in it, how many terms its text has, and what kind of
// thing it says.
type Hit struct {
	Key
	Counts []recall.Count
	Length int
	Traits recall.Traits
}

// Found is the answer to a query. Hits are in no promised order; Statistics are of the whole part of the project, at the
// same moment, for the terms of the query in its order.
type Found struct {
	Hits       []Hit
	Statistics recall.Statistics
}

// Index is a search engine. It is safe for concurrent use; every call ends with its context.
type Index interface {
	// Apply makes the changes of one page, at most one of each project. When it returns nil, they are durable and every later
	// search sees them. A repeated Apply changes nothing; one that failed may have happened in part.
	Apply(ctx context.Context, changes []Change) error
	// Search finds documents. A project without documents has none. It is ErrIncomplete where documents of the project are
	// lost and not all back yet.
	Search(ctx context.Context, q Query) (Found, error)
	// Count is the number of documents of a project, both parts.
	Count(ctx context.Context, project uuid.UUID) (int, error)
	// Expunge returns once no file holds anything of the documents that were deleted before, and how many parts of the index it
	// went through.
	Expunge(ctx context.Context) (parts int, err error)
	// DropProject removes all documents of a project.
	DropProject(ctx context.Context, project uuid.UUID) error
	// Reset removes everything and begins a new generation.
	Reset(ctx context.Context) error
	// Generation names the contents: while it is the same, nothing that Apply made durable was lost, but for what Losses names.
	// A new one is empty.
	Generation() string
	// Losses are the parts of the index that lost documents and are not filled again yet. Changes go on there meanwhile.
	Losses() []Loss
	// Refilled notes durably that all documents of a loss up to a data point are back, or with a nil mark that all of them
	// are. It is ErrDamaged where the part was lost once more.
	Refilled(ctx context.Context, loss Loss, reached *Mark) error
	// Close ends the index; calls that run are waited for, later ones are ErrClosed.
	Close() error
}

// Loss is a part of the index that lost its documents, and has to be filled again from the log.
type Loss struct {
	// ID tells losses of one part apart.
	ID uuid.UUID
	// Part names what was lost, for people.
	Part string
	// Holds reports whether the documents of a project were there.
	Holds func(project uuid.UUID) bool
	// Reached is up to where it is filled again, zero for nothing.
	Reached Mark
}

// Mark is a place in the order of data points: by project, then by id.
type Mark struct {
	Project   uuid.UUID
	DataPoint uuid.UUID
}

// The errors that callers tell apart, with errors.Is.
var (
	ErrClosed = errors.New("recall index is closed")
	// ErrDamaged is an index that lost documents.
	ErrDamaged = errors.New("recall index is damaged")
	// ErrIncomplete is a project some of whose documents were lost and are not back yet.
	ErrIncomplete = errors.New("the index of the project is being filled again")
)
