// Package erasure removes what clients deleted from everything that the service stores.
//
// A deletion passes five stages, each with one verb:
//
//  1. Delete (commands/ingest/delete.go) is the client's call. The data point leaves recall at once, and
//     the fan-out of the deletion ends each data point with a datapoint.Deleted.
//  2. Retain facts (facts.go) copies what must outlive the streams, such as bytes, credits, outcomes
//     and the records of the events, to the stream of the deletion.
//  3. Tombstone (tombstone.go) ends the streams of memories, data points and blobs. Nobody can
//     write them again. What a worker has appended since has its records kept first (records.go).
//  4. Purge (purge.go) removes dead rows, deleted index documents and tombstoned streams from the
//     disk.
//  5. Record cleaned (purge.go) appends deletion.cleaned: nothing is left on the disks that the
//     service cleans.
//
// The stream of an identity goes on after its removal. Truncate (truncate.go) therefore replaces
// stages 2 and 3 for it, once its records are kept, and the last event is identity.cleared. Sweep
// (sweep.go) tombstones the blobs that nothing refers to; a deletion that such a blob may hold a copy
// of waits for it.
//
// The stream of a person is tombstoned once no organization has the person (members.go), and
// its records are kept. No facts of it are retained; the last event is address.released.
//
// Round (round.go) passes the work lists through these stages. The finisher of commands/pipeline
// decides when. Every stage may run any number of times, and in several processes at once: a list is
// a hint, and each stage decides on the streams.
//
// The erasure of a person (person.go) is a process over all of this, which the finisher continues too.
package erasure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/work"
)

const (
	// listSize is how many rows of a work list are read at a time.
	listSize = 256
	// roundWidth is how many deletions or blobs are worked on at once. Each works on several
	// streams at once, at most streamWidth.
	roundWidth  = 8
	streamWidth = 128
	// stepTimeout bounds the work on one deletion, identity or blob, and a wait for projections.
	stepTimeout = time.Minute
)

// ErrNotYet is the reason of a deletion that has to wait for another one, or for a fan-out.
var ErrNotYet = errors.New("the deletion has to wait")

// Streams ends what streams of the event log hold.
type Streams struct {
	Journal  eventstore.Journal
	Projects projects
	Logger   *slog.Logger
	Now      func() time.Time
}

// On is the streams of a journal, at the times of a clock.
func On(l *engine.Journal, now func() time.Time) Streams {
	return Streams{Journal: l.Journal, Projects: l, Logger: l.Logger, Now: now}
}

// Eraser erases. Its fields are required. The methods on one deletion, identity or blob may be
// called at any time; Round, TruncateIdentities and Clearable by one caller at a time.
type Eraser struct {
	Streams
	Deletions  deletionList
	Blobs      blobList
	Identities identityList
	People     peopleList
	Rows       rowCompleter
	Progress   progress
	// Tables, Index and Store purge. Store is Cluster if the log is a cluster's.
	Tables tables
	Index  index
	Store  scavenger
	// Calls blanks the request log; nil without one.
	Calls callLog
	// HasIndex reports whether this process feeds the index, and so can purge its files.
	HasIndex func() bool
	// ExtraProjections hold customer text in addition to those that every service has.
	ExtraProjections []string

	// deferred are the deletions that were purged and wait for something else.
	deferred map[uuid.UUID]bool
	// roundFrom is the deletion after which the next round begins, nil for the first.
	roundFrom *work.Deletion
	// truncated holds the removals of identities that are known to be truncated, by the record;
	// deferredRemovals holds those of them that were purged and wait for something else.
	truncated, deferredRemovals map[uuid.UUID]eventstore.Revision
}

// deletionList lists deletions by stage. Every list is oldest first.
type deletionList interface {
	// Erasures lists data points whose facts are not retained yet.
	Erasures(ctx context.Context, limit int) ([]work.Erasure, error)
	// CleanableDeletions lists the deletions after one (nil for the first) whose facts are all
	// retained, and that are not cleaned.
	CleanableDeletions(ctx context.Context, after *work.Deletion, limit int) ([]work.Deletion, error)
	// SearchableSince returns since when sends have been searchable, according to a
	// pipeline.Searchable that the projection has applied.
	SearchableSince(ctx context.Context, sends []uuid.UUID) (map[uuid.UUID]time.Time, error)
	// FactsOf returns what outlives a data point, with at most limit items that created a revision above after.
	FactsOf(ctx context.Context, dataPoint uuid.UUID, after, limit int) (work.Facts, error)
}

// blobList finds blobs, and the stages that may hold a copy of erased text.
type blobList interface {
	// UnreferencedBlobs lists blobs that may be swept at a time. Early is the deadline that has
	// passed for a stage with text of an erased data point.
	UnreferencedBlobs(ctx context.Context, at, early time.Time, limit int) ([]work.Blob, error)
	// BlobsOf names the blobs of data points that are not tombstoned yet.
	BlobsOf(ctx context.Context, dataPoints []uuid.UUID) ([]string, error)
	// BatchesOf lists the batches of data points whose fan-out is pending.
	BatchesOf(ctx context.Context, dataPoints []uuid.UUID) ([]work.Batch, error)
	// Copied returns which data points or identities may have a copy in an unreferenced stage.
	// projects[i] is the project of ids[i].
	Copied(ctx context.Context, projects, ids []uuid.UUID) (map[uuid.UUID]bool, error)
	// FollowedUp returns which data points have text that is deleted from the tables in slices, and not all
	// of it yet.
	FollowedUp(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	// HasFollowUps reports whether any data point has such text.
	HasFollowUps(ctx context.Context) (bool, error)
}

// identityList lists the pending work on identities, oldest first.
type identityList interface {
	// OpenRemovals lists the removals after one (nil for the first) that are not cleared.
	OpenRemovals(ctx context.Context, after *work.Removal, limit int) ([]work.Removal, error)
	// PendingBulks lists the bulk writes whose fan-out is pending.
	PendingBulks(ctx context.Context, limit int) ([]work.Bulk, error)
}

// rowCompleter applies the rows of committed bulk writes to an identity record.
type rowCompleter interface {
	CompleteRows(ctx context.Context, project, identity uuid.UUID, now time.Time) error
}

// projects knows the projects of the log.
type projects interface {
	// OrganizationOf returns the organization of a project. It is engine.ErrNoProject if there is no such project.
	OrganizationOf(ctx context.Context, project uuid.UUID) (uuid.UUID, error)
	// AuthorID returns the identity record of an author, zero if there is none.
	AuthorID(ctx context.Context, project uuid.UUID, author string) (uuid.UUID, error)
}

// progress waits until projections have applied a position.
type progress interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
}

// each calls work with 0 to n-1 and stops at the first error.
func (s Streams) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	return panics.Each(ctx, s.Logger, streamWidth, n, work)
}

// bounded does a step within stepTimeout. A panic is its error, and is logged.
func (e *Eraser) bounded(ctx context.Context, step func(context.Context) error) error {
	return e.within(ctx, stepTimeout, step)
}

// within is bounded with another limit.
func (e *Eraser) within(ctx context.Context, limit time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return panics.Call(ctx, e.Logger, "erasure step panicked", func() error { return step(ctx) })
}

// waitHead waits until projections have applied the current head of the log.
func (e *Eraser) waitHead(ctx context.Context, projections ...string) error {
	return e.bounded(ctx, func(ctx context.Context) error {
		head, err := e.Journal.Store.Head(ctx)
		if err != nil {
			return err
		}
		return e.Progress.Wait(ctx, head, projections...)
	})
}
