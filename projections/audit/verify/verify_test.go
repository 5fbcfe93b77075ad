package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/projections/audit/audittest"
	"github.com/annals-project/annals/projections/audit/verify"
)

// readable is a log whose whole order may be damaged.
type readable struct {
	eventstore.Store
	all []eventstore.Recorded
}

func (r *readable) ReadAll(_ context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	at := slices.IndexFunc(r.all, func(e eventstore.Recorded) bool { return e.Position > after })
	if at < 0 {
		return nil, nil
	}
	return r.all[at:min(at+limit, len(r.all))], nil
}

// subject is a log with its trees, and checkpoints of all of them.
type subject struct {
	*audittest.Log
	keys  map[uuid.UUID]audittest.Key
	store *readable
	trees audittest.Trees
}

// newSubject makes a log of some events, with erasures and checkpoints in between and one of all at the end.
func newSubject(t testing.TB, seed uint64, events int) *subject {
	t.Helper()
	s := &subject{Log: audittest.New(t, seed), keys: map[uuid.UUID]audittest.Key{}}
	for _, organization := range s.Organizations {
		s.keys[organization] = s.NewKey(organization, 0)
		s.AddKey(organization, s.keys[organization], "")
	}
	for n := range 2 {
		s.Grow(events / 2)
		s.Erase()
		if s.Draw().IntN(2) == 0 {
			s.Scavenge()
		}
		s.Erase()
		organization := s.Organizations[n]
		s.Checkpoint(organization, s.keys[organization], int64(s.Draw().IntN(3)))
	}
	for _, organization := range s.Organizations {
		s.Checkpoint(organization, s.keys[organization], 0)
	}
	s.read(t)
	return s
}

// read takes the log as it is now for what is verified.
func (s *subject) read(t testing.TB) {
	t.Helper()
	s.store, s.trees = &readable{s.Store, eventstoretest.All(t, s.Store, 0)}, s.Built()
}

// damaged is a copy of a subject.
func (s *subject) damaged() *subject {
	c := *s
	c.store, c.trees = &readable{s.Store, slices.Clone(s.store.all)}, s.trees.Clone()
	return &c
}

func (s *subject) verify(t testing.TB, since string) verify.Report {
	t.Helper()
	v := verify.Verifier{Log: eventstore.Journal{Store: s.store, Codec: s.Codec}, Trees: s.trees}
	report, err := v.Verify(context.Background(), verify.Request{Since: []byte(since)})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// wantFinding compares the finding with what, a tree and a leaf.
func wantFinding(t *testing.T, report verify.Report, what string, organization uuid.UUID, index int64) verify.Finding {
	t.Helper()
	f := report.Finding
	if f == nil || f.What != what || f.Organization != organization || f.Index != index {
		t.Fatalf("found %+v, want %s at leaf %d of %s", f, what, index, organization)
	}
	return *f
}

func TestVerify_NothingWrong(t *testing.T) {
	s := newSubject(t, 1, 60)
	report := s.verify(t, "")
	leaves, checkpoints := int64(0), int64(0)
	for _, tree := range report.Trees {
		size := int64(len(s.Leaves[tree.Organization]))
		if tree.Size != size || tree.Checked != size || tree.Checkpoints < 1 || tree.Uncovered() != 1 {
			t.Errorf("tree %+v of %d leaves", tree, size)
		}
		checkpoints += tree.Checkpoints
		leaves += size
	}
	if report.Finding != nil || len(report.Trees) != 3 || checkpoints != 5 || report.Uncovered() != 3 ||
		report.Events < leaves/2 {
		t.Errorf("report %+v, %+v", report, report.Finding)
	}
}

// Before the first key nothing is wrong, and the report has how many leaves no checkpoint covers.
func TestVerify_WithoutCheckpoints(t *testing.T) {
	s := &subject{Log: audittest.New(t, 2)}
	s.Grow(50)
	s.Erase()
	s.Scavenge()
	s.read(t)
	var leaves int64
	for _, list := range s.Leaves {
		leaves += int64(len(list))
	}
	if report := s.verify(t, ""); report.Finding != nil || report.Uncovered() != leaves {
		t.Errorf("%d of %d leaves without a checkpoint, %+v", report.Uncovered(), leaves, report.Finding)
	}
	empty := &subject{Log: s.Log, store: &readable{Store: eventstoretest.NewMemory()}, trees: audittest.Trees{}}
	if report := empty.verify(t, ""); report.Finding != nil || len(report.Trees) != 0 {
		t.Errorf("an empty log: %+v", report)
	}
}

// busy is a log that goes on once its end was read.
type busy struct {
	eventstore.Store
	goOn func()
}

func (b *busy) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if b.goOn != nil {
		b.goOn()
		b.goOn = nil
	}
	return b.Store.ReadAll(ctx, after, limit)
}

// An event that leaves the log while it is verified has its record after the end that was read first.
func TestVerify_ErasedMeanwhile(t *testing.T) {
	s := newSubject(t, 6, 40)
	v := verify.Verifier{Trees: s.trees}
	v.Log = eventstore.Journal{Codec: s.Codec, Store: &busy{s.Store, func() {
		s.Grow(20)
		for range 5 {
			s.Erase()
		}
		s.Scavenge()
	}}}
	report, err := v.Verify(t.Context(), verify.Request{})
	if err != nil || report.Finding != nil {
		t.Errorf("found %+v, %v", report.Finding, err)
	}
}

// Each kind of damage is named with its leaf, and whether the log or the rows of the tree were changed.
func TestVerify_NamesTheLeaf(t *testing.T) {
	s := newSubject(t, 3, 60)
	organization := s.Organizations[1]
	leaves := s.Leaves[organization]
	index := int64(slices.IndexFunc(leaves, func(l audittest.Leaf) bool {
		return stream.Category(l.Stream) == stream.Organization
	}))
	leaf := leaves[index]
	at := slices.IndexFunc(s.store.all, func(r eventstore.Recorded) bool { return r.Position == leaf.Position })
	for name, c := range map[string]struct {
		damage       func(*subject)
		what, detail string
		isInLog      bool
	}{
		"an event changed": {func(s *subject) {
			s.store.all[at].Data = append(slices.Clone(s.store.all[at].Data), ' ')
		}, verify.Changed, "the log was changed", true},
		"an event dropped": {func(s *subject) {
			s.store.all = slices.Delete(s.store.all, at, at+1)
		}, verify.Lost, "neither the event nor a record", false},
		"an event twice": {func(s *subject) {
			s.store.all = slices.Insert(s.store.all, at, s.store.all[at])
		}, verify.Order, "", true},
		"an event again, between others": {func(s *subject) {
			again := s.store.all[at]
			again.Position--
			s.store.all = slices.Insert(s.store.all, at, again)
		}, verify.Missing, "the log was changed", true},
		"a leaf changed": {func(s *subject) {
			s.trees[organization].Leaves[index].Record[3]++
		}, verify.Changed, "the rows of the tree were changed", true},
		"a leaf dropped": {func(s *subject) {
			t := s.trees[organization]
			t.Leaves, t.Size = slices.Delete(t.Leaves, int(index), int(index)+1), t.Size-1
		}, verify.Missing, "the rows of the tree were changed", true},
		"a leaf twice": {func(s *subject) {
			t := s.trees[organization]
			t.Leaves, t.Size = slices.Insert(t.Leaves, int(index), t.Leaves[index]), t.Size+1
		}, verify.Order, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := s.damaged()
			c.damage(d)
			want := index
			if c.what == verify.Order && !c.isInLog {
				want++
			}
			report := d.verify(t, "")
			if c.what == verify.Order && c.isInLog {
				if f := report.Finding; f == nil || f.What != verify.Order || f.Position != leaf.Position {
					t.Errorf("found %+v", f)
				}
				return
			}
			f := wantFinding(t, report, c.what, organization, want)
			if !strings.Contains(f.Detail, c.detail) {
				t.Errorf("found %+v", f)
			}
			if c.isInLog && (f.Stream != leaf.Stream || f.Revision != leaf.Revision || f.EventID != leaf.ID) {
				t.Errorf("found %+v, want the event %+v", f, leaf.Recorded)
			}
		})
	}
}

// A tree whose rows and log were changed alike has not the root of its checkpoints. A checkpoint must be signed by a
// key of the log, and be of its tree.
func TestVerify_Checkpoints(t *testing.T) {
	s := newSubject(t, 4, 30)
	organization := s.Organizations[2]
	key := s.keys[organization]
	name := stream.Name(stream.Audit, organization)
	size := int64(len(s.Leaves[organization]))
	signed := func(organization uuid.UUID, key audittest.Key, size int64) func() domain.CheckpointSigned {
		return func() domain.CheckpointSigned {
			note := s.Sign(organization, key, size)
			return domain.CheckpointSigned{OrganizationID: organization, Size: size, Note: note}
		}
	}
	if s.verify(t, "").Finding != nil {
		t.Fatal("it is damaged before")
	}
	for n, c := range []func() domain.CheckpointSigned{
		signed(organization, s.NewKey(organization, 0), size),     // another key of the name
		signed(organization, s.NewKey(organization, 1), size),     // another origin
		signed(s.Organizations[1], s.keys[s.Organizations[1]], 5), // another tree
		signed(organization, key, 3),                              // smaller than the one before
		func() domain.CheckpointSigned { // of another size than its event has
			e := signed(organization, key, size)()
			e.Size--
			return e
		},
		func() domain.CheckpointSigned { // of another root
			root := s.Leaves[organization]
			root[0].Record[0]++
			defer func() { root[0].Record[0]-- }()
			return signed(organization, key, size)()
		},
	} {
		again := newSubject(t, 4, 30)
		again.Append(organization, name, c())
		again.read(t)
		wantFinding(t, again.verify(t, ""), verify.Checkpoint, organization, size)
		if t.Failed() {
			t.Fatalf("checkpoint %d", n)
		}
	}
	forged := s.damaged()
	leaf := &forged.trees[organization].Leaves[0]
	at := slices.IndexFunc(forged.store.all, func(r eventstore.Recorded) bool { return r.Position == leaf.Position })
	forged.store.all[at].Data = append(slices.Clone(forged.store.all[at].Data), ' ')
	kept, err := forged.store.all[at].Kept(organization)
	if err != nil {
		t.Fatal(err)
	}
	leaf.Record = kept.Record
	if f := forged.verify(t, "").Finding; f == nil || f.What != verify.Checkpoint {
		t.Errorf("found %+v", f)
	}
	row := s.damaged()
	row.trees[organization].Checkpoint = strings.Replace(row.trees[organization].Checkpoint, "\n", "\n ", 1)
	if f := row.verify(t, "").Finding; f == nil || f.What != verify.Tile {
		t.Errorf("found %+v", f)
	}
}

// A checkpoint that the caller kept is of the log, or shows that the log was cut, forked or restored.
func TestVerify_Since(t *testing.T) {
	s := newSubject(t, 5, 30)
	organization := s.Organizations[1]
	key := s.keys[organization]
	size := int64(len(s.Leaves[organization]))
	early, last := s.Sign(organization, key, 4), s.Sign(organization, key, size)
	for _, kept := range []string{early, last} {
		if f := s.verify(t, kept).Finding; f != nil {
			t.Errorf("a checkpoint of the log: %+v", f)
		}
	}
	longer := newSubject(t, 5, 30)
	longer.Append(organization, stream.Name(stream.Organization, organization), domain.KeyAdded{})
	later := longer.Sign(organization, key, size+1)
	wantFinding(t, s.verify(t, later), verify.Cut, organization, size)
	longer.Leaves[organization][2].Record[0]++
	wantFinding(t, s.verify(t, longer.Sign(organization, key, size)), verify.Fork, organization, size)
	stranger, elsewhere := s.NewKey(organization, 0), s.NewKey(organization, 7)
	wantFinding(t, s.verify(t, s.Sign(organization, stranger, size)), verify.Checkpoint, organization, size)
	wantFinding(t, s.verify(t, s.Sign(organization, elsewhere, size)), verify.Fork, organization, size)
	next := s.NewKey(organization, 1)
	s.AddKey(organization, next, last)
	s.Grow(10)
	s.Checkpoint(organization, next, 0)
	s.read(t)
	if f := s.verify(t, last).Finding; f != nil {
		t.Errorf("a checkpoint of the origin before, which the restored log has: %+v", f)
	}
	f := wantFinding(t, s.verify(t, later), verify.Restored, organization, size)
	if !strings.Contains(f.Detail, ", 1 leaves lost") || s.verify(t, "").Finding != nil {
		t.Errorf("found %+v", f)
	}
	for _, text := range []string{"no note", "a\n1\nAAAA\n\n", strings.Replace(last, "annals/", "other", 1)} {
		v := verify.Verifier{Log: eventstore.Journal{Store: s.store, Codec: s.Codec}, Trees: s.trees}
		if _, err := v.Verify(t.Context(), verify.Request{Since: []byte(text)}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
