// Package audit builds the trees of the audit log: one for each organization, and one of the deployment for the events
// of none. A leaf is the record of an event (docs/leaf.md), in the order of the log.
package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/eventstore"
)

// Tree is the state of the tree of an organization, zero for that of the deployment.
type Tree struct {
	Organization uuid.UUID
	// Size is how many leaves it has, Position that of the event of the last one.
	Size     int64
	Position eventstore.Position
	// Happened is the size up to the last leaf that is of no stream of category audit, since checkpoints alone are no
	// reason for another one. Since is the time of the first such leaf that no checkpoint covers, zero if there is none.
	Happened int64
	Since    time.Time
	// Origin and Verifiers are those of the newest origin, its keys in their order. "" and none before the first key. An
	// origin begins without a checkpoint: one of the origin before it is no longer here.
	Origin    string
	Verifiers []string
	// Checkpoint is the newest signed note, with the signatures of witnesses that came since, and CheckpointSize and
	// CheckpointAt its size and the time of its event. Cosigned is the newest one with a signature of a witness.
	Checkpoint     string
	CheckpointSize int64
	CheckpointAt   time.Time
	Cosigned       string
	CosignedSize   int64
	CosignedAt     time.Time
}

// Queries read the trees.
type Queries struct{ DB *pgxpool.Pool }

const treeColumns = `select organization_id, size, position, happened, since, origin, verifiers, checkpoint,
	checkpoint_size, case when checkpoint <> '' then checkpoint_at end, cosigned, cosigned_size, cosigned_at
	from audit.trees where size > 0 `

// trees reads trees by what follows the condition that they have leaves.
func (q Queries) trees(ctx context.Context, sql string, args ...any) ([]Tree, error) {
	rows, err := q.DB.Query(ctx, treeColumns+sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read trees: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Tree, err error) {
		var since, checkpoint, cosigned *time.Time
		err = row.Scan(&t.Organization, &t.Size, (*uint64)(&t.Position), &t.Happened, &since, &t.Origin, &t.Verifiers,
			&t.Checkpoint, &t.CheckpointSize, &checkpoint, &t.Cosigned, &t.CosignedSize, &cosigned)
		t.Since, t.CheckpointAt, t.CosignedAt = timeOrZero(since), timeOrZero(checkpoint), timeOrZero(cosigned)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read trees: %w", err)
	}
	return list, nil
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// Tree returns the tree of an organization. ok is false if it has no leaf.
func (q Queries) Tree(ctx context.Context, organization uuid.UUID) (t Tree, ok bool, err error) {
	list, err := q.trees(ctx, `and organization_id = $1`, organization)
	if err != nil || len(list) == 0 {
		return Tree{}, false, err
	}
	return list[0], true, nil
}

// Trees returns at most limit trees after that of an organization, by id; nil is before the first.
func (q Queries) Trees(ctx context.Context, after *uuid.UUID, limit int) ([]Tree, error) {
	return q.trees(ctx, `and ($1::uuid is null or organization_id > $1) order by organization_id limit $2`, after, limit)
}

// Due returns at most limit trees with something that no checkpoint covers, those that wait longest first.
func (q Queries) Due(ctx context.Context, limit int) ([]Tree, error) {
	return q.trees(ctx, `and since is not null order by since, organization_id limit $1`, limit)
}

// Waits reports whether a leaf of an event up to a position waits for its place. What is applied up to there has all
// places once it returns false.
func (q Queries) Waits(ctx context.Context, up eventstore.Position) (waits bool, err error) {
	// The first leaf of the oldest page that waits begins with its position.
	err = q.DB.QueryRow(ctx, `select coalesce((select ('x' || encode(substring(leaves from 1 for 8), 'hex'))::bit(64)::bigint
		from audit.pending order by position limit 1) <= $1, false)`, int64(up)).Scan(&waits)
	if err != nil {
		return false, fmt.Errorf("look for leaves that wait: %w", err)
	}
	return waits, nil
}

// errBeyond is returned for what a tree does not have.
var errBeyond = errors.New("the tree is smaller")

// packed reads the records of bundles, by level 0, and the hashes of tiles, in one round trip.
func (q Queries) packed(ctx context.Context, organization uuid.UUID, keys []tileKey) (map[tileKey][]byte, error) {
	found := map[tileKey][]byte{}
	b := &pgx.Batch{}
	add := func(sql string, args ...any) {
		b.Queue(sql, append([]any{organization}, args...)...).Query(func(rows pgx.Rows) error {
			var level int
			var n int64
			var bytes []byte
			_, err := pgx.ForEachRow(rows, []any{&level, &n, &bytes}, func() error {
				found[tileKey{organization, level, n}] = slices.Clone(bytes)
				return nil
			})
			return err
		})
	}
	var bundles, tiles []int64
	var levels []int32
	for _, k := range keys {
		if k.level == 0 {
			bundles = append(bundles, k.n)
		} else {
			levels, tiles = append(levels, int32(k.level)), append(tiles, k.n)
		}
	}
	if len(bundles) > 0 {
		add(`select 0, n, records from audit.bundles where organization_id = $1 and n = any($2::bigint[])`, bundles)
	}
	if len(tiles) > 0 {
		add(`select level, n, hashes from audit.tiles where organization_id = $1
			and (level, n) in (select * from unnest($2::int[], $3::bigint[]))`, levels, tiles)
	}
	if err := q.DB.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read tiles: %w", err)
	}
	return found, nil
}

// Reader returns the hashes of a tree, as package tlog asks for them.
func (q Queries) Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var keys []tileKey
		for _, index := range indexes {
			t := tlog.TileForIndex(height, index)
			if key := (tileKey{organization, t.L, t.N}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		tiles, err := q.packed(ctx, organization, keys)
		if err != nil {
			return nil, err
		}
		for key, records := range tiles {
			if key.level == 0 {
				tiles[key] = packHashes(recordHashes(records))
			}
		}
		hashes := make([]tlog.Hash, len(indexes))
		for n, index := range indexes {
			t := tlog.TileForIndex(height, index)
			data := tiles[tileKey{organization, t.L, t.N}]
			if len(data) < t.W*tlog.HashSize {
				return nil, errBeyond
			}
			if hashes[n], err = tlog.HashFromTile(t, data, index); err != nil {
				return nil, fmt.Errorf("read tile: %w", err)
			}
		}
		return hashes, nil
	})
}

func packHashes(hashes []tlog.Hash) []byte {
	packed := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		packed = append(packed, h[:]...)
	}
	return packed
}

// Tile returns the bytes of a tile of C2SP tlog-tiles: its level, -1 for entries, its number, and how many hashes or
// entries of it are asked for, 1 to 256. ok is false if the tree is smaller.
func (q Queries) Tile(
	ctx context.Context, organization uuid.UUID, level int, n int64, width int,
) (tile []byte, ok bool, err error) {
	key := tileKey{organization, max(level, 0), n}
	found, err := q.packed(ctx, organization, []tileKey{key})
	if err != nil || level < -1 || width < 1 || len(found[key]) < width*recordSize {
		return nil, false, err
	}
	packed := found[key][:width*recordSize]
	switch level {
	case 0:
		return packHashes(recordHashes(packed)), true, nil
	case -1:
		for ; len(packed) > 0; packed = packed[recordSize:] {
			tile = append(binary.BigEndian.AppendUint16(tile, uint16(recordSize)), packed[:recordSize]...)
		}
		return tile, true, nil
	}
	return packed, true, nil
}

// Leaf is a leaf with the position of its event in the log.
type Leaf struct {
	Position eventstore.Position
	Record   audit.Record
}

// maxLeaves is the most leaves that Leaves returns.
const maxLeaves = 4096

// Leaves returns the leaves of a tree from one on and before another, at most 4,096 of them.
func (q Queries) Leaves(ctx context.Context, organization uuid.UUID, from, to int64) ([]Leaf, error) {
	to = min(to, from+maxLeaves)
	rows, err := q.DB.Query(ctx, `select n, records, positions from audit.bundles
		where organization_id = $1 and n between $2 and $3 order by n`, organization, from/width, (to-1)/width)
	if err != nil {
		return nil, fmt.Errorf("read leaves: %w", err)
	}
	var list []Leaf
	var n int64
	var records, positions []byte
	_, err = pgx.ForEachRow(rows, []any{&n, &records, &positions}, func() error {
		for at := range min(len(records)/recordSize, len(positions)/positionSize) {
			if index := n*width + int64(at); index >= from && index < to {
				position := binary.BigEndian.Uint64(positions[at*positionSize:])
				list = append(list, Leaf{eventstore.Position(position), audit.Record(records[at*recordSize:])})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read leaves: %w", err)
	}
	return list, nil
}

// Placed is a leaf with its number in its tree.
type Placed struct {
	Index  int64
	Record audit.Record
}

// At returns the leaves of the events at positions. A position at which the tree has none is left out.
func (q Queries) At(
	ctx context.Context, organization uuid.UUID, positions []eventstore.Position,
) (map[eventstore.Position]Placed, error) {
	found := make(map[eventstore.Position]Placed, len(positions))
	wanted := make(map[eventstore.Position]bool, len(positions))
	places := make([]int64, len(positions))
	for n, at := range positions {
		wanted[at], places[n] = true, int64(at)
	}
	rows, err := q.DB.Query(ctx, `select n, records, positions from audit.bundles where organization_id = $1 and n in (
		select (select n from audit.bundles where organization_id = $1 and first_position <= place
			order by first_position desc limit 1) from unnest($2::bigint[]) place)`, organization, places)
	if err != nil {
		return nil, fmt.Errorf("find leaves of events: %w", err)
	}
	var n int64
	var records, packed []byte
	_, err = pgx.ForEachRow(rows, []any{&n, &records, &packed}, func() error {
		for i := range min(len(packed)/positionSize, len(records)/recordSize) {
			if at := eventstore.Position(binary.BigEndian.Uint64(packed[i*positionSize:])); wanted[at] {
				found[at] = Placed{n*width + int64(i), audit.Record(records[i*recordSize:])}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find leaves of events: %w", err)
	}
	return found, nil
}

// IndexOf returns the number of the leaf of the event at a position. ok is false if the tree has none.
func (q Queries) IndexOf(
	ctx context.Context, organization uuid.UUID, at eventstore.Position,
) (n int64, ok bool, err error) {
	found, err := q.At(ctx, organization, []eventstore.Position{at})
	leaf, ok := found[at]
	return leaf.Index, ok, err
}
