package verify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/audit"
)

// width is how many hashes a tile has.
const width = 256

var ranges = compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// tree is a tree next to the log.
type tree struct {
	audit.Tree
	report  Tree
	chunk   int
	next    int64        // the leaf that the log reaches next
	leaves  []audit.Leaf // from next on
	last    eventstore.Position
	covered []uint64 // a bit for each leaf

	rows line  // the leaves of the tree
	log  *line // the leaves that the log has, from where they differ on
	// differs is where they begin to differ. judged is true once a checkpoint showed which are right.
	differs int64
	judged  bool

	full []tlog.Hash // of each 256 leaves
	tail []tlog.Hash // of those after them

	keys   keys
	newest *log.Checkpoint // of the origin
	kept   *keptCheckpoint
}

// line is a growing range of leaves. The hashes of its last leaves are held back: a checkpoint may end among them.
type line struct {
	merged *compact.Range
	held   [][]byte
}

func newTree(t audit.Tree, kept *keptCheckpoint) *tree {
	made := &tree{
		Tree: t, report: Tree{Organization: t.Organization, Size: t.Size}, chunk: width, differs: -1,
		covered: make([]uint64, (t.Size+63)/64), rows: line{merged: ranges.NewEmptyRange(0)},
	}
	if kept != nil && kept.organization == t.Organization {
		made.kept = kept
	}
	return made
}

// inOrder returns the trees by organization.
func (p *pass) inOrder() []*tree {
	return slices.SortedFunc(maps.Values(p.trees), func(a, b *tree) int {
		return cmp.Compare(a.Organization.String(), b.Organization.String())
	})
}

// cover records that the log has a leaf: not one that came after the tree was read.
func (t *tree) cover(index int64) {
	if word, bit := index/64, uint64(1)<<(index%64); index < t.Size && t.covered[word]&bit == 0 {
		t.covered[word] |= bit
		t.report.Checked++
	}
}

// peek returns the leaf that comes next. ok is false after the last one.
func (t *tree) peek(ctx context.Context, p *pass) (leaf audit.Leaf, ok bool, err error) {
	if len(t.leaves) == 0 && t.next < t.Size {
		t.leaves, err = p.Trees.Leaves(ctx, t.Organization, t.next, min(t.next+int64(t.chunk), t.Size))
		if err != nil {
			return leaf, false, err
		}
	}
	if len(t.leaves) == 0 {
		return leaf, false, nil
	}
	return t.leaves[0], true, nil
}

// step passes the leaf that comes next. record is what the log has in its place, nil for no event.
func (t *tree) step(p *pass, leaf audit.Leaf, record *domain.Record) {
	if leaf.Position <= t.last {
		p.found(Finding{
			Organization: t.Organization, Index: t.next, Position: leaf.Position, What: Order,
			Detail: fmt.Sprintf("the leaf is of position %d, and that before it of %d", leaf.Position, t.last),
		})
	}
	t.last = max(t.last, leaf.Position)
	hash := tlog.RecordHash(leaf.Record[:])
	if t.tail = append(t.tail, hash); len(t.tail) == width {
		t.full, t.tail = append(t.full, root(t.tail)), t.tail[:0]
	}
	inLog := hash
	if record != nil && *record != leaf.Record {
		t.fork()
		inLog = tlog.RecordHash(record[:])
	}
	if t.log != nil {
		t.log.add(inLog, t.chunk)
	}
	t.rows.add(hash, t.chunk)
	t.next, t.leaves = t.next+1, t.leaves[1:]
	if t.kept != nil && t.next == t.kept.size {
		t.kept.root, _ = t.rows.root(t.next)
	}
}

// fork begins to tell the leaves of the log from those of the tree.
func (t *tree) fork() {
	if t.log == nil {
		merged, _ := ranges.NewRange(0, t.rows.merged.End(), slices.Clone(t.rows.merged.Hashes()))
		t.log, t.differs = &line{merged, slices.Clone(t.rows.held)}, t.next
	}
}

// event compares an event of the log with the leaf in its place.
func (t *tree) event(ctx context.Context, p *pass, e eventstore.Recorded, record domain.Record) error {
	for {
		leaf, ok, err := t.peek(ctx, p)
		if err != nil {
			return err
		}
		switch {
		case ok && leaf.Position < e.Position:
			t.step(p, leaf, nil) // the event has left the log
			continue
		case ok && leaf.Position == e.Position:
			if leaf.Record == record {
				t.cover(t.next)
			} else {
				f := of(e, Changed, "the leaf is not that of the event")
				f.Organization, f.Index = t.Organization, t.next
				p.found(f)
			}
			t.step(p, leaf, &record)
		default:
			f := of(e, Missing, "the event has no leaf")
			f.Organization, f.Index = t.Organization, t.next
			p.found(f)
			t.fork()
			t.log.add(tlog.RecordHash(record[:]), t.chunk)
		}
		return nil
	}
}

// finish compares what is left of the tree once the log is read, its leaves that nothing covers, and its tiles.
func (t *tree) finish(ctx context.Context, p *pass) error {
	for {
		leaf, ok, err := t.peek(ctx, p)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if leaf.Position > p.head {
			t.cover(t.next) // by an event that came since
		}
		t.step(p, leaf, nil)
	}
	if t.next < t.Size {
		p.found(Finding{
			Organization: t.Organization, Index: t.next, Position: p.head, What: Tile,
			Detail: fmt.Sprintf("the tree has %d leaves, and rows of %d", t.Size, t.next),
		})
	}
	if err := t.findLost(ctx, p); err != nil {
		return err
	}
	if t.newest != nil && t.CheckpointSize == t.report.Covered {
		if c, err := t.keys.open([]byte(t.Checkpoint)); err != nil || !bytes.Equal(c.Marshal(), t.newest.Marshal()) {
			p.found(Finding{
				Organization: t.Organization, Index: t.CheckpointSize, Position: p.head, What: Tile,
				Detail: "the newest checkpoint in the rows is not that of the log",
			})
		}
	}
	return t.compareTiles(ctx, p)
}

// findLost finds the first leaf that nothing covers.
func (t *tree) findLost(ctx context.Context, p *pass) error {
	for word, covered := range t.covered {
		index := int64(word)*64 + int64(bits.TrailingZeros64(^covered))
		if covered == ^uint64(0) || index >= t.next {
			continue
		}
		leaves, err := p.Trees.Leaves(ctx, t.Organization, index, index+1)
		if err != nil || len(leaves) == 0 {
			return err
		}
		p.found(Finding{
			Organization: t.Organization, Index: index, Position: leaves[0].Position, What: Lost,
			Detail: "the log has neither the event nor a record that is kept of it",
		})
		return nil
	}
	return nil
}

// compareTiles compares the tiles above level 0 with the hashes of the leaves.
func (t *tree) compareTiles(ctx context.Context, p *pass) error {
	below := t.full
	for level := 1; len(below) > 0; level++ {
		var above []tlog.Hash
		for n := 0; n*width < len(below); n++ {
			want := below[n*width : min((n+1)*width, len(below))]
			tile, ok, err := p.Trees.Tile(ctx, t.Organization, level, int64(n), len(want))
			if err != nil {
				return err
			}
			for i := range want {
				if ok && bytes.Equal(tile[i*tlog.HashSize:(i+1)*tlog.HashSize], want[i][:]) {
					continue
				}
				index := int64(n*width + i)
				for range level {
					index *= width
				}
				p.found(Finding{
					Organization: t.Organization, Index: index, Position: p.head, What: Tile,
					Detail: fmt.Sprintf("hash %d of tile %d of level %d is not that of the leaves below", i, n, level),
				})
				return nil
			}
			if len(want) == width {
				above = append(above, root(slices.Clone(want)))
			}
		}
		below = above
	}
	return nil
}

// root returns the hash of a full tile, and uses up the hashes.
func root(hashes []tlog.Hash) tlog.Hash {
	merged := slices.Clone(hashes)
	for ; len(merged) > 1; merged = merged[:len(merged)/2] {
		for n := range len(merged) / 2 {
			merged[n] = tlog.NodeHash(merged[2*n], merged[2*n+1])
		}
	}
	return merged[0]
}

// add adds the hash of a leaf, and holds at most some of the last ones back.
func (l *line) add(hash tlog.Hash, hold int) {
	if l.held = append(l.held, hash[:]); len(l.held) > 2*hold {
		l.mergeTo(int64(l.merged.End()) + int64(hold))
	}
}

// mergeTo merges what is held back, up to a size.
func (l *line) mergeTo(size int64) {
	for n := size - int64(l.merged.End()); n > 0 && len(l.held) > 0; n-- {
		// It fails for hashes of a wrong size alone.
		if err := l.merged.Append(l.held[0], nil); err != nil {
			panic(err)
		}
		l.held = l.held[1:]
	}
}

// root returns the root of the first leaves. ok is false if they are merged with others already, or not all there.
func (l *line) root(size int64) (hash tlog.Hash, ok bool) {
	l.mergeTo(size)
	if int64(l.merged.End()) != size {
		return hash, false
	}
	if size == 0 {
		return tlog.Hash(rfc6962.DefaultHasher.EmptyRoot()), true
	}
	merged, err := l.merged.GetRootHash(nil)
	if err != nil {
		panic(err) // it begins with the first leaf
	}
	return tlog.Hash(merged), true
}

// rootAt returns the root of the first leaves of the tree. ok is false if it has fewer up to where the log was read.
func (t *tree) rootAt(ctx context.Context, p *pass, size int64) (hash tlog.Hash, ok bool, err error) {
	if hash, ok = t.rows.root(size); ok || size > t.next {
		return hash, ok, nil
	}
	hash, err = tlog.TreeHash(size, p.Trees.Reader(ctx, t.Organization))
	return hash, err == nil, err
}

// keys are the keys of a tree that the log has: of all origins, and what is known of the newest.
type keys struct {
	verifiers []note.Verifier
	// origins are those before and at last the newest, former the last checkpoint of the one before, and begins the
	// number of leaves before the newest.
	origins []string
	former  string
	begins  int64
	began   eventstore.DecodedEvent
}

func (k keys) origin() string {
	if len(k.origins) == 0 {
		return ""
	}
	return k.origins[len(k.origins)-1]
}

func (t *tree) keyAdded(p *pass, e eventstore.DecodedEvent, key *domain.KeyAdded) {
	verifier, err := note.NewVerifier(key.Verifier)
	if err != nil || verifier.Name() != key.Origin {
		p.found(t.about(e, "the key is not one of its origin"))
		return
	}
	if key.Origin != t.keys.origin() {
		t.keys.origins = append(t.keys.origins, key.Origin)
		t.keys.former, t.keys.begins, t.keys.began = key.Former, t.next-1, e
		t.report.Origin, t.report.Covered, t.newest = key.Origin, 0, nil
	}
	t.keys.verifiers = append(t.keys.verifiers, verifier)
}

// about is a finding about a checkpoint or a key, in the event of the leaf that was passed last.
func (t *tree) about(e eventstore.DecodedEvent, format string, args ...any) Finding {
	f := of(e.Recorded, Checkpoint, format, args...)
	f.Organization, f.Index = t.Organization, t.next-1
	return f
}

// open returns the checkpoint of a signed note, if a key that the log has of its origin signed it.
func (k keys) open(text []byte) (*log.Checkpoint, error) {
	signed, err := note.Open(text, note.VerifierList(k.verifiers...))
	if err != nil {
		return nil, err
	}
	c := &log.Checkpoint{}
	if rest, err := c.Unmarshal([]byte(signed.Text)); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("it is no checkpoint: %w", err)
	}
	if !slices.ContainsFunc(signed.Sigs, func(s note.Signature) bool { return s.Name == c.Origin }) {
		return nil, fmt.Errorf("no key of %s signed it", c.Origin)
	}
	return c, nil
}

// checkpoint checks a checkpoint of the log.
func (t *tree) checkpoint(
	ctx context.Context, p *pass, e eventstore.DecodedEvent, signed *domain.CheckpointSigned,
) error {
	c, err := t.keys.open([]byte(signed.Note))
	if err != nil {
		p.found(t.about(e, "the checkpoint of %d leaves: %v", signed.Size, err))
		return nil
	}
	size := int64(c.Size)
	switch {
	case c.Origin != t.keys.origin() || size != signed.Size || signed.OrganizationID != t.Organization:
		p.found(t.about(e, "the checkpoint of %d leaves is of another tree or size", signed.Size))
		return nil
	case size < t.report.Covered:
		p.found(t.about(e, "the checkpoint of %d leaves is after one of %d", size, t.report.Covered))
		return nil
	}
	want := tlog.Hash(c.Hash)
	got, ok, err := t.rootAt(ctx, p, size)
	if err != nil {
		return err
	}
	if !ok || got != want {
		p.found(t.about(e, "the checkpoint of %d leaves has another root than the tree", size))
	}
	t.judge(p, size, want, ok && got == want)
	t.report.Checkpoints, t.report.Covered, t.report.CoveredAt = t.report.Checkpoints+1, size, e.Details.At
	t.newest = c
	return nil
}

// judge finds out by the first checkpoint after the first difference whether the log or the tree was changed.
func (t *tree) judge(p *pass, size int64, want tlog.Hash, isTree bool) {
	if t.log == nil || t.judged || size <= t.differs {
		return
	}
	t.judged = true
	inLog, ok := t.log.root(size)
	verdict := "a checkpoint fits neither"
	switch {
	case isTree:
		verdict = "the tree is as the checkpoint has it, and the log was changed"
	case ok && inLog == want:
		verdict = "the log is as the checkpoint has it, and the rows of the tree were changed"
	}
	if f := p.finding; f != nil && f.Organization == t.Organization && f.Index <= size {
		f.Detail += ": " + verdict
	}
}

// keptCheckpoint is a checkpoint that the caller kept.
type keptCheckpoint struct {
	text         []byte
	origin       string
	organization uuid.UUID
	size         int64
	want         tlog.Hash
	root         tlog.Hash // of as many leaves of the tree
}

// parseKept reads a checkpoint without its signatures.
func parseKept(text []byte) (*keptCheckpoint, error) {
	body, _, signed := strings.Cut(string(text), "\n\n")
	c := &log.Checkpoint{}
	if _, err := c.Unmarshal([]byte(body + "\n")); err != nil || !signed || len(c.Hash) != tlog.HashSize {
		return nil, fmt.Errorf("it is no signed checkpoint: %w", err)
	}
	parts := strings.Split(c.Origin, "/")
	if len(parts) != 4 {
		return nil, fmt.Errorf("it is of %q, which is no log of Annals", c.Origin)
	}
	organization, err := uuid.Parse(parts[2])
	if err != nil {
		return nil, fmt.Errorf("it is of %q, which is no log of Annals", c.Origin)
	}
	return &keptCheckpoint{
		text: text, origin: c.Origin, organization: organization, size: int64(c.Size), want: tlog.Hash(c.Hash),
	}, nil
}

// compareKept compares the checkpoint of the caller with the tree.
func (p *pass) compareKept(k *keptCheckpoint) {
	at := Finding{Organization: k.organization, Index: k.size, Position: p.head}
	t := p.trees[k.organization]
	if t == nil || !slices.Contains(t.keys.origins, k.origin) {
		at.What, at.Detail = Fork, "the log has no key of "+k.origin
		p.found(at)
		return
	}
	if _, err := t.keys.open(k.text); err != nil {
		at.What, at.Detail = Checkpoint, fmt.Sprintf("the checkpoint that was given: %v", err)
		p.found(at)
		return
	}
	isFormer := k.origin != t.keys.origin()
	switch {
	case isFormer && k.size > t.keys.begins:
		at.What, at.Index = Restored, t.keys.begins
		at.Detail = fmt.Sprintf("restored at %s, %d leaves lost", t.keys.began.Details.At.Format("2006-01-02 15:04:05 MST"),
			k.size-t.keys.begins)
	case k.size > t.Size:
		at.What, at.Index = Cut, t.Size
		at.Detail = fmt.Sprintf("the log ends before the checkpoint: it has %d leaves, and the checkpoint %d", t.Size, k.size)
	case k.size > 0 && k.root != k.want:
		at.What, at.Detail = Fork, fmt.Sprintf("the first %d leaves of the log are not those of the checkpoint", k.size)
	default:
		return
	}
	p.found(at)
}

// rooted is the root of a batch of read records, which are in the next event.
type rooted struct {
	*reads.Rooted
	revision eventstore.Revision
}

// recorded compares read records with their root.
func (p *pass) recorded(e eventstore.DecodedEvent, recorded *reads.Recorded) {
	before, is := p.rooted[e.Stream]
	delete(p.rooted, e.Stream)
	want, _, err := reads.Batch(recorded.OrganizationID, recorded.ProjectID, recorded.Records)
	if err != nil || !is || before.revision != e.Revision-1 || before.Size != want.Size ||
		!bytes.Equal(before.Root, want.Root) {
		p.found(of(e.Recorded, Reads, "the read records are not those of the root before them"))
	}
}

// maxBlobs is how many names of blobs that were read are held, so that a blob with several events is read once.
const maxBlobs = 10_000

// checkBlobs reads the blobs that an event refers to. One that was erased is no longer there, nor will the event be.
func (p *pass) checkBlobs(ctx context.Context, e eventstore.DecodedEvent) error {
	for _, ref := range refsIn(nil, reflect.ValueOf(e.Event)) {
		if ref.Stream == "" || p.blobs[ref.Stream+ref.SHA256] {
			continue
		}
		_, err := p.Log.ReadBlob(ctx, ref)
		damaged, is := errors.AsType[*eventstore.BlobError](err)
		if err != nil && !is {
			return err
		}
		if is {
			_, _, err := p.Log.Store.ReadLast(ctx, ref.Stream)
			if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
				return err
			}
			if err == nil {
				p.found(of(e.Recorded, Blob, "%v", damaged))
			}
		}
		if len(p.blobs) >= maxBlobs {
			clear(p.blobs)
		}
		p.blobs[ref.Stream+ref.SHA256] = true
	}
	return nil
}

var typeOfRef = reflect.TypeFor[blob.Ref]()

// refsIn adds the references to blobs in a value.
func refsIn(to []blob.Ref, v reflect.Value) []blob.Ref {
	switch {
	case !v.IsValid():
	case v.Type() == typeOfRef:
		return append(to, v.Interface().(blob.Ref))
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		return refsIn(to, v.Elem())
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			if v.Type().Field(n).IsExported() {
				to = refsIn(to, v.Field(n))
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for n := range v.Len() {
			to = refsIn(to, v.Index(n))
		}
	}
	return to
}
