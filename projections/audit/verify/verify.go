// Package verify compares the whole log with the trees of the audit log, and these with their checkpoints.
//
// It reads the log once, and each tree next to it: of a leaf it holds a bit, and of 256 leaves a hash. A leaf whose
// event has left the log is covered by its kept record, which comes later in the log.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/audit"
)

// Trees are the trees that are compared: audit.Queries.
type Trees interface {
	Trees(ctx context.Context, after *uuid.UUID, limit int) ([]audit.Tree, error)
	Leaves(ctx context.Context, organization uuid.UUID, from, to int64) ([]audit.Leaf, error)
	At(ctx context.Context, organization uuid.UUID, at []eventstore.Position) (map[eventstore.Position]audit.Placed, error)
	Tile(ctx context.Context, organization uuid.UUID, level int, n int64, width int) ([]byte, bool, error)
	Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader
}

// Verifier verifies a log.
type Verifier struct {
	Log   eventstore.Journal
	Trees Trees
	// Applied waits until the trees have the leaves of all events up to a position (Waiting). Nil does not wait.
	Applied func(ctx context.Context, up eventstore.Position) error
}

// Waiter waits for a projection: runner.Waiter.
type Waiter interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	WaitFollowUp(ctx context.Context, name, kind string, key uuid.UUID) error
}

// Waiting returns what waits for the trees of the service.
func Waiting(w Waiter) func(ctx context.Context, up eventstore.Position) error {
	return func(ctx context.Context, up eventstore.Position) error {
		if err := w.Wait(ctx, up, audit.Name); err != nil {
			return err
		}
		return w.WaitFollowUp(ctx, audit.Name, audit.Placing, audit.PlacingKey)
	}
}

// Request is what is verified.
type Request struct {
	// Since is a checkpoint, a signed note, that the caller kept; none if it is empty.
	Since []byte
	// Progress, if it is set, is called now and then with how many events were read, and up to where.
	Progress func(events int64, at, head eventstore.Position)
}

// Report is what was verified.
type Report struct {
	// Events is how many events were read, Head the end of the log at the begin, up to which they were.
	Events int64               `json:"events"`
	Head   eventstore.Position `json:"head"`
	Trees  []Tree              `json:"trees"`
	// Finding is the first thing that is wrong, nil if nothing is.
	Finding *Finding `json:"finding,omitempty"`
}

// Tree is what was verified of a tree.
type Tree struct {
	Organization uuid.UUID `json:"organization"`
	Origin       string    `json:"origin,omitempty"`
	Size         int64     `json:"size"`
	// Checked is how many leaves have their event, or its kept record, in the log.
	Checked int64 `json:"checked"`
	// Checkpoints is how many checkpoints were checked, Covered the size of the newest one.
	Checkpoints int64     `json:"checkpoints"`
	Covered     int64     `json:"covered"`
	CoveredAt   time.Time `json:"coveredAt,omitzero"`
}

// Uncovered is how many leaves no checkpoint covers.
func (t Tree) Uncovered() int64 { return max(t.Size-t.Covered, 0) }

// Uncovered is how many leaves of all trees no checkpoint covers.
func (r Report) Uncovered() (n int64) {
	for _, t := range r.Trees {
		n += t.Uncovered()
	}
	return n
}

// What may be wrong.
const (
	Changed    = "changed"    // a leaf is not that of its event, or of the record that is kept of it
	Missing    = "missing"    // an event has no leaf
	Lost       = "lost"       // a leaf has neither an event in the log nor a kept record
	Order      = "order"      // an event or a leaf is there twice, or before an earlier one
	Tile       = "tile"       // a hash of a tile is not that of the leaves below
	Checkpoint = "checkpoint" // a checkpoint is not of the tree, or not signed by a key of the log
	Blob       = "blob"       // a blob is not that which an event refers to
	Reads      = "reads"      // read records are not those of their root
	Fork       = "fork"       // the checkpoint of the caller is of another tree
	Cut        = "cut"        // the log ends before the checkpoint of the caller
	Restored   = "restored"   // the log was restored to before the checkpoint of the caller
)

// Finding is something that is wrong.
type Finding struct {
	Organization uuid.UUID `json:"organization"`
	// Index is that of the leaf, or where it should be.
	Index int64 `json:"index"`
	// Stream, Revision and EventID are those of the event, "" and zero if the log does not have it.
	Stream   string              `json:"stream,omitempty"`
	Revision eventstore.Revision `json:"revision"`
	EventID  uuid.UUID           `json:"eventId,omitzero"`
	Position eventstore.Position `json:"position,omitempty"`
	What     string              `json:"what"`
	Detail   string              `json:"detail"`
}

// pass is one pass over the log.
type pass struct {
	Verifier
	head    eventstore.Position
	owners  map[uuid.UUID]uuid.UUID // of projects
	trees   map[uuid.UUID]*tree
	events  int64
	last    eventstore.Position
	rooted  map[string]rooted
	blobs   map[string]bool // which were read
	finding *Finding
}

const (
	pageEvents = 500
	pageTrees  = 1000
	// buffered is about how many leaves of all trees are held, of which each tree has its part.
	buffered = 1 << 18
)

// Verify compares the log, up to its end at the call, with the trees. The error is that of a read; what is wrong is in
// the report.
func (v Verifier) Verify(ctx context.Context, req Request) (Report, error) {
	p := &pass{
		Verifier: v, owners: map[uuid.UUID]uuid.UUID{}, trees: map[uuid.UUID]*tree{}, rooted: map[string]rooted{},
		blobs: map[string]bool{},
	}
	var kept *keptCheckpoint
	if len(req.Since) > 0 {
		var err error
		if kept, err = parseKept(req.Since); err != nil {
			return Report{}, err
		}
	}
	if err := p.begin(ctx, kept); err != nil {
		return Report{}, err
	}
	if err := p.readLog(ctx, req.Progress); err != nil {
		return Report{}, err
	}
	report := Report{Events: p.events, Head: p.head, Trees: []Tree{}}
	for _, t := range p.inOrder() {
		if err := t.finish(ctx, p); err != nil {
			return Report{}, err
		}
		report.Trees = append(report.Trees, t.report)
	}
	if kept != nil {
		p.compareKept(kept)
	}
	report.Finding = p.finding
	return report, nil
}

// begin reads the end of the log, and then the trees, which have at least what is before it.
func (p *pass) begin(ctx context.Context, kept *keptCheckpoint) (err error) {
	if p.head, err = p.Log.Store.Head(ctx); err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	if p.Applied != nil {
		if err := p.Applied(ctx, p.head); err != nil {
			return err
		}
	}
	var after *uuid.UUID
	for {
		list, err := p.Trees.Trees(ctx, after, pageTrees)
		if err != nil {
			return err
		}
		for _, t := range list {
			p.trees[t.Organization] = newTree(t, kept)
			after = &t.Organization
		}
		if len(list) < pageTrees {
			break
		}
	}
	for _, t := range p.trees {
		t.chunk = min(max(buffered/len(p.trees), 16), 4096)
	}
	return nil
}

// readLog reads the log up to the head, and then what came meanwhile for kept records alone: an event may have left the
// log since the begin.
func (p *pass) readLog(ctx context.Context, progress func(int64, eventstore.Position, eventstore.Position)) error {
	err := p.readTo(ctx, 0, p.head, func(r eventstore.Recorded) error {
		p.events++
		if progress != nil && p.events%pageEvents == 0 {
			progress(p.events, r.Position, p.head)
		}
		return p.event(ctx, r)
	})
	if err != nil {
		return err
	}
	end, err := p.Log.Store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	return p.readTo(ctx, p.head, end, func(r eventstore.Recorded) error {
		if !audit.HasLeaf(r) {
			return nil
		}
		return p.keptIn(ctx, p.Log.Codec.DecodeRecorded(r))
	})
}

// readTo reads the log after a position and up to another.
func (p *pass) readTo(ctx context.Context, after, to eventstore.Position, do func(eventstore.Recorded) error) error {
	for after < to {
		events, err := p.Log.Store.ReadAll(ctx, after, pageEvents)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if len(events) == 0 {
			return nil
		}
		for _, r := range events {
			if r.Position > to {
				return nil
			}
			if err := do(r); err != nil {
				return err
			}
			after = max(after, r.Position)
		}
	}
	return nil
}

// found keeps what is wrong, if it is the first by its place in the log.
func (p *pass) found(f Finding) {
	if p.finding == nil || f.Position < p.finding.Position {
		p.finding = &f
	}
}

// of is a finding about an event.
func of(e eventstore.Recorded, what, format string, args ...any) Finding {
	return Finding{
		Stream: e.Stream, Revision: e.Revision, EventID: e.ID, Position: e.Position, What: what,
		Detail: fmt.Sprintf(format, args...),
	}
}

func (p *pass) event(ctx context.Context, r eventstore.Recorded) error {
	if r.Position <= p.last {
		p.found(of(r, Order, "the log has position %d after %d", r.Position, p.last))
		return nil
	}
	p.last = r.Position
	if !audit.HasLeaf(r) {
		return nil
	}
	e := p.Log.Codec.DecodeRecorded(r)
	if created, is := e.Event.(*registry.ProjectCreated); is {
		p.owners[created.ProjectID] = created.OrganizationID
	}
	organization, project := e.LeafOwner()
	if project != uuid.Nil {
		organization = p.owners[project]
	}
	record, err := eventstore.DecodedEvent{Recorded: r, Event: eventstore.PassedOver{}}.Kept(organization)
	if err != nil {
		return err
	}
	t := p.tree(organization)
	if err := t.event(ctx, p, r, record.Record); err != nil {
		return err
	}
	return p.refersTo(ctx, t, e)
}

// tree returns the tree of an organization, an empty one if it has none.
func (p *pass) tree(organization uuid.UUID) *tree {
	t := p.trees[organization]
	if t == nil {
		t = newTree(audit.Tree{Organization: organization}, nil)
		p.trees[organization] = t
	}
	return t
}

// refersTo checks what an event refers to: kept records, checkpoints, blobs and read records.
func (p *pass) refersTo(ctx context.Context, t *tree, e eventstore.DecodedEvent) error {
	switch of := e.Event.(type) {
	case *domain.RecordsKept, *deletion.FactsKept:
		return p.keptIn(ctx, e)
	case *domain.KeyAdded:
		t.keyAdded(p, e, of)
		return nil
	case *domain.CheckpointSigned:
		return t.checkpoint(ctx, p, e, of)
	case *reads.Rooted:
		p.rooted[e.Stream] = rooted{of, e.Revision}
		return nil
	case *reads.Recorded:
		p.recorded(e, of)
		return nil
	}
	return p.checkBlobs(ctx, e)
}

// keptIn covers the leaves of the records in an event.
func (p *pass) keptIn(ctx context.Context, e eventstore.DecodedEvent) error {
	switch of := e.Event.(type) {
	case *domain.RecordsKept:
		return p.kept(ctx, e, of.OrganizationID, of.Records)
	case *deletion.FactsKept:
		return errors.Join(p.kept(ctx, e, of.OrganizationID, of.Records),
			p.kept(ctx, e, of.OrganizationID, of.MemoryRecords))
	}
	return nil
}

// kept covers the leaves of events whose records an event keeps.
func (p *pass) kept(
	ctx context.Context, e eventstore.DecodedEvent, organization uuid.UUID, list domain.KeptList,
) error {
	list = slices.DeleteFunc(slices.Clone(list), func(k domain.Kept) bool { return k.Position > uint64(p.head) })
	if len(list) == 0 {
		return nil
	}
	t := p.tree(organization)
	positions := make([]eventstore.Position, len(list))
	for n, k := range list {
		positions[n] = eventstore.Position(k.Position)
	}
	placed, err := p.Trees.At(ctx, organization, positions)
	if err != nil {
		return err
	}
	for n, k := range list {
		at, is := placed[positions[n]]
		f := of(e.Recorded, Missing, "the record that is kept of the event %s has no leaf", k.EventID)
		f.Organization, f.EventID, f.Position = organization, k.EventID, positions[n]
		switch {
		case is && at.Record != k.Record:
			f.Index, f.What, f.Detail = at.Index, Changed, "the leaf is not the record that is kept of the event"
			p.found(f)
		case is:
			t.cover(at.Index)
		default:
			p.found(f)
		}
	}
	return nil
}
