package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

const (
	// height is that of a tile, which has width hashes: those of C2SP tlog-tiles.
	height = 8
	width  = 1 << height

	recordSize   = len(audit.Record{})
	positionSize = 8
)

// treeRow is a row of table trees.
type treeRow struct {
	Organization       uuid.UUID  `db:"organization_id"`
	Size               int64      `db:"size"`
	Position           int64      `db:"position"`
	Happened           int64      `db:"happened"`
	Since              *time.Time `db:"since"`
	Origin             string     `db:"origin"`
	Verifiers          []string   `db:"verifiers"`
	Checkpoint         string     `db:"checkpoint"`
	CheckpointSize     int64      `db:"checkpoint_size"`
	CheckpointAt       *time.Time `db:"checkpoint_at"`
	CheckpointPosition int64      `db:"checkpoint_position"`
	Cosigned           string     `db:"cosigned"`
	CosignedSize       int64      `db:"cosigned_size"`
	CosignedAt         *time.Time `db:"cosigned_at"`
}

// bundleRow is a row of table bundles.
type bundleRow struct {
	Organization uuid.UUID `db:"organization_id"`
	N            int64     `db:"n"`
	First        int64     `db:"first_position,once"`
	Records      []byte    `db:"records"`
	Positions    []byte    `db:"positions"`
}

// tileRow is a row of table tiles.
type tileRow struct {
	Organization uuid.UUID `db:"organization_id"`
	Level        int       `db:"level"`
	N            int64     `db:"n"`
	Hashes       []byte    `db:"hashes"`
}

var (
	treeRows   = table.New[treeRow](Name, schema, "trees")
	bundleRows = table.New[bundleRow](Name, schema, "bundles")
	tileRows   = table.New[tileRow](Name, schema, "tiles")

	selectTrees   = treeRows.Select(`trees where organization_id = any($1::uuid[])`)
	selectBundles = bundleRows.Select(`bundles where (organization_id, n) in (select * from unnest($1::uuid[], $2::bigint[]))`)
	selectTiles   = tileRows.Select(`tiles where (organization_id, level, n) in (
		select * from unnest($1::uuid[], $2::int[], $3::bigint[]))`)
)

// tileKey names a bundle, at level 0, or a tile.
type tileKey struct {
	organization uuid.UUID
	level        int
	n            int64
}

// build has the rows of trees that grow.
type build struct {
	trees   map[uuid.UUID]*treeRow
	bundles map[tileKey]*bundleRow
	tiles   map[tileKey]*tileRow
}

// place adds leaves to their trees, in the order of the log, and changes checkpoints. It writes what is queued too.
func place(ctx context.Context, tx pgx.Tx, queued *pgx.Batch, leaves []leaf, marks []mark) error {
	leaves = inOrder(leaves)
	b := build{map[uuid.UUID]*treeRow{}, map[tileKey]*bundleRow{}, map[tileKey]*tileRow{}}
	if err := b.load(ctx, tx, leaves, marks); err != nil {
		return fmt.Errorf("load trees: %w", err)
	}
	for _, m := range marks {
		b.trees[m.organization].mark(m)
	}
	for _, l := range leaves {
		b.add(l)
	}
	treeRows.Save(queued, slices.Collect(maps.Values(b.trees)))
	bundleRows.Save(queued, slices.Collect(maps.Values(b.bundles)))
	tileRows.Save(queued, slices.Collect(maps.Values(b.tiles)))
	if err := pgarray.Flush(ctx, tx, queued); err != nil {
		return fmt.Errorf("write trees: %w", err)
	}
	return nil
}

// load reads the trees of leaves and marks, and what they end with: the last bundle, and the last tile of each level if
// the leaves may fill the bundle.
func (b *build) load(ctx context.Context, tx pgx.Tx, leaves []leaf, marks []mark) error {
	more := map[uuid.UUID]int64{}
	for _, l := range leaves {
		more[l.organization]++
	}
	for _, m := range marks {
		more[m.organization] += 0
	}
	for organization := range more {
		b.trees[organization] = &treeRow{Organization: organization, Verifiers: []string{}}
	}
	batch := &pgx.Batch{}
	batch.Queue(selectTrees, slices.Collect(maps.Keys(more))).Query(treeRows.Read(func(r *treeRow) {
		b.trees[r.Organization] = r
	}))
	if err := pgarray.Flush(ctx, tx, batch); err != nil {
		return err
	}
	var bundles, tiles []tileKey
	for organization, t := range b.trees {
		if t.Size%width != 0 {
			bundles = append(bundles, tileKey{organization, 0, t.Size / width})
		}
		if t.Size%width+more[organization] < width {
			continue
		}
		for level, hashes := 1, t.Size/width; hashes > 0; level, hashes = level+1, hashes/width {
			if hashes%width != 0 {
				tiles = append(tiles, tileKey{organization, level, hashes / width})
			}
		}
	}
	return b.loadEnds(ctx, tx, bundles, tiles)
}

func (b *build) loadEnds(ctx context.Context, tx pgx.Tx, bundles, tiles []tileKey) error {
	organization := func(k tileKey) uuid.UUID { return k.organization }
	n := func(k tileKey) int64 { return k.n }
	batch := &pgx.Batch{}
	if len(bundles) > 0 {
		batch.Queue(selectBundles, pgarray.IDs(bundles, organization), pgarray.Column(bundles, n)).Query(
			bundleRows.Read(func(r *bundleRow) { b.bundles[tileKey{r.Organization, 0, r.N}] = r }))
	}
	if len(tiles) > 0 {
		levels := pgarray.Column(tiles, func(k tileKey) int32 { return int32(k.level) })
		batch.Queue(selectTiles, pgarray.IDs(tiles, organization), levels, pgarray.Column(tiles, n)).Query(
			tileRows.Read(func(r *tileRow) { b.tiles[tileKey{r.Organization, r.Level, r.N}] = r }))
	}
	return pgarray.Flush(ctx, tx, batch)
}

// add adds a leaf, unless the tree has it: a record that is kept of an event that was read, too.
func (b *build) add(l leaf) {
	t := b.trees[l.organization]
	if l.position <= t.Position {
		return
	}
	key := tileKey{l.organization, 0, t.Size / width}
	bundle := b.bundles[key]
	if bundle == nil {
		bundle = &bundleRow{Organization: l.organization, N: key.n, First: l.position}
		b.bundles[key] = bundle
	}
	bundle.Records = append(bundle.Records, l.record[:]...)
	bundle.Positions = binary.BigEndian.AppendUint64(bundle.Positions, uint64(l.position))
	t.grow(l)
	if t.Size%width == 0 {
		b.addHash(tileKey{l.organization, 1, key.n}, root(recordHashes(bundle.Records)))
	}
}

// addHash adds a hash to a level: the n-th of it.
func (b *build) addHash(at tileKey, hash tlog.Hash) {
	key := tileKey{at.organization, at.level, at.n / width}
	tile := b.tiles[key]
	if tile == nil {
		tile = &tileRow{Organization: key.organization, Level: key.level, N: key.n}
		b.tiles[key] = tile
	}
	tile.Hashes = append(tile.Hashes, hash[:]...)
	if len(tile.Hashes) == width*tlog.HashSize {
		b.addHash(tileKey{at.organization, at.level + 1, key.n}, root(hashesOf(tile.Hashes)))
	}
}

// root returns the hash of a full tile.
func root(hashes []tlog.Hash) tlog.Hash {
	for ; len(hashes) > 1; hashes = hashes[:len(hashes)/2] {
		for n := range len(hashes) / 2 {
			hashes[n] = tlog.NodeHash(hashes[2*n], hashes[2*n+1])
		}
	}
	return hashes[0]
}

// recordHashes returns the hashes of level 0 of packed records.
func recordHashes(records []byte) []tlog.Hash {
	hashes := make([]tlog.Hash, len(records)/recordSize)
	for n := range hashes {
		hashes[n] = tlog.RecordHash(records[n*recordSize : (n+1)*recordSize])
	}
	return hashes
}

func hashesOf(packed []byte) []tlog.Hash {
	hashes := make([]tlog.Hash, len(packed)/tlog.HashSize)
	for n := range hashes {
		hashes[n] = tlog.Hash(packed[n*tlog.HashSize:])
	}
	return hashes
}

// grow counts a leaf.
func (t *treeRow) grow(l leaf) {
	t.Size, t.Position = t.Size+1, l.position
	if l.at == 0 {
		return
	}
	t.Happened = t.Size
	if t.Since == nil && t.Size > t.CheckpointSize {
		at := time.UnixMicro(l.at).UTC()
		if t.Since = &at; l.position < t.CheckpointPosition {
			t.Since = t.CheckpointAt
		}
	}
}

// mark changes the checkpoint.
func (t *treeRow) mark(m mark) {
	switch e := m.event.(type) {
	case *audit.KeyAdded:
		if e.Origin != t.Origin {
			t.Origin, t.Verifiers, t.Checkpoint, t.CheckpointSize = e.Origin, nil, "", 0
			t.Cosigned, t.CosignedSize, t.CosignedAt = "", 0, nil
			t.beginAt(m)
		}
		t.Verifiers = append(t.Verifiers, e.Verifier)
	case *audit.CheckpointSigned:
		t.Checkpoint, t.CheckpointSize = e.Note, e.Size
		t.beginAt(m)
	case *audit.CheckpointCosigned:
		t.cosign(e, m.at)
	}
}

// cosign adds signatures of witnesses, unless a newer checkpoint, or one of another origin, has some.
func (t *treeRow) cosign(e *audit.CheckpointCosigned, at time.Time) {
	if e.Size < t.CosignedSize || !strings.HasPrefix(e.Note, t.Origin+"\n") {
		return
	}
	if e.Size > t.CosignedSize {
		t.Cosigned = e.Note
	}
	t.Cosigned += e.Signatures
	t.CosignedSize, t.CosignedAt = e.Size, pgarray.Optional(pgarray.Instant(at))
	if e.Size == t.CheckpointSize {
		t.Checkpoint = t.Cosigned
	}
}

// beginAt records when and where the checkpoint is, or the begin of an origin, which has none yet. A leaf before that
// event which the checkpoint does not cover waits since then.
func (t *treeRow) beginAt(m mark) {
	at := pgarray.Instant(m.at)
	t.CheckpointAt, t.CheckpointPosition, t.Since = &at, m.position, nil
	if t.Happened > t.CheckpointSize {
		t.Since = &at
	}
}

// categories are those of the streams whose events have leaves. A blob has none: the event that refers to it has its
// hash.
var categories = []string{
	stream.Registry, stream.Organization, stream.Person, stream.Address, stream.Offer, stream.Project, stream.Identity,
	stream.Bulk, stream.Audiences, stream.Usage, stream.DataPoint, stream.Memory, stream.Ingestion, stream.Deletion,
	stream.Erasure, stream.Records, stream.Audit, stream.Reads, stream.Visits, stream.Pipeline,
}

// HasLeaf reports whether an event has a leaf. Those of the store and of other programs have none.
func HasLeaf(r eventstore.Recorded) bool {
	return !r.System() && slices.Contains(categories, stream.Category(r.Stream))
}

// leaf is a leaf that gets its place in a tree.
type leaf struct {
	position     int64
	organization uuid.UUID
	// at is the time of the event in microseconds, 0 for an event of category audit: that alone is no reason for a
	// checkpoint.
	at     int64
	record audit.Record
}

// leafSize is what a packed leaf takes.
const leafSize = 8 + 16 + 8 + len(audit.Record{})

func (l leaf) pack(to []byte) []byte {
	to = append(binary.BigEndian.AppendUint64(to, uint64(l.position)), l.organization[:]...)
	return append(binary.BigEndian.AppendUint64(to, uint64(l.at)), l.record[:]...)
}

func pack(leaves []leaf) []byte {
	packed := make([]byte, 0, len(leaves)*leafSize)
	for _, l := range leaves {
		packed = l.pack(packed)
	}
	return packed
}

// unpack adds the packed leaves that are not after a position.
func unpack(to []leaf, packed []byte, before int64) []leaf {
	for ; len(packed) >= leafSize; packed = packed[leafSize:] {
		l := leaf{
			position: int64(binary.BigEndian.Uint64(packed)), organization: uuid.UUID(packed[8:24]),
			at: int64(binary.BigEndian.Uint64(packed[24:])), record: audit.Record(packed[32:leafSize]),
		}
		if l.position <= before {
			to = append(to, l)
		}
	}
	return to
}

// inOrder sorts leaves by position. What is there twice is the same: the event and its kept record.
func inOrder(leaves []leaf) []leaf {
	slices.SortStableFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.position, b.position) })
	return slices.CompactFunc(leaves, func(a, b leaf) bool { return a.position == b.position })
}

// leafOf returns the leaf of an event of an organization. An event of another program in a stream of ours may have no
// salt or no time: its record is that of one that is passed over.
func leafOf(f eventstore.DecodedEvent, organization uuid.UUID) (leaf, error) {
	f.Event = eventstore.PassedOver{}
	kept, err := f.Kept(organization)
	if err != nil {
		return leaf{}, err
	}
	l := leaf{position: int64(f.Position), organization: organization, record: kept.Record}
	if stream.Category(f.Stream) != stream.Audit {
		l.at = max(timeOf(f).UnixMicro(), 1)
	}
	return l, nil
}

// timeOf returns the time in the metadata of an event, zero if there is none that can be read.
func timeOf(f eventstore.DecodedEvent) time.Time {
	if !f.Details.At.IsZero() {
		return f.Details.At
	}
	var stored struct {
		At time.Time `json:"at"`
	}
	if json.Unmarshal(f.Meta, &stored) != nil {
		return time.Time{}
	}
	return stored.At
}

// mayKeep reports whether an event is of a stream that keeps records.
func mayKeep(r eventstore.Recorded) bool {
	category := stream.Category(r.Stream)
	return !r.System() && (category == stream.Records || category == stream.Deletion)
}

// keeps returns how many records an event keeps.
func keeps(f eventstore.DecodedEvent) int {
	switch e := f.Event.(type) {
	case *audit.RecordsKept:
		return len(e.Records)
	case *deletion.FactsKept:
		return len(e.Records) + len(e.MemoryRecords)
	}
	return 0
}

// keptIn adds the leaves that an event keeps, of events after a position and not after another. Their own times are not
// known, so that of the event stands for them.
func keptIn(to []leaf, f eventstore.DecodedEvent, before eventstore.Position) []leaf {
	add := func(organization uuid.UUID, list audit.KeptList) {
		for _, k := range list {
			if k.Position <= uint64(before) {
				to = append(to, leaf{int64(k.Position), organization, max(timeOf(f).UnixMicro(), 1), k.Record})
			}
		}
	}
	switch e := f.Event.(type) {
	case *audit.RecordsKept:
		add(e.OrganizationID, e.Records)
	case *deletion.FactsKept:
		add(e.OrganizationID, e.Records)
		add(e.OrganizationID, e.MemoryRecords)
	}
	return to
}
