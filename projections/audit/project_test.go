package audit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/audittest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func database(t *testing.T, p audit.Projector) (*pgxpool.Pool, audit.Queries) {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, p)
	return db, audit.Queries{DB: db}
}

// apply applies all that a log has after a position, in pages of a size, and then the follow-ups.
func apply(t *testing.T, db *pgxpool.Pool, p audit.Projector, events []eventstore.DecodedEvent, size int) {
	t.Helper()
	for page := range slices.Chunk(events, size) {
		projectiontest.Apply(t, db, p, page...)
	}
	if err := projectiontest.FollowUp(t.Context(), db, p); err != nil {
		t.Fatal(err)
	}
}

// wantTrees compares each tree with the leaves that its log must give.
func wantTrees(t *testing.T, q audit.Queries, l *audittest.Log) {
	t.Helper()
	for _, organization := range l.Organizations {
		want := l.Leaves[organization]
		tree, ok, err := q.Tree(t.Context(), organization)
		if err != nil || !ok || tree.Size != int64(len(want)) || tree.Position != want[len(want)-1].Position {
			t.Fatalf("tree %+v, %v, %v, want %d leaves", tree, ok, err, len(want))
		}
		var got []audit.Leaf
		for from := int64(0); from < tree.Size; from = int64(len(got)) {
			part, err := q.Leaves(t.Context(), organization, from, tree.Size)
			if err != nil || len(part) == 0 {
				t.Fatalf("%d leaves from %d on, %v", len(part), from, err)
			}
			got = append(got, part...)
		}
		for n, leaf := range want {
			if got[n] != (audit.Leaf{Position: leaf.Position, Record: leaf.Record}) {
				t.Fatalf("leaf %d is %+v, want that of event %d of %s at %d", n, got[n], leaf.Revision, leaf.Stream, leaf.Position)
			}
		}
		root, err := tlog.TreeHash(tree.Size, q.Reader(t.Context(), organization))
		if err != nil || root != l.Root(organization, tree.Size) {
			t.Errorf("root of %d leaves is %v, %v", tree.Size, root, err)
		}
	}
}

// The roots, proofs and tiles of a tree with tiles of three levels are those that package tlog makes of its leaves.
func TestQueries_AsTlog(t *testing.T) {
	l := audittest.New(t, 1)
	organization := l.Organizations[1]
	name := stream.Name(stream.Organization, organization)
	const size = 1<<16 + 1000
	for n := range size {
		l.Put(organization, name, eventstore.Proposed{
			ID: uuid.NewSHA1(uuid.Nil, binary.BigEndian.AppendUint64(nil, uint64(n))), Type: "of.another.v1", Data: []byte(`{}`),
			Meta: event.WithSalt([]byte(`{"at":"2026-11-05T12:00:00Z"}`), [event.SaltSize]byte{byte(n), byte(n >> 8)}),
		})
	}
	p := audit.New(l.Store, l.Codec)
	db, q := database(t, p)
	apply(t, db, p, l.Events(0), 5000)
	ctx, reader, leaves := t.Context(), q.Reader(t.Context(), organization), l.Leaves[organization]
	for _, n := range []int64{1, 2, 255, 256, 257, 1000, 1 << 16, size - 1, size} {
		root, err := tlog.TreeHash(n, reader)
		if err != nil || root != l.Root(organization, n) {
			t.Fatalf("root of %d leaves %v, %v", n, root, err)
		}
		for _, of := range []int64{0, n / 2, n - 1} {
			proof, err := tlog.ProveRecord(n, of, reader)
			if err != nil {
				t.Fatal(err)
			}
			if err := tlog.CheckRecord(proof, n, root, of, tlog.RecordHash(leaves[of].Record[:])); err != nil {
				t.Errorf("leaf %d of %d: %v", of, n, err)
			}
		}
		proof, err := tlog.ProveTree(size, n, reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckTree(proof, size, l.Root(organization, size), n, root); err != nil {
			t.Errorf("tree of %d in that of %d: %v", n, size, err)
		}
	}
	for _, tile := range tlog.NewTiles(8, 0, size) {
		want, err := tlog.ReadTileData(tile, reader)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := q.Tile(ctx, organization, tile.L, tile.N, tile.W)
		if err != nil || !ok || !bytes.Equal(got, want) {
			t.Fatalf("tile %+v: %v, %v", tile, ok, err)
		}
	}
	entries, ok, err := q.Tile(ctx, organization, -1, 256, 3)
	want := []byte{}
	for _, leaf := range leaves[256*256:][:3] {
		want = append(append(want, 0, 32), leaf.Record[:]...)
	}
	if err != nil || !ok || !bytes.Equal(entries, want) {
		t.Errorf("entries %x, %v, %v, want %x", entries, ok, err, want)
	}
	for _, beyond := range []tlog.Tile{
		{L: 2, N: 0, W: 2}, {L: 1, N: 1, W: 4}, {L: 3, N: 0, W: 1}, {L: 0, N: 1 << 20, W: 1}, {L: -2, W: 1},
	} {
		if _, ok, err := q.Tile(ctx, organization, beyond.L, beyond.N, beyond.W); ok || err != nil {
			t.Errorf("tile %+v: %v, %v", beyond, ok, err)
		}
	}
	if _, err := tlog.TreeHash(size+300, reader); err == nil {
		t.Error("a root of more leaves than there are")
	}
	for _, n := range []int64{0, 1, 300, size - 1} {
		if got, ok, err := q.IndexOf(ctx, organization, leaves[n].Position); got != n || !ok || err != nil {
			t.Errorf("leaf %d is the %d-th, %v, %v", n, got, ok, err)
		}
		if _, ok, err := q.IndexOf(ctx, organization, leaves[n].Position+1); ok || err != nil {
			t.Errorf("a leaf where there is none: %v, %v", ok, err)
		}
	}
}

// Pages of any size give the same rows, read at once, late, or by a rebuild of a log that events have left.
func TestProjector_AnyPagesAndRebuilds(t *testing.T) {
	for seed := range uint64(4) {
		draw := rand.New(rand.NewPCG(seed, 0))
		l := audittest.New(t, seed)
		now := audit.New(l.Store, l.Codec)
		db, q := database(t, now)
		var read eventstore.Position
		page := func() {
			events := l.Events(read)
			// Some of the log is not read yet when it goes on.
			if n := draw.IntN(len(events) + 1); n > 0 {
				read = events[n-1].Position
				apply(t, db, now.Rest(draw.IntN(3)*20), events[:n], 1+draw.IntN(40))
			}
		}
		for range 20 {
			l.Grow(draw.IntN(40))
			for range draw.IntN(4) {
				l.Erase()
			}
			if draw.IntN(3) == 0 {
				l.Scavenge()
			}
			page()
		}
		l.Grow(1)
		apply(t, db, now, l.Events(read), 25)
		wantTrees(t, q, l)
		l.Scavenge()
		live, err := projectiontest.Dump(t.Context(), db, now, "since")
		if err != nil || live["bundles"] == nil || live["pending"] != nil || live["kept"] != nil || live["follow_ups"] != nil {
			t.Fatalf("rows %v, %v", live, err)
		}
		for _, again := range []audit.Projector{now, now.Rest(0), now.Rest(30)} {
			for _, size := range []int{1, 7, 100_000} {
				var pages [][]eventstore.DecodedEvent
				for page := range slices.Chunk(l.Events(0), size) {
					pages = append(pages, page)
				}
				projectiontest.Empty(t, db, now)
				rows := projectiontest.RowsAfter(t, t, db, again, pages, "since")
				if diff := cmp.Diff(live, rows); diff != "" {
					t.Fatalf("seed %d in pages of %d (-live +rebuilt):\n%s", seed, size, diff)
				}
			}
		}
	}
}

// What waits for a checkpoint, and since when, does not follow from the pages.
func TestProjector_Checkpoints(t *testing.T) {
	l := audittest.New(t, 3)
	p := audit.New(l.Store, l.Codec)
	db, q := database(t, p)
	organization, log := l.Organizations[1], uuid.New()
	name, own := stream.Name(stream.Audit, organization), stream.Name(stream.Organization, organization)
	something := func() time.Time {
		l.Append(organization, own, project.Archived{})
		events := l.Events(0)
		return events[len(events)-1].Details.At
	}
	var all []eventstore.DecodedEvent
	tree := func() audit.Tree {
		t.Helper()
		projectiontest.Empty(t, db, p)
		all = l.Events(0)
		apply(t, db, p, all, 1000)
		whole, _, err := q.Tree(t.Context(), organization)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []audit.Projector{p, p.Rest(0)} {
			projectiontest.Empty(t, db, p)
			apply(t, db, cut, all, 1)
			single, _, err := q.Tree(t.Context(), organization)
			if diff := cmp.Diff(whole, single); err != nil || diff != "" {
				t.Fatalf("in pages of one (-whole +cut):\n%s%v", diff, err)
			}
		}
		return whole
	}
	due := func() int {
		t.Helper()
		list, err := q.Due(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(list, func(t audit.Tree) bool { return t.Organization != organization }))
	}
	first := something()
	something()
	if got := tree(); got.Size != 2 || got.Happened != 2 || !got.Since.Equal(first) || got.Origin != "" || due() != 1 {
		t.Errorf("before the first key %+v", got)
	}
	origin := domain.Origin(log, organization, 0)
	a, b := origin+"\na\n", origin+"\nb\n"
	cosign := func(size int64, note, signatures string) {
		l.Append(organization, name, domain.CheckpointCosigned{
			OrganizationID: organization, Size: size, Note: note, Signatures: signatures,
		})
	}
	l.Append(organization, name, domain.KeyAdded{OrganizationID: organization, Origin: origin, Verifier: "one"})
	l.Append(organization, name, domain.CheckpointSigned{OrganizationID: organization, Size: 3, Note: a})
	got := tree()
	if got.Size != 4 || got.Happened != 2 || !got.Since.IsZero() || got.CheckpointSize != 3 || due() != 0 {
		t.Errorf("with a checkpoint of all %+v", got)
	}
	cosign(3, a, "w\n")
	cosign(2, origin+"\nearlier\n", "late\n")
	cosign(9, domain.Origin(log, organization, 7)+"\nanother origin\n", "w\n")
	second := something()
	got = tree()
	if got.Checkpoint != a+"w\n" || got.Cosigned != a+"w\n" || got.CosignedSize != 3 || !got.Since.Equal(second) || due() != 1 {
		t.Errorf("with a witness, and something since %+v", got)
	}
	l.Append(organization, name, domain.KeyAdded{OrganizationID: organization, Origin: origin, Verifier: "two"})
	l.Append(organization, name, domain.CheckpointSigned{OrganizationID: organization, Size: 4, Note: b})
	got = tree()
	if want := all[len(all)-1].Details.At; got.Checkpoint != b || got.Cosigned != a+"w\n" || !got.Since.Equal(want) ||
		!slices.Equal(got.Verifiers, []string{"one", "two"}) || !got.CheckpointAt.Equal(want) {
		t.Errorf("a checkpoint that lacks a leaf before it %+v", got)
	}
	cosign(3, a+"w\n", "slow\n")
	got = tree()
	if got.Checkpoint != b || got.Cosigned != a+"w\nslow\n" || got.CosignedSize != 3 {
		t.Errorf("a witness that is slower than the next checkpoint %+v", got)
	}
	next := domain.Origin(log, organization, 1)
	l.Append(organization, name, domain.KeyAdded{Origin: next, Verifier: "three", Former: b})
	got = tree()
	if got.Origin != next || got.Checkpoint != "" || got.CheckpointSize != 0 || got.Cosigned != "" || due() != 1 ||
		!slices.Equal(got.Verifiers, []string{"three"}) || !got.CheckpointAt.IsZero() {
		t.Errorf("a new origin %+v", got)
	}
	trees, err := q.Trees(t.Context(), nil, 1)
	if err != nil || len(trees) != 1 || trees[0].Organization != uuid.Nil {
		t.Fatalf("first tree %+v, %v", trees, err)
	}
	trees, err = q.Trees(t.Context(), &uuid.Nil, 5)
	if err != nil || len(trees) != 1 || trees[0].Organization != organization {
		t.Errorf("trees after it %+v, %v", trees, err)
	}
}

// An event that cannot be decoded, or is of another program, has the leaf that its bytes give.
func TestProjector_EventsThatAreSetAside(t *testing.T) {
	l := audittest.New(t, 4)
	of, projectID := l.OfProject()
	meta := event.WithSalt([]byte(`{"at":"2026-11-05T12:00:00Z"}`), [event.SaltSize]byte{1})
	name := stream.Name(stream.DataPoint, uuid.New())
	put := func(organization uuid.UUID, data, meta []byte) {
		p := eventstore.Proposed{ID: uuid.New(), Type: "datapoint.unheard-of.v1", Data: data, Meta: meta}
		l.Put(organization, name, p)
	}
	put(of, []byte(`{"projectId":"`+projectID.String()+`"}`), meta)
	put(uuid.Nil, []byte(`{"projectId":7}`), meta)
	put(uuid.Nil, []byte(`no JSON`), meta)
	put(uuid.Nil, []byte(`{}`), []byte(`{}`))
	put(uuid.Nil, []byte(`{}`), nil)
	p := audit.New(l.Store, l.Codec)
	db, q := database(t, p)
	apply(t, db, p, l.Events(0), 3)
	for _, organization := range []uuid.UUID{uuid.Nil, of} {
		want := l.Leaves[organization]
		tree, _, err := q.Tree(t.Context(), organization)
		if err != nil || tree.Size != int64(len(want)) {
			t.Fatalf("%+v, %v, want %d leaves", tree, err, len(want))
		}
		root, err := tlog.TreeHash(tree.Size, q.Reader(t.Context(), organization))
		if err != nil || root != l.Root(organization, tree.Size) {
			t.Errorf("root %v, %v", root, err)
		}
	}
}

// Leaves of a page far from the end of the log wait until the pages up to there are applied, or the rest is short.
func TestQueries_Waits(t *testing.T) {
	l := audittest.New(t, 6)
	l.Grow(40)
	l.Erase()
	l.Scavenge()
	l.Append(uuid.Nil, stream.Registry, domain.KeyAdded{})
	p := audit.New(l.Store, l.Codec).Rest(0)
	db, q := database(t, p)
	events := l.Events(0)
	wantWaits := func(up eventstore.Position, want bool) {
		t.Helper()
		if waits, err := q.Waits(t.Context(), up); err != nil || waits != want {
			t.Errorf("up to %d it waits: %v, %v", up, waits, err)
		}
	}
	wantWaits(events[0].Position, false)
	apply(t, db, p, events[:20], 10)
	wantWaits(events[0].Position-1, false)
	wantWaits(events[0].Position, true)
	apply(t, db, p, events[20:], 10)
	wantWaits(events[len(events)-1].Position, false)
	wantTrees(t, q, l)
}

func TestProjector_Fit(t *testing.T) {
	p := audit.New(nil, nil)
	kept := eventstore.DecodedEvent{Event: &domain.RecordsKept{Records: make(domain.KeptList, 5000)}}
	page := []eventstore.DecodedEvent{kept, kept, kept}
	if n := p.Fit(page); n != 1 {
		t.Errorf("%d events with 5,000 records", n)
	}
	if n := p.Fit(make([]eventstore.DecodedEvent, 500)); n != 500 {
		t.Errorf("%d of 500 events", n)
	}
	if n := p.Fit([]eventstore.DecodedEvent{{Event: &domain.RecordsKept{Records: make(domain.KeptList, 9000)}}}); n != 1 {
		t.Errorf("%d of one large event", n)
	}
}

// many appends events of a project.
func many(b *testing.B, l *audittest.Log, count int) (organization uuid.UUID) {
	b.Helper()
	organization, project := l.OfProject()
	name := stream.Name(stream.Identity, uuid.New())
	data := fmt.Appendf(nil, `{"projectId":%q,"requestId":%q}`, project, uuid.NewString())
	for n := range count {
		meta := []byte(`{"commandId":"` + uuid.NewString() + `","schema":1,"at":"2026-11-05T12:00:00Z"}`)
		l.Put(organization, name, eventstore.Proposed{
			ID: uuid.New(), Type: identity.Removed{}.EventType(), Data: data,
			Meta: event.WithSalt(meta, [event.SaltSize]byte(binary.BigEndian.AppendUint64(make([]byte, 8), uint64(n)))),
		})
	}
	return organization
}

// ended is a log that ends with each page.
type ended struct{ audit.Log }

func (ended) Head(context.Context) (eventstore.Position, error) { return 0, nil }

// BenchmarkProjector applies a log that was read and decoded: in one rebuild, in which leaves wait for the end, and in
// pages at the end of the log.
func BenchmarkProjector(b *testing.B) {
	l := audittest.New(b, 1)
	organization := many(b, l, 100_000)
	events := l.Events(0)
	p, db := audit.New(l.Store, l.Codec), pgtest.Database(b)
	projectiontest.Make(b, db, p)
	for name, c := range map[string]struct {
		audit.Projector
		page int
	}{"rebuild": {p, 4096}, "pages": {audit.New(ended{l.Store}, l.Codec), 512}} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				projectiontest.Empty(b, db, p)
				b.StartTimer()
				for page := range slices.Chunk(events, c.page) {
					projectiontest.Apply(b, db, c, page...)
				}
				if err := projectiontest.FollowUp(b.Context(), db, c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "leaves/s")
		})
	}
	q := audit.Queries{DB: db}
	b.Run("proof", func(b *testing.B) {
		reader, size := q.Reader(b.Context(), organization), int64(len(l.Leaves[organization]))
		for n := range b.N {
			if _, err := tlog.ProveRecord(size, int64(n)*7919%size, reader); err != nil {
				b.Fatal(err)
			}
		}
	})
}
