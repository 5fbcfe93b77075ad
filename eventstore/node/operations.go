package node

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// Stats counts what the node wrote since it started.
type Stats = storage.Stats

// Stats returns the counts so far.
func (n *Node) Stats() Stats { return n.engine.Stats() }

// Space is what the disk of the log has left.
type Space = storage.Space

// Space returns what the disk of the log has left.
func (n *Node) Space() Space { return n.engine.Space() }

// Failed is closed once the node can no longer write: see storage.Engine.Failed.
func (n *Node) Failed() <-chan struct{} { return n.engine.Failed() }

// Err returns the reason why Failed was closed; nil before.
func (n *Node) Err() error { return n.engine.Err() }

// Scavenge removes what was deleted before the call from the log and from its files: see
// storage.Engine.Scavenge.
func (n *Node) Scavenge(ctx context.Context) error { return n.engine.Scavenge(ctx) }

// Backup writes the log as of one moment into an empty folder while calls continue: see
// storage.Engine.Backup.
func (n *Node) Backup(ctx context.Context, dir string) error { return n.engine.Backup(ctx, dir) }

// Restore fills an empty folder with the log of a backup: see storage.Restore.
func Restore(ctx context.Context, backup, dir string) error {
	return storage.Restore(ctx, vfs.Default, backup, dir)
}

// BackedUp returns the position of the newest event in a backup.
func BackedUp(backup string) (position uint64, err error) {
	return storage.BackedUp(vfs.Default, backup)
}
