package audittest

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/audit"
)

// Key signs the checkpoints of an origin.
type Key struct {
	Origin, Verifier string
	Signer           note.Signer
}

// NewKey makes the key of a number of the origins of a tree.
func (l *Log) NewKey(organization uuid.UUID, number int) Key {
	l.t.Helper()
	origin := domain.Origin(uuid.NewSHA1(uuid.Nil, []byte("log")), organization, number)
	seed := make([]byte, ed25519.SeedSize)
	for n := range seed {
		seed[n] = byte(l.ids.Uint32())
	}
	private, verifier, err := note.GenerateKey(strings.NewReader(string(seed)), origin)
	if err != nil {
		l.t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		l.t.Fatal(err)
	}
	return Key{origin, verifier, signer}
}

// AddKey appends the event of a key of a tree.
func (l *Log) AddKey(organization uuid.UUID, key Key, former string) {
	l.t.Helper()
	l.Append(organization, stream.Name(stream.Audit, organization), domain.KeyAdded{
		OrganizationID: organization, Origin: key.Origin, Verifier: key.Verifier, Former: former,
	})
}

// Sign signs a checkpoint of the first leaves of a tree.
func (l *Log) Sign(organization uuid.UUID, key Key, size int64) string {
	l.t.Helper()
	root := l.Root(organization, size)
	text := fmt.Sprintf("%s\n%d\n%s\n", key.Origin, size, base64.StdEncoding.EncodeToString(root[:]))
	signed, err := note.Sign(&note.Note{Text: text}, key.Signer)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(signed)
}

// Checkpoint appends a checkpoint of all leaves of a tree but the last ones, of no fewer than that before.
func (l *Log) Checkpoint(organization uuid.UUID, key Key, but int64) (signed string) {
	l.t.Helper()
	size := max(int64(len(l.Leaves[organization]))-but, l.signed[key.Origin])
	l.signed[key.Origin] = size
	signed = l.Sign(organization, key, size)
	l.Append(organization, stream.Name(stream.Audit, organization),
		domain.CheckpointSigned{OrganizationID: organization, Size: size, Note: signed})
	return signed
}

// Tree is a tree in memory, each part of which may be damaged.
type Tree struct {
	audit.Tree
	Leaves []audit.Leaf
	// Tiles are those above level 0, by level and number.
	Tiles map[[2]int64][]byte
}

// Trees are trees in memory, as audit.Queries has them.
type Trees map[uuid.UUID]*Tree

// Built returns the trees of a log.
func (l *Log) Built() Trees {
	trees := Trees{}
	for organization, leaves := range l.Leaves {
		t := &Tree{Tree: audit.Tree{Organization: organization, Size: int64(len(leaves))}, Tiles: map[[2]int64][]byte{}}
		for _, leaf := range leaves {
			t.Leaves = append(t.Leaves, audit.Leaf{Position: leaf.Position, Record: leaf.Record})
			t.Position = leaf.Position
			switch e := l.Codec.DecodeRecorded(leaf.Recorded).Event.(type) {
			case *domain.KeyAdded:
				t.Origin, t.Checkpoint, t.CheckpointSize = e.Origin, "", 0
			case *domain.CheckpointSigned:
				t.Checkpoint, t.CheckpointSize = e.Note, e.Size
			}
		}
		trees[organization] = t
		for _, tile := range tlog.NewTiles(8, 0, t.Size) {
			if tile.L == 0 {
				continue
			}
			data, err := tlog.ReadTileData(tile, trees.Reader(context.Background(), organization))
			if err != nil {
				l.t.Fatal(err)
			}
			t.Tiles[[2]int64{int64(tile.L), tile.N}] = data
		}
	}
	return trees
}

// Clone returns trees that may be damaged without the others.
func (s Trees) Clone() Trees {
	clone := Trees{}
	for organization, t := range s {
		c := *t
		c.Leaves, c.Tiles = slices.Clone(t.Leaves), map[[2]int64][]byte{}
		for key, tile := range t.Tiles {
			c.Tiles[key] = slices.Clone(tile)
		}
		clone[organization] = &c
	}
	return clone
}

// Trees is that of audit.Queries.
func (s Trees) Trees(_ context.Context, after *uuid.UUID, limit int) (list []audit.Tree, err error) {
	ids := slices.SortedFunc(maps.Keys(s), func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	for _, id := range ids {
		if (after == nil || id.String() > after.String()) && len(list) < limit && s[id].Size > 0 {
			list = append(list, s[id].Tree)
		}
	}
	return list, nil
}

// Leaves is that of audit.Queries.
func (s Trees) Leaves(_ context.Context, organization uuid.UUID, from, to int64) ([]audit.Leaf, error) {
	all := s[organization].Leaves
	from, to = min(from, int64(len(all))), min(to, from+256, int64(len(all)))
	return slices.Clone(all[from:max(to, from)]), nil
}

// At is that of audit.Queries.
func (s Trees) At(
	_ context.Context, organization uuid.UUID, positions []eventstore.Position,
) (map[eventstore.Position]audit.Placed, error) {
	found := map[eventstore.Position]audit.Placed{}
	tree, is := s[organization]
	if !is {
		return found, nil
	}
	for n, leaf := range tree.Leaves {
		if slices.Contains(positions, leaf.Position) {
			found[leaf.Position] = audit.Placed{Index: int64(n), Record: leaf.Record}
		}
	}
	return found, nil
}

// Tile is that of audit.Queries, above level 0.
func (s Trees) Tile(_ context.Context, organization uuid.UUID, level int, n int64, width int) ([]byte, bool, error) {
	tile := s[organization].Tiles[[2]int64{int64(level), n}]
	if len(tile) < width*tlog.HashSize {
		return nil, false, nil
	}
	return tile[:width*tlog.HashSize], true, nil
}

// Reader is that of audit.Queries, but of leaves alone.
func (s Trees) Reader(_ context.Context, organization uuid.UUID) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		var stored []tlog.Hash
		reader := tlog.HashReaderFunc(func(at []int64) (list []tlog.Hash, err error) {
			for _, n := range at {
				list = append(list, stored[n])
			}
			return list, nil
		})
		for n, leaf := range s[organization].Leaves {
			more, err := tlog.StoredHashes(int64(n), leaf.Record[:], reader)
			if err != nil {
				return nil, err
			}
			stored = append(stored, more...)
		}
		for _, n := range indexes {
			if n >= int64(len(stored)) {
				return nil, errors.New("the tree is smaller")
			}
			hashes = append(hashes, stored[n])
		}
		return hashes, nil
	})
}

// Draw draws what a test of the log decides.
func (l *Log) Draw() *rand.Rand { return l.drawn }
