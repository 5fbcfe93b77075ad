package server

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/sharedread"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/directory"
)

// sharedKeys looks up the keys of projects that calls bring at the same time with one statement. It caches none, since
// another process could revoke it.
type sharedKeys struct {
	access.Queries
	reads *sharedread.Reads[[32]byte, access.ProjectKey]
}

func newSharedKeys(queries access.Queries, logger *slog.Logger) sharedKeys {
	return sharedKeys{queries, sharedread.New(logger, queries.ProjectKeys)}
}

// KeyByHash implements auth.Keys.
func (k sharedKeys) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	if kind != auth.ProjectKey {
		return k.Queries.KeyByHash(ctx, kind, hash)
	}
	found, err := k.reads.Get(ctx, hash)
	if err != nil {
		return auth.Holder{}, false, err
	}
	key, ok := found[hash]
	return key.Holder, ok && key.Err == nil, key.Err
}

// sharedRecords looks up the identity records of the authors of sends that come at the same time with one statement.
type sharedRecords struct {
	directory *directory.Queries
	reads     *sharedread.Reads[directory.Record, struct{}]
}

func newSharedRecords(queries *directory.Queries, logger *slog.Logger) sharedRecords {
	return sharedRecords{queries, sharedread.New(logger, queries.KnownRecords)}
}

// mostShared is the most records of one call that are looked up with those of others.
const mostShared = 16

// Known implements commands.Records.
func (r sharedRecords) Known(
	ctx context.Context, project auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]struct{}, error) {
	if len(ids) > mostShared {
		return r.directory.Known(ctx, project, ids)
	}
	records := make([]directory.Record, len(ids))
	for n, id := range ids {
		records[n] = directory.Record{ProjectID: project.ID, ID: id}
	}
	found, err := r.reads.Get(ctx, records...)
	if err != nil {
		return nil, err
	}
	known := make(map[uuid.UUID]struct{}, len(ids))
	for n, record := range records {
		if _, is := found[record]; is {
			known[ids[n]] = struct{}{}
		}
	}
	return known, nil
}
