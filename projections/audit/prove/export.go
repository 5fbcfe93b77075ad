package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/projections/audit"
)

// ExportRequest is which bundle to make: the tree of an organization, zero for that of the deployment, and the events
// of which times to list. The list begins and ends an hour outside, since clocks of processes differ.
type ExportRequest struct {
	Organization uuid.UUID
	From, To     time.Time
}

// around is how much more of the log than the times of a request a bundle lists.
const around = time.Hour

// Sink takes the files of a bundle, one after the other, as a zip.Writer does.
type Sink interface {
	Create(name string) (io.Writer, error)
}

// exporter writes a bundle.
type exporter struct {
	*Prover
	signed
	tree audit.Tree
	to   Sink
	page []eventstore.Recorded
}

// Export writes a bundle. Its memory does not grow with the tree. The fault is service-unavailable before the first
// checkpoint.
func (p *Prover) Export(ctx context.Context, r ExportRequest, to Sink) error {
	tree, ok, err := p.Trees.Tree(ctx, r.Organization)
	if err != nil {
		return err
	}
	if !ok || tree.Checkpoint == "" {
		return errUncovered
	}
	x := &exporter{p, signed{r.Organization, []byte(tree.Checkpoint), tree.CheckpointSize}, tree, to, nil}
	cosigned := p.witnessed(tree)
	if cosigned {
		x.checkpoint, x.size = []byte(tree.Cosigned), tree.CosignedSize
	}
	if err := x.write(auditfiles.PolicyFile, p.policy(tree, cosigned)); err != nil {
		return err
	}
	if err := x.write(auditfiles.CheckpointFile, x.checkpoint); err != nil {
		return err
	}
	err = auditfiles.EachTile(x.size, func(level int, n int64, width int) error {
		tile, ok, err := p.Trees.Tile(ctx, r.Organization, level, n, width)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("tile %d of level %d is not there", n, level))
		}
		return x.write(auditfiles.TilePath(level, n, width), tile)
	})
	if err != nil {
		return err
	}
	if err := x.keys(ctx); err != nil {
		return err
	}
	first, end, err := x.span(ctx, r)
	if err != nil {
		return err
	}
	erased, err := x.leaves(ctx, first, end)
	if err != nil || erased == 0 {
		return err
	}
	return x.keepers(ctx, first, end)
}

// witnessed reports whether the witnesses of the operator's policy signed a checkpoint of a tree.
func (p *Prover) witnessed(t audit.Tree) bool {
	if p.Policy == "" || t.Cosigned == "" {
		return false
	}
	policy, err := proof.ParsePolicy(p.policy(t, true))
	if err == nil {
		_, err = policy.Open([]byte(t.Cosigned))
	}
	return err == nil
}

func (x *exporter) write(name string, data []byte) error {
	w, err := x.to.Create(name)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// leaf reads a leaf, for its position.
func (x *exporter) leaf(ctx context.Context, n int64) (audit.Leaf, error) {
	list, err := x.Trees.Leaves(ctx, x.organization, n, n+1)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("leaf %d of %s is not there", n, x.organization)
	}
	if err != nil {
		return audit.Leaf{}, err
	}
	return list[0], nil
}

// event reads the event at the position of a leaf. ok is false if it has left the log.
func (x *exporter) event(ctx context.Context, at eventstore.Position) (r eventstore.Recorded, ok bool, err error) {
	if n := len(x.page); n == 0 || at < x.page[0].Position || at > x.page[n-1].Position {
		if r, ok, err = x.Journal.Store.ReadAt(ctx, at); err != nil || !ok {
			return r, false, err
		}
		x.page, err = x.Journal.Store.ReadAll(ctx, at, pageEvents)
		return r, true, err
	}
	n, ok := slices.BinarySearchFunc(x.page, at, func(r eventstore.Recorded, at eventstore.Position) int {
		return int(int64(r.Position) - int64(at))
	})
	if !ok {
		return r, false, nil
	}
	return x.page[n], true, nil
}

const (
	pageEvents = 256
	pageLeaves = 4096
)

// span finds the leaves of the times of a request.
func (x *exporter) span(ctx context.Context, r ExportRequest) (first, end int64, err error) {
	from := func(t time.Time) func(int64) (bool, error) {
		return func(n int64) (bool, error) {
			for ; n < x.size; n++ { // an event that has left the log has the time of the next one
				leaf, err := x.leaf(ctx, n)
				if err != nil {
					return false, err
				}
				e, ok, err := x.Journal.Store.ReadAt(ctx, leaf.Position)
				if err != nil {
					return false, err
				}
				if decoded := x.Journal.Codec.DecodeRecorded(e); ok && !decoded.Details.At.IsZero() {
					return !decoded.Details.At.Before(t), nil
				}
			}
			return true, nil
		}
	}
	first, err = search(x.size, from(r.From.Add(-around)))
	if end = x.size; err == nil && !r.To.IsZero() {
		end, err = search(x.size, from(r.To.Add(around)))
	}
	return first, max(first, end), err
}

// leaves writes the list of leaves, and counts those of events that have left the log.
func (x *exporter) leaves(ctx context.Context, first, end int64) (erased int, err error) {
	w, err := x.to.Create(auditfiles.LeavesFile)
	if err != nil {
		return 0, err
	}
	text, err := line(auditfiles.Listed{Format: auditfiles.LeavesFormat, First: first, End: end})
	if err != nil {
		return 0, err
	}
	for n := first; n < end; n += pageLeaves {
		list, err := x.Trees.Leaves(ctx, x.organization, n, min(n+pageLeaves, end))
		if err != nil {
			return erased, err
		}
		for i, leaf := range list {
			l := auditfiles.Leaf{Index: n + int64(i), Record: leaf.Record[:]}
			e, ok, err := x.event(ctx, leaf.Position)
			if err != nil {
				return erased, err
			}
			if bytes, err := leafOf(e, x.organization); ok && err == nil {
				fields, err := domain.ParseLeaf(bytes)
				if err != nil {
					return erased, err
				}
				l.Leaf, l.Record = &fields, nil
			} else {
				erased++
			}
			more, err := line(l)
			if err != nil {
				return erased, err
			}
			text = append(text, more...)
		}
		if _, err := w.Write(text); err != nil {
			return erased, err
		}
		text = text[:0]
	}
	_, err = w.Write(text)
	return erased, err
}

// keys writes the proofs of the events that added the keys, each under a checkpoint that the new key and the one before
// have signed.
func (x *exporter) keys(ctx context.Context) error {
	name := stream.Name(stream.Audit, x.organization)
	last, _, err := x.Journal.Last(ctx, name)
	if err != nil {
		return err
	}
	for i, key := range x.tree.Verifiers {
		var verifiers []note.Verifier
		for _, later := range x.tree.Verifiers[i:] {
			v, err := note.NewVerifier(later)
			if err != nil {
				return fmt.Errorf("key of %s: %w", x.tree.Origin, err)
			}
			verifiers = append(verifiers, v)
		}
		at, err := search(int64(last.Revision)+1, func(n int64) (bool, error) {
			return x.signedBy(ctx, name, eventstore.Revision(n), x.tree.Verifiers[i:], note.VerifierList(verifiers...))
		})
		if err != nil {
			return err
		}
		added, ok, err := x.Journal.At(ctx, name, eventstore.Revision(at))
		if err != nil {
			return err
		}
		if e, is := added.Event.(*domain.KeyAdded); !ok || !is || e.Verifier != key {
			return fmt.Errorf("%s has no event that added the key %s", name, key)
		}
		if err := x.key(ctx, name, added.Recorded, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// signedBy reports whether one of the keys was there at an event of a stream of checkpoints. Of an event that has no
// key the one before decides.
func (x *exporter) signedBy(
	ctx context.Context, name string, at eventstore.Revision, keys []string, list note.Verifiers,
) (bool, error) {
	for ; at >= 0; at-- {
		e, _, err := x.Journal.At(ctx, name, at)
		if err != nil {
			return false, err
		}
		switch e := e.Event.(type) {
		case *domain.KeyAdded:
			return slices.Contains(keys, e.Verifier), nil
		case *domain.CheckpointSigned:
			_, err := note.Open([]byte(e.Note), list)
			return err == nil, nil
		}
	}
	return false, nil
}

// key writes the proof of the event that added a key. Nothing is written before a checkpoint covers it. No key signed
// for the first one.
func (x *exporter) key(ctx context.Context, name string, added eventstore.Recorded, first bool) error {
	n, ok, err := x.Trees.IndexOf(ctx, x.organization, added.Position)
	if err != nil || !ok {
		return err
	}
	under := signed{organization: x.organization}
	if first && n < x.size {
		under = x.signed
	} else {
		err = x.Journal.Scan(ctx, name, added.Revision+1, func(e eventstore.DecodedEvent) (bool, error) {
			if e, is := e.Event.(*domain.CheckpointSigned); is && e.Size > n {
				under.checkpoint, under.size = []byte(e.Note), e.Size
			}
			return under.size == 0, nil
		})
	}
	if err != nil || under.size == 0 {
		return err
	}
	return x.proof(ctx, "keys/", under, added, n)
}

// keepers writes the proofs of the events that kept records of leaves that are listed. They have no text.
func (x *exporter) keepers(ctx context.Context, first, end int64) error {
	from, err := x.leaf(ctx, first)
	if err != nil {
		return err
	}
	to, err := x.leaf(ctx, end-1)
	if err != nil {
		return err
	}
	for at := from.Position; ; {
		page, err := x.Journal.Store.ReadAll(ctx, at, pageEvents)
		if err != nil || len(page) == 0 {
			return err
		}
		at = page[len(page)-1].Position
		for _, r := range page {
			if strings.HasPrefix(r.Stream, stream.Deletion+"-") || strings.HasPrefix(r.Stream, stream.Records+"-") {
				if err := x.keeper(ctx, r, uint64(from.Position), uint64(to.Position)); err != nil {
					return err
				}
			}
		}
	}
}

func (x *exporter) keeper(ctx context.Context, r eventstore.Recorded, from, to uint64) error {
	var kept domain.KeptList
	decoded, err := x.Journal.Decode(ctx, r)
	if err != nil {
		return err
	}
	switch e := decoded.Event.(type) {
	case *domain.RecordsKept:
		kept = e.Records
	case *deletion.FactsKept:
		kept = slices.Concat(e.Records, e.MemoryRecords)
	}
	inside := func(k domain.Kept) bool { return k.Position >= from && k.Position <= to }
	if !slices.ContainsFunc(kept, inside) {
		return nil
	}
	n, ok, err := x.Trees.IndexOf(ctx, x.organization, r.Position)
	if err != nil || !ok || n >= x.size {
		return err
	}
	return x.proof(ctx, "erased/", x.signed, r, n)
}

// proof writes the proof of an event that has no text, with its metadata and data.
func (x *exporter) proof(ctx context.Context, folder string, under signed, r eventstore.Recorded, n int64) error {
	s, err := subjectOf(r, x.organization, true)
	if err != nil {
		return err
	}
	data, err := x.file(ctx, under, s, n)
	if err != nil {
		return err
	}
	return x.write(folder+s.fileName(), data)
}
