// Package audit builds the trees of the audit log: one for each organization, and one of the deployment for the events
// of none. A leaf is the record of an event (docs/leaf.md), in the order of the log.
package audit

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
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
	// Origin and Verifiers are those of the newest origin, its keys in their order. "" and none before the first key.
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

var errNotBuilt = errors.New("not built")

// Tree returns the tree of an organization. ok is false if it has no leaf.
func (q Queries) Tree(ctx context.Context, organization uuid.UUID) (t Tree, ok bool, err error) {
	return Tree{}, false, errNotBuilt
}

// Trees returns at most limit trees after that of an organization, by id; nil is before the first.
func (q Queries) Trees(ctx context.Context, after *uuid.UUID, limit int) ([]Tree, error) {
	return nil, errNotBuilt
}

// Due returns at most limit trees with something that no checkpoint covers, those that wait longest first.
func (q Queries) Due(ctx context.Context, limit int) ([]Tree, error) { return nil, errNotBuilt }

// Reader returns the hashes of a tree, as package tlog asks for them.
func (q Queries) Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader { return nil }

// Tile returns the bytes of a tile of C2SP tlog-tiles: its level, -1 for entries, its number, and how many hashes or
// entries of it are asked for, 1 to 256. ok is false if the tree is smaller.
func (q Queries) Tile(
	ctx context.Context, organization uuid.UUID, level int, n int64, width int,
) (tile []byte, ok bool, err error) {
	return nil, false, errNotBuilt
}

// Leaf is a leaf with the position of its event in the log.
type Leaf struct {
	Position eventstore.Position
	Record   audit.Record
}

// Leaves returns the leaves of a tree from one on and before another, at most 4,096 of them.
func (q Queries) Leaves(ctx context.Context, organization uuid.UUID, from, to int64) ([]Leaf, error) {
	return nil, errNotBuilt
}

// IndexOf returns the number of the leaf of the event at a position. ok is false if the tree has none.
func (q Queries) IndexOf(
	ctx context.Context, organization uuid.UUID, at eventstore.Position,
) (n int64, ok bool, err error) {
	return 0, false, errNotBuilt
}
