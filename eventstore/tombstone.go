package eventstore

import (
	"context"
	"errors"
)

// Tombstone ends a stream at whatever revision it has, so that it can never be written again. done
// is false if the stream is tombstoned already, or if it has no events, in which case it stays as
// it is.
func (j Journal) Tombstone(ctx context.Context, stream string) (done bool, err error) {
	return j.tombstone(ctx, stream, false)
}

// TombstoneEvenEmpty is Tombstone that also ends a stream without events, so that no append can
// begin it later.
func (j Journal) TombstoneEvenEmpty(ctx context.Context, stream string) (done bool, err error) {
	return j.tombstone(ctx, stream, true)
}

func (j Journal) tombstone(ctx context.Context, stream string, empty bool) (done bool, err error) {
	for {
		last, ok, err := j.Store.ReadLast(ctx, stream)
		if errors.Is(err, ErrDeleted) || (err == nil && !ok && !empty) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at := NoStream
		if ok {
			at = last.Revision
		}
		_, err = j.Store.Tombstone(ctx, stream, at)
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
