package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/todo"
)

// diskTimeout bounds one removal from the disk: all files of a large store may have to be rewritten.
const diskTimeout = 30 * time.Minute

// Tables removes dead rows from the tables that hold customer text. It answers how many tables that were.
type Tables interface {
	Vacuum(ctx context.Context) (tables int, err error)
}

// Index removes deleted documents from the files of the index.
type Index interface {
	// Expunge returns once no file holds anything of the documents that were deleted before, and how many parts of the index it
	// went through. One that nobody changed costs nothing.
	Expunge(ctx context.Context) (parts int, err error)
}

// Physical removes what the log has lost from the files of the store.
type Physical interface {
	Scavenge(ctx context.Context) error
}

// What became of the files of the store.
const (
	StoreScavenged = "scavenged"
	StoreCluster   = "left to the cluster's own scavenge"
)

// Erasure is what rounds of the finisher removed.
type Erasure struct {
	// Deletions were cleaned, and removed Identities cleared; Streams were ended for deletions, and Blobs were swept.
	Deletions  int `json:"deletions"`
	Identities int `json:"identities"`
	Streams    int `json:"streams"`
	Blobs      int `json:"blobs"`
	// Tables were vacuumed and Indexes rewritten; Store is StoreScavenged or StoreCluster, "" where nothing was removed from the disk.
	Tables  int    `json:"tables"`
	Indexes int    `json:"indexes"`
	Store   string `json:"store,omitempty"`
	// Left is what still waits, and Trouble why.
	Left    todo.Open `json:"left"`
	Trouble []string  `json:"trouble,omitempty"`

	errs []error
}

func (e *Erasure) fail(what string, err error) {
	e.errs = append(e.errs, fmt.Errorf("%s: %w", what, err))
	e.Trouble = append(e.Trouble, what+": "+err.Error())
}

// log says what a round did that nobody asked for.
func (e *Erasure) log(ctx context.Context, to *slog.Logger) {
	if e.Deletions+e.Identities+e.Blobs > 0 {
		to.InfoContext(ctx, "deleted text is erased", "deletions", e.Deletions, "identities", e.Identities, "streams", e.Streams, "blobs", e.Blobs,
			"tables", e.Tables, "indexes", e.Indexes, "store", e.Store)
	}
	for _, err := range e.errs {
		to.WarnContext(ctx, "left for the next round", "err", err)
	}
}

// removeFromDisk removes what is dead from tables, index and store; without all, only where something of a project was deleted.
func (f *Finisher) removeFromDisk(ctx context.Context, projects map[uuid.UUID]bool, all bool, done *Erasure) error {
	if len(projects) == 0 && !all {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	if f.Tables != nil {
		n, err := f.Tables.Vacuum(ctx)
		if err != nil {
			return fmt.Errorf("vacuum tables: %w", err)
		}
		done.Tables = max(done.Tables, n)
	}
	if f.Index != nil {
		n, err := f.Index.Expunge(ctx)
		if err != nil {
			return fmt.Errorf("expunge the index: %w", err)
		}
		done.Indexes = max(done.Indexes, n)
	}
	done.Store = StoreCluster
	if f.Store != nil {
		if err := f.Store.Scavenge(ctx); err != nil {
			return fmt.Errorf("scavenge the store: %w", err)
		}
		done.Store = StoreScavenged
	}
	return nil
}

// EraseNow completes every open deletion and removal, and removes what is dead from the disk, and returns when that is done. What has to wait
// for something else is in Left, and the error says what went wrong.
func (f *Finisher) EraseNow(ctx context.Context) (Erasure, error) {
	var done Erasure
	for {
		var one Erasure
		// What was deleted a moment ago is to be in the lists, and nothing in them that is over.
		if err := f.passHead(ctx, f.lists()...); err != nil {
			one.errs = append(one.errs, err)
		}
		f.round(ctx, true, &one)
		done.add(one)
		left, err := f.openWork(ctx)
		if err != nil {
			return done, err
		}
		done.Left = left
		if one.Deletions+one.Identities == 0 || left.Deletions+left.Identities == 0 || len(one.errs) > 0 || ctx.Err() != nil {
			return done, errors.Join(append(one.errs, ctx.Err())...)
		}
	}
}

// Pending is what waits to be erased.
func (f *Finisher) Pending(ctx context.Context) (todo.Open, error) { return f.openWork(ctx) }

func (e *Erasure) add(o Erasure) {
	e.Deletions += o.Deletions
	e.Identities += o.Identities
	e.Streams += o.Streams
	e.Blobs += o.Blobs
	e.Tables, e.Indexes = max(e.Tables, o.Tables), max(e.Indexes, o.Indexes)
	if o.Store != "" {
		e.Store = o.Store
	}
	e.Trouble = o.Trouble
}
