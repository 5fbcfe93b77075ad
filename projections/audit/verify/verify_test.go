package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
	"github.com/annals-project/annals/projections/audit/verify"
)

// readable is a log whose whole order may be damaged.
type readable struct {
	*eventstoretest.Memory
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
	for range 3 {
		s.Grow(events / 3)
		s.Erase()
		if s.Draw().IntN(2) == 0 {
			s.Scavenge()
		}
		s.Erase()
		for _, organization := range s.Organizations {
			s.Checkpoint(organization, s.keys[organization], int64(s.Draw().IntN(3)))
		}
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

// rounds returns how many rounds a test draws: that many, or what the environment says.
func rounds(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("ANNALS_TEST_AUDIT")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("ANNALS_TEST_AUDIT: %v", err)
	}
	return n
}

func TestVerify_NothingWrong(t *testing.T) {
	s := newSubject(t, 1, 60)
	report := s.verify(t, "")
	leaves := int64(0)
	for _, tree := range report.Trees {
		size := int64(len(s.Leaves[tree.Organization]))
		if tree.Size != size || tree.Checked != size || tree.Checkpoints != 4 || tree.Uncovered() != 1 {
			t.Errorf("tree %+v of %d leaves", tree, size)
		}
		leaves += size
	}
	if report.Finding != nil || len(report.Trees) != 3 || report.Uncovered() != 3 || report.Events < leaves/2 {
		t.Errorf("report %+v, %+v", report, report.Finding)
	}
}

// Before the first key nothing is wrong, and the report says how many leaves no checkpoint covers.
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
	empty := &subject{Log: s.Log, store: &readable{Memory: eventstoretest.NewMemory()}, trees: audittest.Trees{}}
	if report := empty.verify(t, ""); report.Finding != nil || len(report.Trees) != 0 {
		t.Errorf("an empty log: %+v", report)
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

// A tree whose rows and log were changed alike has not the root of its checkpoints, and a checkpoint must be signed by a
// key of the log, and be of its tree.
func TestVerify_Checkpoints(t *testing.T) {
	s := newSubject(t, 4, 30)
	organization := s.Organizations[2]
	key := s.keys[organization]
	name := stream.Name(stream.Audit, organization)
	size := int64(len(s.Leaves[organization]))
	signed := func(organization uuid.UUID, key audittest.Key, size int64) func() domain.CheckpointSigned {
		return func() domain.CheckpointSigned {
			return domain.CheckpointSigned{OrganizationID: organization, Size: size, Note: s.Sign(organization, key, size)}
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
		func() domain.CheckpointSigned { // of another size than its event says
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
	wantFinding(t, s.verify(t, s.Sign(organization, s.NewKey(organization, 0), size)), verify.Checkpoint, organization, size)
	wantFinding(t, s.verify(t, s.Sign(organization, s.NewKey(organization, 7), size)), verify.Fork, organization, size)
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

// flip flips one bit of bytes.
func flip(draw *rand.Rand, of []byte) []byte {
	of = slices.Clone(of)
	of[draw.IntN(len(of))] ^= 1 << draw.IntN(8)
	return of
}

// damageLog changes the log somewhere, and says how.
func damageLog(draw *rand.Rand, s *subject, records map[eventstore.Position]bool) string {
	var at int
	for {
		at = draw.IntN(len(s.store.all))
		if audit.HasLeaf(s.store.all[at]) {
			break
		}
	}
	e := &s.store.all[at]
	said := fmt.Sprintf("event %d of %s at %d: ", e.Revision, e.Stream, e.Position)
	switch draw.IntN(9) {
	case 0:
		e.Data = flip(draw, e.Data)
		return said + "data"
	case 1:
		e.Meta = flip(draw, e.Meta)
		return said + "metadata"
	case 2:
		if e.Stream = string(flip(draw, []byte(e.Stream))); !audit.HasLeaf(*e) && records[e.Position] {
			return "" // as if it had left the log, which it may
		}
		return said + "stream " + e.Stream
	case 3:
		e.Type = string(flip(draw, []byte(e.Type)))
		return said + "type " + e.Type
	case 4:
		e.ID[draw.IntN(16)] ^= 1 << draw.IntN(8)
		return said + "id"
	case 5:
		e.Revision ^= 1 << draw.IntN(40)
		return said + "revision"
	case 6:
		again := *e
		again.Position -= eventstore.Position(draw.IntN(2))
		s.store.all = slices.Insert(s.store.all, at, again)
		return said + "again"
	case 7:
		other := draw.IntN(len(s.store.all))
		if other == at || s.store.all[other].System() || !audit.HasLeaf(s.store.all[other]) {
			return ""
		}
		a, b := s.store.all[at], s.store.all[other]
		a.Position, b.Position = b.Position, a.Position
		s.store.all[at], s.store.all[other] = b, a
		return said + "swapped with one at " + fmt.Sprint(a.Position)
	}
	if records[e.Position] {
		return "" // it may leave the log
	}
	s.store.all = slices.Delete(s.store.all, at, at+1)
	return said + "dropped"
}

// damageTree changes a tree somewhere below its newest checkpoint, and says how.
func damageTree(draw *rand.Rand, s *subject) string {
	organization := s.Organizations[draw.IntN(len(s.Organizations))]
	t := s.trees[organization]
	n := draw.IntN(len(t.Leaves) - 1)
	said := fmt.Sprintf("leaf %d of %s: ", n, organization)
	switch draw.IntN(8) {
	case 0:
		t.Leaves[n].Record[draw.IntN(32)] ^= 1 << draw.IntN(8)
		return said + "record"
	case 1:
		t.Leaves[n].Position ^= 1 << draw.IntN(20)
		return said + "position"
	case 2:
		t.Leaves, t.Size = slices.Delete(t.Leaves, n, n+1), t.Size-1
		return said + "dropped"
	case 3:
		t.Leaves, t.Size = slices.Insert(t.Leaves, n, t.Leaves[draw.IntN(len(t.Leaves))]), t.Size+1
		return said + "repeated"
	case 4:
		other := draw.IntN(len(t.Leaves))
		t.Leaves[n], t.Leaves[other] = t.Leaves[other], t.Leaves[n]
		if other == n {
			return ""
		}
		return said + "swapped"
	case 5:
		t.Leaves, t.Size = t.Leaves[:n], int64(n)
		if n > 0 {
			t.Position = t.Leaves[n-1].Position
		}
		return said + "cut"
	case 6:
		t.Checkpoint = string(flip(draw, []byte(t.Checkpoint)))
		return said + "checkpoint"
	}
	for _, tile := range t.Tiles {
		tile[draw.IntN(len(tile))] ^= 1 << draw.IntN(8)
		return said + "tile"
	}
	return ""
}

// forge changes an event and its leaf alike.
func forge(draw *rand.Rand, s *subject) string {
	organization := s.Organizations[draw.IntN(len(s.Organizations))]
	t := s.trees[organization]
	n := draw.IntN(len(t.Leaves) - 1)
	at := slices.IndexFunc(s.store.all, func(r eventstore.Recorded) bool { return r.Position == t.Leaves[n].Position })
	if at < 0 {
		return ""
	}
	e := &s.store.all[at]
	e.Data = append(slices.Clone(e.Data), ' ')
	kept, err := e.Kept(organization)
	if err != nil {
		return ""
	}
	t.Leaves[n].Record = kept.Record
	return fmt.Sprintf("leaf %d of %s forged with event %d of %s", n, organization, e.Revision, e.Stream)
}

// Every damage of the log and of the trees below the newest checkpoint is named.
func TestVerify_AnyDamage(t *testing.T) {
	const ofOne = 500
	total := rounds(t, 10_000)
	for seed := uint64(0); total > 0; seed++ {
		s := newSubject(t, 100+seed, 24+int(seed%4)*12)
		if seed%20 == 19 {
			s = newSubject(t, 100+seed, 900) // with tiles
		}
		if f := s.verify(t, "").Finding; f != nil {
			t.Fatalf("seed %d: it is damaged before: %+v", seed, f)
		}
		records := map[eventstore.Position]bool{}
		for _, e := range s.Events(0) {
			var list domain.KeptList
			switch kept := e.Event.(type) {
			case *domain.RecordsKept:
				list = kept.Records
			case *deletion.FactsKept:
				list = append(kept.Records, kept.MemoryRecords...)
			}
			for _, k := range list {
				records[eventstore.Position(k.Position)] = true
			}
		}
		draw := rand.New(rand.NewPCG(seed, 9))
		for range min(ofOne, total) {
			total--
			d, said := s.damaged(), ""
			switch draw.IntN(5) {
			case 0, 1:
				said = damageLog(draw, d, records)
			case 2, 3:
				said = damageTree(draw, d)
			default:
				said = forge(draw, d)
			}
			if said != "" && d.verify(t, "").Finding == nil {
				t.Fatalf("seed %d: %s is not found", seed, said)
			}
		}
	}
}

// No honest history is reported: with erasures, scavenges, restores, and checkpoints in between.
func TestVerify_NoFalseAlarm(t *testing.T) {
	for seed := range uint64(rounds(t, 10_000)) {
		s := &subject{Log: audittest.New(t, seed), keys: map[uuid.UUID]audittest.Key{}}
		draw := rand.New(rand.NewPCG(seed, 7))
		var kept string
		for number := range 8 {
			organization := s.Organizations[draw.IntN(len(s.Organizations))]
			switch draw.IntN(6) {
			case 0:
				s.Erase()
			case 1:
				s.Scavenge()
			case 2:
				s.keys[organization] = s.NewKey(organization, number)
				s.AddKey(organization, s.keys[organization], "")
			case 3:
				if key, is := s.keys[organization]; is {
					// A checkpoint of an earlier size comes after none of a later one.
					kept = s.Checkpoint(organization, key, 0)
				}
			default:
				s.Grow(draw.IntN(6))
			}
		}
		s.read(t)
		if f := s.verify(t, kept).Finding; f != nil {
			t.Fatalf("seed %d: %+v", seed, f)
		}
	}
}
