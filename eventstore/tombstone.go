package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/annals-project/annals/domain/stream"
)

// TombstoneBlob ends the stream of a blob at whatever revision it has, so that it can never be written
// again. done is false if it is tombstoned already, or if it has no events, in which case it stays as
// it is.
//
// It refuses other streams: before their events leave the log, their records are kept.
func (j Journal) TombstoneBlob(ctx context.Context, name string) (done bool, err error) {
	if stream.Category(name) != stream.Blob {
		return false, fmt.Errorf("tombstone %s: it is no blob", name)
	}
	for {
		last, ok, err := j.Store.ReadLast(ctx, name)
		if errors.Is(err, ErrDeleted) || (err == nil && !ok) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		_, err = j.Store.Tombstone(ctx, name, last.Revision)
		if errors.Is(err, ErrDeleted) {
			return false, nil
		}
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			return false, err
		}
	}
}
