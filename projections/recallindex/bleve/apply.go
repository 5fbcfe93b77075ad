package bleve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// parallelSlots is how many slots are written at once: while one waits for the disk, others count
// words.
const parallelSlots = 4

// Apply implements recallindex.Index: one batch, or a few, for each slot that the page touches,
// several slots at once.
func (x *Index) Apply(ctx context.Context, changes []recallindex.Change) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	if err := x.damage(); err != nil {
		return err
	}
	analysis := x.used().analysis
	slots := map[string]*slotWork{}
	for _, c := range changes {
		if len(c.Upserts) > 0 && c.Analysis != analysis {
			return recallindex.ErrOtherAnalysis
		}
		if len(c.Upserts)+len(c.Deletes)+len(c.Moves) > 0 {
			at := shared(c.Project)
			workOf(slots, at).add(at, c)
		}
	}
	// Remove documents from the shared slot before they are written to the project's own: a document
	// is never in both.
	alone, err := x.writeAll(ctx, slots)
	if err == nil {
		_, err = x.writeAll(ctx, alone)
	}
	return err
}

// slotWork is what a page does to one slot.
type slotWork struct {
	changes []slotChange
	// upserts reports that the slot is created if it does not exist. Deletes alone create no slot.
	upserts bool
}

// slotChange is a change of one project in one partition.
type slotChange struct {
	at partition
	recallindex.Change
	// gone are ids to delete, in addition to Deletes.
	gone []string
}

func workOf(slots map[string]*slotWork, at partition) *slotWork {
	if slots[at.slot] == nil {
		slots[at.slot] = new(slotWork)
	}
	return slots[at.slot]
}

func (w *slotWork) add(at partition, c recallindex.Change) {
	w.changes = append(w.changes, slotChange{at: at, Change: c})
	w.upserts = w.upserts || len(c.Upserts) > 0
}

// writeAll writes slots, and returns what is left for the own slots of projects.
func (x *Index) writeAll(ctx context.Context, slots map[string]*slotWork) (map[string]*slotWork, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSlots)
	rest := make(chan []slotChange, len(slots))
	for slot, w := range slots {
		group.Go(func() error {
			defer x.countWrite(slot)
			return panics.Call(ctx, x.options.Log, "recall index write panicked", func() error {
				var left []slotChange
				write := func(h *handle) (err error) {
					left, err = x.write(ctx, h, w.changes)
					return err
				}
				err := x.with(slot, w.upserts, write)
				if errors.Is(err, recallindex.ErrIncomplete) {
					err = x.with(slot, w.upserts, write) // it was damaged, and is empty now
				}
				rest <- left
				return err
			}, "slot", slot)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	close(rest)
	alone := map[string]*slotWork{}
	for left := range rest {
		for _, c := range left {
			workOf(alone, own(c.Project)).add(own(c.Project), c.Change)
		}
	}
	return alone, nil
}

// write makes changes of one slot, and returns those that belong to own slots of projects.
func (x *Index) write(ctx context.Context, h *handle, changes []slotChange) (left []slotChange, err error) {
	h.write.Lock()
	defer h.write.Unlock()
	changes, left, err = x.splitChanges(h, changes)
	if err != nil || h.index == nil {
		return left, err
	}
	if err := x.batches(ctx, h, changes); err != nil {
		return left, fmt.Errorf("write recall index: %w", err)
	}
	if err := h.move(changes); err != nil {
		return left, fmt.Errorf("write recall index: %w", err)
	}
	return left, nil
}

// splitChanges takes the documents of big projects out of the changes of a shared slot.
func (x *Index) splitChanges(h *handle, changes []slotChange) (here, left []slotChange, err error) {
	for _, c := range changes {
		if c.at.prefix == "" {
			return changes, nil, nil
		}
		big := x.hasOwn(c.Project)
		if !big && len(c.Upserts) > 0 && h.index != nil {
			if big, err = h.outgrowsShared(c, x.options.OwnFrom); err != nil {
				return nil, nil, err
			}
		}
		if big {
			left = append(left, c)
			if c.gone, err = h.replacedIDs(c); err != nil {
				return nil, nil, err
			}
			c.Upserts = nil
		}
		here = append(here, c)
	}
	return here, left, nil
}

// outgrowsShared reports whether a project would have more documents in the shared slot than from.
func (h *handle) outgrowsShared(c slotChange, from int) (bool, error) {
	n, known := h.counts[c.Project]
	if !known || n+len(c.Upserts) > from {
		var err error
		if n, err = h.count(c.at); err != nil {
			return false, err
		}
	}
	h.counts[c.Project] = n + len(c.Upserts)
	return n+len(c.Upserts) > from, nil
}

// replacedIDs returns the ids of documents in the shared slot that a big project's new ones
// replace.
func (h *handle) replacedIDs(c slotChange) ([]string, error) {
	if h.index == nil || len(c.Upserts) == 0 {
		return nil, nil
	}
	ids := make([]string, len(c.Upserts))
	for i, d := range c.Upserts {
		ids[i] = c.at.identifier(d.Key)
	}
	slices.Sort(ids)
	return h.present(ids)
}

// batches writes deletes, then upserts. A key that is deleted and upserted is replaced; each batch
// is on disk when Batch returns.
func (x *Index) batches(ctx context.Context, h *handle, changes []slotChange) error {
	batch, terms, columns := h.index.NewBatch(), 0, columnFields{}
	flush := func(least int) error {
		if batch.Size() < least && terms < batchTerms {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.batch(batch); err != nil {
			return err
		}
		// Bleve may still read the old batch.
		batch, terms = h.index.NewBatch(), 0
		return nil
	}
	for _, c := range changes {
		past, err := h.idsOf(c.at, c.Deletes)
		if err != nil {
			return err
		}
		for _, id := range append(past, c.gone...) {
			batch.Delete(id)
			if err := flush(x.options.Batch); err != nil {
				return err
			}
		}
	}
	for _, c := range changes {
		for _, d := range c.Upserts {
			if err := batch.IndexAdvanced(newDocument(columns, c.at, d)); err != nil {
				return err
			}
			terms += len(d.Terms.Text) + len(d.Terms.Label)
			if err := flush(x.options.Batch); err != nil {
				return err
			}
		}
	}
	return flush(1)
}

// batchTerms is the most terms that are written to one slot at once, give or take one document:
// about 40 MiB of memory.
const batchTerms = 150_000

// move stores audiences of data points that differ from those of their documents.
func (h *handle) move(changes []slotChange) error {
	moved, err := h.moved(changes)
	if err != nil || len(moved) == 0 {
		return err
	}
	return h.put(moved)
}

// put stores the audiences of data points, and corrects them in their documents.
func (h *handle) put(moved map[moveKey]uuid.UUID) error {
	if err := h.columns.moves.store(moved); err != nil {
		return err
	}
	// List the segments after the store: a merge may have added one that was searched and has the
	// old audiences. A search of a segment that is added later reads the stored audiences.
	return h.withSegments(func(segments []*scorch.SegmentSnapshot) error { return h.columns.move(segments, moved) })
}

// moved returns the audiences that changes assign to data points whose documents have others.
func (h *handle) moved(changes []slotChange) (map[moveKey]uuid.UUID, error) {
	m := h.columns.moves
	moved, past := map[moveKey]uuid.UUID{}, map[moveKey]struct{}{}
	asked := map[moveKey]struct{}{}
	for _, c := range changes {
		for _, s := range c.Deletes {
			if k := moveKey(c.at.owner(s.DataPoint)); m.moved(k) {
				past[k] = struct{}{}
			}
		}
		for _, d := range c.Upserts {
			k := moveKey(c.at.owner(d.DataPoint))
			if audience, hasMoved := m.audience(k); hasMoved && audience != d.Audience {
				moved[k] = d.Audience
			}
		}
		for _, to := range c.Moves {
			k := moveKey(c.at.owner(to.DataPoint))
			asked[k], moved[k] = struct{}{}, to.Audience
		}
	}
	if len(moved)+len(past) == 0 {
		return moved, nil
	}
	err := h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
		maps.Copy(asked, past)
		for k := range asked {
			found := false
			for _, s := range segments {
				var err error
				if found, err = hasLiveDocument(s, k); err != nil {
					return err
				} else if found {
					break
				}
			}
			switch _, kept := past[k]; {
			case found:
			case kept || m.moved(k):
				moved[k] = noAudience
			default:
				delete(moved, k)
			}
		}
		return nil
	})
	return moved, err
}

// count returns the number of documents of a partition.
func (h *handle) count(at partition) (n int, err error) {
	err = h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
		for _, part := range []recallindex.Part{recallindex.Sources, recallindex.Memories} {
			of, err := count(segments, at, part)
			if err != nil {
				return err
			}
			n += of
		}
		return nil
	})
	return n, err
}

// DropProject implements recallindex.Index.
func (x *Index) DropProject(ctx context.Context, project uuid.UUID) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	if x.hasOwn(project) {
		slot := own(project).slot
		if err := errors.Join(x.remove(slot), os.RemoveAll(x.path(slot)+lostSuffix)); err != nil {
			return fmt.Errorf("drop project %s: %w", project, err)
		}
		x.mu.Lock()
		delete(x.owns, project)
		delete(x.losses, slot)
		x.mu.Unlock()
	}
	at := shared(project)
	defer x.countWrite(at.slot)
	err := x.with(at.slot, false, func(h *handle) error {
		if h.index == nil {
			return nil
		}
		h.write.Lock()
		defer h.write.Unlock()
		c := slotChange{at: at}
		var points map[uuid.UUID]struct{}
		var err error
		if c.gone, points, err = h.idsIn(at); err != nil {
			return err
		}
		for id := range points {
			c.Deletes = append(c.Deletes, recallindex.Scope{DataPoint: id})
		}
		delete(h.counts, project)
		if err := x.batches(ctx, h, []slotChange{c}); err != nil {
			return err
		}
		return h.move([]slotChange{c})
	})
	if err != nil {
		return fmt.Errorf("drop project %s: %w", project, err)
	}
	return nil
}

// sharedSlots is how many Bleve indexes all small projects share. Each costs some goroutines, up to
// about twenty files, and two syncs for each page that touches it. Damage of one takes recall from
// a sixteenth of the projects for a while.
const sharedSlots = 16

// ownFrom is how many documents a project has in a shared slot before its later ones go to its own
// slot. Earlier ones are not copied. Own slots cost files, and a smaller project would gain little.
const ownFrom = 20_000

const (
	sharedPrefix = "shared-"
	ownPrefix    = "own-"
	// knownSuffix names the file that records that a slot was created: without it, a missing slot
	// would not be a loss.
	knownSuffix = ".known"
)

// partition is where documents of a project are: a slot, and a prefix of their terms and ids there,
// so that a search reads and counts only postings of its project. In an own slot the prefix is
// empty.
type partition struct {
	slot   string
	prefix string
}

// prefixLength is the length of a prefix: nine bytes of a hash as text. Among a million projects,
// two share one with a probability of 10^-10.
const prefixLength = 12

// shared returns the partition of a project in a shared slot.
func shared(project uuid.UUID) partition {
	sum := sha256.Sum256(project[:])
	const digits = "0123456789abcdef"
	return partition{
		slot:   sharedPrefix + string(digits[sum[31]%sharedSlots]),
		prefix: base64.RawURLEncoding.EncodeToString(sum[:9]),
	}
}

// own returns the partition of a project in its own slot.
func own(project uuid.UUID) partition { return partition{slot: ownPrefix + project.String()} }

// projectOf returns the project of an own slot; ok is false for a shared one.
func projectOf(slot string) (uuid.UUID, bool) {
	id, alone := strings.CutPrefix(slot, ownPrefix)
	if !alone {
		return uuid.Nil, false
	}
	project, err := uuid.Parse(id)
	return project, err == nil
}

// owner returns the name of a data point in a partition, the beginning of the ids of its documents.
func (p partition) owner(point uuid.UUID) string { return p.prefix + encode(point) }

// ownerLength is the length of such a name with a prefix.
const ownerLength = prefixLength + idLength

// holds reports whether a slot may hold documents of a project.
func holds(slot string, project uuid.UUID) bool {
	return slot == shared(project).slot || slot == own(project).slot
}

// hasOwn reports whether a project has its own slot.
func (x *Index) hasOwn(project uuid.UUID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.owns[project]
}

// slots returns the slots that were created, and those that are lost.
func (x *Index) slots() (made, lost []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(x.path("-")))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if slot, is := strings.CutSuffix(e.Name(), knownSuffix); is {
			made = append(made, slot)
		}
		if slot, is := strings.CutSuffix(e.Name(), lostSuffix); is {
			lost = append(lost, slot)
		}
	}
	return made, lost, nil
}

// marker returns the term of a part.
func (p partition) marker(part recallindex.Part) []byte { return []byte(p.prefix + string(part)) }
