package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// batchBytes is about the most bytes of the records of one append.
	batchBytes = 192 << 10
	// maxLooks is how often the texts of a record are looked up: one that was just stored may not be projected yet. With
	// the pauses between, a record is appended within a second even then.
	maxLooks = 2
	// maxHeads is of how many streams the end is remembered.
	maxHeads = 4096
	// appendWidth is how many projects are appended to at once.
	appendWidth = 8
	principal   = "reads"
)

// batch is some records of a project, as one append stores them.
type batch struct {
	owner   allowance.Owner
	entries []entry
	rooted  reads.Rooted
	records reads.Recorded
	// name is the stream, meta what a repeated append has too. at is the revision after which it was tried, and tried is
	// true while it is not known how that ended.
	name  string
	meta  event.Meta
	at    eventstore.Revision
	tried bool
	// done reports that it is in the log, or lost, since its stream has ended.
	done, lost bool
}

// lookUp completes the texts of records. It returns those that are ready or were looked up so often, and those that
// wait for the projection.
func (r *Recorder) lookUp(ctx context.Context, taken []entry, looks int) (ready, wait []entry) {
	if missing := r.unknown(taken); len(missing) > 0 {
		found, err := r.Leaves.Leaves(ctx, missing)
		if err != nil {
			r.Logger.WarnContext(ctx, "events of texts that were read cannot be looked up", "err", err)
		}
		r.mu.Lock()
		for id, s := range found {
			r.known.Add(id, s)
		}
		r.mu.Unlock()
	}
	for _, e := range taken {
		e.looks++
		if r.complete(e.record.Shown) || e.looks >= looks {
			ready = append(ready, e)
		} else {
			wait = append(wait, e)
		}
	}
	return ready, wait
}

// unknown returns the nodes of records of which nothing is known.
func (r *Recorder) unknown(taken []entry) (missing []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := map[uuid.UUID]bool{uuid.Nil: true}
	for _, e := range taken {
		for _, s := range e.record.Shown {
			if _, known := r.known.Get(s.Node); !known && !asked[s.Node] {
				asked[s.Node] = true
				missing = append(missing, s.Node)
			}
		}
	}
	return missing
}

// complete sets what is known of texts, and reports whether that is all of them.
func (r *Recorder) complete(texts []reads.Shown) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := true
	for i, s := range texts {
		known, is := r.known.Get(s.Node)
		if !is {
			all = all && s.Node == uuid.Nil
			continue
		}
		if s.Spans == nil {
			texts[i].Spans = known.Spans
		}
		texts[i].DataPoint, texts[i].Revision, texts[i].Leaf = known.DataPoint, known.Revision, known.Leaf
	}
	return all
}

// batch makes the appends of records.
func (r *Recorder) batch(ready []entry) ([]*batch, error) {
	var made []*batch
	open, sizes := map[uuid.UUID]*batch{}, map[uuid.UUID]int{}
	var errs []error
	for _, e := range ready {
		size := int(e.hold.Held())
		project := e.owner.Project
		b := open[project]
		if b == nil || sizes[project]+size > batchBytes {
			b = &batch{owner: e.owner}
			made, open[project], sizes[project] = append(made, b), b, 0
		}
		b.entries = append(b.entries, e)
		sizes[project] += size
	}
	for _, b := range made {
		list := make([]reads.Record, len(b.entries))
		for i, e := range b.entries {
			list[i] = e.record
		}
		var err error
		b.rooted, b.records, err = reads.Batch(b.owner.Organization, b.owner.Project, list)
		errs = append(errs, err)
		now := r.Now()
		b.name = stream.ReadsName(b.owner.Project, now.UTC().Format(time.DateOnly))
		b.meta = event.NewMeta(principal, now).Of(b.owner.Project)
	}
	return made, errors.Join(errs...)
}

// append appends the batches, those of a project in their order, and forgets those that are in the log.
func (r *Recorder) append(ctx context.Context) error {
	var projects []uuid.UUID
	of := map[uuid.UUID][]*batch{}
	for _, b := range r.batches {
		id := b.owner.Project
		if of[id] == nil {
			projects = append(projects, id)
		}
		of[id] = append(of[id], b)
	}
	errs := make([]error, len(projects))
	err := panics.Each(ctx, r.Logger, appendWidth, len(projects), func(ctx context.Context, i int) error {
		for _, b := range of[projects[i]] {
			if errs[i] = r.appendBatch(ctx, b); errs[i] != nil {
				break
			}
		}
		return nil
	})
	left := r.batches[:0]
	for _, b := range r.batches {
		if !b.done {
			left = append(left, b)
			continue
		}
		r.records.Add(float64(len(b.entries)))
		for _, e := range b.entries {
			e.hold.Release()
		}
	}
	clear(r.batches[len(left):])
	r.batches = left
	return errors.Join(append(errs, err)...)
}

// appendBatch appends a batch after the end of its stream, where another process may append too.
func (r *Recorder) appendBatch(ctx context.Context, b *batch) error {
	for {
		if !b.tried {
			at, err := r.headOf(ctx, b.name)
			if err != nil {
				return fmt.Errorf("find the end of %s: %w", b.name, err)
			}
			b.at, b.tried = at, true
		}
		begun := time.Now()
		done, err := r.Journal.Append(ctx, b.name, b.at, b.meta, b.rooted, b.records)
		switch {
		case err == nil:
			b.done = true
			r.took.Store((7*cmp.Or(r.took.Load(), int64(time.Since(begun))) + int64(time.Since(begun))) / 8)
			r.setHead(b.name, done.Revision)
			return nil
		case errors.Is(err, eventstore.ErrConflict):
			// Somebody else appended, and this append is not in the log. Another one needs another id.
			b.tried, b.meta.CommandID = false, uuid.New()
			r.dropHead(b.name)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		case errors.Is(err, eventstore.ErrDeleted):
			// The clock was set back to a day whose records have left the log.
			b.done, b.lost = true, true
			r.Logger.ErrorContext(ctx, "read records are of a day whose stream has ended, they are lost", "stream", b.name)
			return nil
		default:
			return fmt.Errorf("append to %s: %w", b.name, err)
		}
	}
}

// headOf returns where a stream ends.
func (r *Recorder) headOf(ctx context.Context, name string) (eventstore.Revision, error) {
	r.mu.Lock()
	at, known := r.heads[name]
	r.mu.Unlock()
	if known {
		return at, nil
	}
	last, ok, err := r.Journal.Store.ReadLast(ctx, name)
	if err != nil {
		if errors.Is(err, eventstore.ErrDeleted) {
			return eventstore.NoStream, nil // the append fails for it
		}
		return 0, err
	}
	if !ok {
		return eventstore.NoStream, nil
	}
	return last.Revision, nil
}

func (r *Recorder) setHead(name string, at eventstore.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heads) >= maxHeads {
		clear(r.heads)
	}
	r.heads[name] = at
}

func (r *Recorder) dropHead(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heads, name)
}
