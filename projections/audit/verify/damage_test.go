package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
	"github.com/annals-project/annals/projections/audit/verify"
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

// A blob that an event refers to has the SHA-256 that the event has, or is erased.
func TestVerify_Blobs(t *testing.T) {
	l := audittest.New(t, 1)
	organization, project := l.OfProject()
	now := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	journal := eventstore.Journal{Store: l.Store, Codec: l.Codec}
	point := uuid.New()
	write := func() datapoint.Text {
		ref, err := journal.WriteBlob(t.Context(), point, uuid.New(), project, now, event.NewMeta("test", now), []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		return datapoint.Text{Blob: &ref}
	}
	accepted := func(content datapoint.Text) datapoint.RevisionAccepted {
		e := datapoint.RevisionAccepted{Body: datapoint.Body{Content: content}}
		e.ProjectID, e.Effect.BodyAt = project, 1 // not stray
		return e
	}
	first, second := write(), write()
	for _, content := range []datapoint.Text{first, second, first} {
		l.Append(organization, stream.Name(stream.DataPoint, point),
			accepted(content))
	}
	s := &subject{Log: l}
	s.read(t)
	if f := s.verify(t, "").Finding; f != nil {
		t.Fatalf("found %+v", f)
	}
	if _, err := l.Store.Tombstone(t.Context(), first.Blob.Stream, 1); err != nil {
		t.Fatal(err)
	}
	if f := s.verify(t, "").Finding; f != nil {
		t.Errorf("an erased blob: %+v", f)
	}
	other := *second.Blob
	other.SHA256 = first.Blob.SHA256[1:] + "0"
	at := l.Append(organization, stream.Name(stream.DataPoint, point),
		accepted(datapoint.Text{Blob: &other}))
	s.read(t)
	if f := s.verify(t, "").Finding; f == nil || f.What != verify.Blob || f.Position != at {
		t.Errorf("a blob of another hash: %+v", f)
	}
}

// Read records are those of the root in the event before them.
func TestVerify_Reads(t *testing.T) {
	l := audittest.New(t, 1)
	organization, project := l.OfProject()
	name := stream.ReadsName(project, "2026-11-05")
	batch := func(n int) (reads.Rooted, reads.Recorded) {
		var records []reads.Record
		for i := range n {
			records = append(records, reads.Record{ID: uuid.New(), Part: i, Way: reads.Recall, Shown: []reads.Shown{}})
		}
		rooted, recorded, err := reads.Batch(organization, project, records)
		if err != nil {
			t.Fatal(err)
		}
		return rooted, recorded
	}
	s := &subject{Log: l}
	found := func() string {
		s.read(t)
		if f := s.verify(t, "").Finding; f != nil {
			return f.What
		}
		return ""
	}
	for n := range 4 {
		rooted, recorded := batch(n + 1)
		l.Append(organization, name, rooted)
		l.Append(organization, name, recorded)
	}
	if what := found(); what != "" {
		t.Errorf("found %s", what)
	}
	rooted, _ := batch(2)
	_, recorded := batch(2)
	l.Append(organization, name, rooted)
	l.Append(organization, name, recorded)
	if what := found(); what != verify.Reads {
		t.Errorf("found %q", what)
	}
	alone := &subject{Log: audittest.New(t, 1)}
	_, recorded = batch(1)
	alone.Append(organization, name, recorded)
	alone.read(t)
	if f := alone.verify(t, "").Finding; f == nil || f.What != verify.Reads {
		t.Errorf("records without a root: %+v", f)
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// The rows of the projection are those of the log, before and after a rebuild, and each damage of them is found.
func TestVerify_Rows(t *testing.T) {
	s := newSubject(t, 7, 2400)
	s.Scavenge()
	s.read(t)
	p, db := audit.New(s.Store, s.Codec), pgtest.Database(t)
	projectiontest.Make(t, db, p)
	projectiontest.Apply(t, db, p, s.Events(0)...)
	v := verify.Verifier{
		Log: eventstore.Journal{Store: s.Store, Codec: s.Codec}, Trees: audit.Queries{DB: db},
	}
	find := func() *verify.Finding {
		t.Helper()
		report, err := v.Verify(t.Context(), verify.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return report.Finding
	}
	if f := find(); f != nil {
		t.Fatalf("found %+v", f)
	}
	for name, c := range map[string]struct{ damage, what string }{
		"a record":         {flipped("bundles", "records", 70) + ` where n = 1`, verify.Changed},
		"a position":       {flipped("bundles", "positions", 15) + ` where n = 1`, verify.Missing},
		"a tile":           {flipped("tiles", "hashes", 40) + ` where level = 1`, verify.Tile},
		"a tile removed":   {`delete from audit.tiles where level = 1`, verify.Tile},
		"a bundle removed": {`delete from audit.bundles where n = 1`, verify.Missing},
		"the last bundle removed": {`delete from audit.bundles b where n = (select size / 256 from audit.trees t
			where t.organization_id = b.organization_id)`, verify.Missing},
		"the newest checkpoint": {`update audit.trees set checkpoint = replace(checkpoint, E'\n', E'\n1')`, verify.Tile},
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, c.damage)
			if f := find(); f == nil || f.What != c.what {
				t.Errorf("found %+v, want %s", f, c.what)
			}
			projectiontest.Empty(t, db, p)
			projectiontest.Apply(t, db, p, s.Events(0)...)
			if f := find(); f != nil {
				t.Errorf("after a rebuild %+v", f)
			}
		})
	}
}

// flipped is a statement that flips a bit of a byte of a column.
func flipped(table, column string, at int) string {
	return fmt.Sprintf("update audit.%s set %s = set_byte(%s, %d, get_byte(%s, %d) # 1)", table, column, column, at, column, at)
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql)
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%d rows, %v", tag.RowsAffected(), err)
	}
}

// No honest history of the embedded store and the projection is reported: with erasures, scavenges and rebuilds.
func TestNode_NoFalseAlarm(t *testing.T) {
	db := pgtest.Database(t)
	projectiontest.Make(t, db, audit.New(nil, nil))
	for seed := range uint64(rounds(t, 2000) / 100) {
		n := nodetest.Start(t, node.Config{})
		store := nodetest.Open(t, nodetest.ConfigOf(n.Connection()))
		l := audittest.On(t, seed, store, n.Scavenge)
		draw, p := rand.New(rand.NewPCG(seed, 5)), audit.New(store, l.Codec)
		v := verify.Verifier{Log: eventstore.Journal{Store: store, Codec: l.Codec}, Trees: audit.Queries{DB: db}}
		keys, read, kept := map[uuid.UUID]audittest.Key{}, eventstore.Position(0), ""
		projectiontest.Empty(t, db, p)
		v.Applied = func(ctx context.Context, _ eventstore.Position) error {
			if events := l.Events(read); len(events) > 0 {
				read = events[len(events)-1].Position
				projectiontest.Apply(t, db, p, events...)
			}
			return projectiontest.FollowUp(ctx, db, p)
		}
		for _, organization := range l.Organizations {
			keys[organization] = l.NewKey(organization, 0)
			l.AddKey(organization, keys[organization], "")
		}
		for range 6 {
			l.Grow(draw.IntN(30))
			for range draw.IntN(3) {
				l.Erase()
			}
			if draw.IntN(2) == 0 {
				l.Scavenge()
			}
			if draw.IntN(3) == 0 { // a rebuild
				projectiontest.Empty(t, db, p)
				read = 0
			}
			if draw.IntN(2) == 0 {
				organization := l.Organizations[draw.IntN(3)]
				kept = l.Checkpoint(organization, keys[organization], 0)
			}
			report, err := v.Verify(t.Context(), verify.Request{Since: []byte(kept)})
			if err != nil || report.Finding != nil {
				t.Fatalf("seed %d: %+v, %v", seed, report.Finding, err)
			}
		}
	}
}
