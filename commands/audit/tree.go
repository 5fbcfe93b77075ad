// Package audit signs checkpoints of the audit trees, and copies them to where the operator of the service cannot
// change them: to an anchor, and to witnesses.
package audit

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/eventstore"
)

// Tree is the state of the tree of an organization, zero for that of the deployment.
type Tree struct {
	Organization uuid.UUID
	// Size is how many leaves it has, Position that of the event of the last one.
	Size     int64
	Position eventstore.Position
	// Since is the time of the first event that no checkpoint covers, those of checkpoints aside.
	Since time.Time
	// Origin and Verifiers are those of the newest origin, its keys in their order. "" and none before the first key.
	Origin    string
	Verifiers []string
	// Checkpoint is the newest signed note, with the signatures of witnesses that came since, and CheckpointSize its
	// size. "" and 0 before the first.
	Checkpoint     string
	CheckpointSize int64
}

// Trees read the trees, which the projection audit keeps.
type Trees interface {
	Tree(ctx context.Context, organization uuid.UUID) (t Tree, ok bool, err error)
	// Trees returns at most limit trees after that of an organization, by id; nil is before the first.
	Trees(ctx context.Context, after *uuid.UUID, limit int) ([]Tree, error)
	// Due returns at most limit trees with something that no checkpoint covers, those that wait longest first.
	Due(ctx context.Context, limit int) ([]Tree, error)
	Reader(ctx context.Context, organization uuid.UUID) tlog.HashReader
	// Tile returns a tile of C2SP tlog-tiles; level -1 is the entries. ok is false if the tree is smaller.
	Tile(ctx context.Context, organization uuid.UUID, level int, n int64, width int) (tile []byte, ok bool, err error)
}

// parse reads a checkpoint without a look at its signatures.
func parse(signed string) (c log.Checkpoint, root tlog.Hash, err error) {
	if _, err := c.Unmarshal([]byte(signed)); err != nil {
		return c, root, err
	}
	if copy(root[:], c.Hash) != len(c.Hash) || len(c.Hash) != tlog.HashSize {
		return c, root, fmt.Errorf("the root of a checkpoint has %d bytes", len(c.Hash))
	}
	return c, root, nil
}

// sign makes a checkpoint. The name of each key is the origin.
func sign(origin string, size int64, root tlog.Hash, keys []note.Signer) ([]byte, error) {
	text := log.Checkpoint{Origin: origin, Size: uint64(size), Hash: bytes.Clone(root[:])}.Marshal()
	return note.Sign(&note.Note{Text: string(text)}, keys...)
}
