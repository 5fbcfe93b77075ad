// Package projections keeps the tables and indexes that are built from the log up to date, and says how far each has come.
package projections

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
)

// Projector builds one projection. Its tables are its own: they are in a schema of its name, which is thrown away and built
// anew from the log when its version changes.
type Projector interface {
	// Name is the schema, the key of the checkpoint and what answers wait for.
	Name() string
	// Version is raised with every change of the schema or of what is in the rows.
	Version() int
	// Families are the families of streams whose every event name it must know.
	Families() []string
	// Schema is the DDL of its tables, run once with search_path set to the schema.
	Schema() string
	// Apply applies facts of its families, in order, all of them decoded. Pages of any size give the same rows; a page may
	// come again after its transaction was lost, never after it was committed, except for what Apply writes elsewhere.
	//
	// Its statements name tables without a schema: the transaction's search_path is the schema that it builds, which is not
	// always the one that readers see. A statement's text should be no other projector's too, or its plan is made anew whenever
	// a connection serves the other one.
	//
	// An error means that an event cannot be applied and stops the projector for good, unless it is the database's, the event
	// store's or the context's, or was wrapped by Transient: then the page comes again.
	Apply(ctx context.Context, tx pgx.Tx, page []eventstore.Fact) error
}

// Resetter is a Projector that keeps something outside its schema. Reset empties that, before a projection is built anew; it may be called again.
type Resetter interface {
	Reset(ctx context.Context) error
}

// Targeted is a Projector that keeps something outside its schema, which can be lost without it. Target names what that is; a
// projection whose checkpoint was made with another target is built anew. It is asked again behind Reset.
type Targeted interface {
	Target() string
}

// Outside is a Targeted Projector that can build what it keeps outside its schema beside what is in use. A target is in use in one
// process only.
type Outside interface {
	Targeted
	Resetter
	// Beside begins an empty target beside the one in use, and answers the projector that fills it. What an earlier call began is removed.
	Beside(ctx context.Context) (Projector, error)
	// Adopt puts a target that Beside began into use, for good once it returns, and removes the one before; calls that run finish
	// on that. ok is false where there is no such target here. It may be called again, also by the next process.
	Adopt(ctx context.Context, target string) (ok bool, err error)
	// Discard removes what Beside began and nothing adopted.
	Discard(ctx context.Context) error
}

// Expunger is a Projector that keeps text outside its schema. Expunge returns once nothing of what was deleted there is on the disk.
type Expunger interface {
	Expunge(ctx context.Context) error
}

func targetOf(p Projector) string {
	if targeted, ok := p.(Targeted); ok {
		return targeted.Target()
	}
	return ""
}

// Transient marks an error of Apply that is not the event's fault, such as an index that cannot be reached.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transientError{err}
}

type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// errStale is a checkpoint that is not where the page follows: another process took over, or the database fell back.
var errStale = errors.New("checkpoint is elsewhere")
