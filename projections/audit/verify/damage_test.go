package verify_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
)

// rounds returns how many rounds a test draws: that many, or what the environment has.
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

// flip flips one bit of bytes.
func flip(draw *rand.Rand, of []byte) []byte {
	of = slices.Clone(of)
	of[draw.IntN(len(of))] ^= 1 << draw.IntN(8)
	return of
}

// damageLog changes the log somewhere, and returns how.
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

// damageTree changes a tree somewhere below its newest checkpoint, and returns how.
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
		s, rounds := newSubject(t, 100+seed, 24+int(seed%4)*8), ofOne
		if seed%20 == 10 {
			s, rounds = newSubject(t, 100+seed, 900), ofOne/10 // with tiles
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
		for range min(rounds, total) {
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
