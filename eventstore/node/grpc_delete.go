package node

import (
	"context"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// Delete hides a stream until it is written again.
func (s *service) Delete(ctx context.Context, in *streams.DeleteReq) (*streams.DeleteResp, error) {
	o := in.GetOptions()
	if o.GetExpectedStreamRevision() == nil {
		return nil, s.node.failUnary(ctx, errInvalid("a delete must name the revision that it expects"))
	}
	expected, err := expectation(o)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	position, err := s.end(ctx, &storage.Request{
		Kind: storage.KindDelete, Stream: string(o.GetStreamIdentifier().GetStreamName()), Expected: expected,
	})
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{
		Position: &streams.DeleteResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// Tombstone ends a stream permanently.
func (s *service) Tombstone(ctx context.Context, in *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	o := in.GetOptions()
	if o.GetExpectedStreamRevision() == nil {
		return nil, s.node.failUnary(ctx, errInvalid("a tombstone must name the revision that it expects"))
	}
	expected, err := expectation(o)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	position, err := s.end(ctx, &storage.Request{
		Kind: storage.KindTombstone, Stream: string(o.GetStreamIdentifier().GetStreamName()), Expected: expected,
	})
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_Position_{
		Position: &streams.TombstoneResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// end deletes or tombstones a stream.
func (s *service) end(ctx context.Context, r *storage.Request) (uint64, error) {
	if err := writable(r.Stream); err != nil {
		return 0, err
	}
	d, err := s.node.engine.Do(ctx, r)
	if err != nil {
		return 0, err
	}
	switch d.Verdict {
	case storage.StreamDeleted:
		return 0, errStreamDeleted(r.Stream)
	case storage.MetastreamDeleted:
		return 0, errStreamDeleted(storage.MetaPrefix + r.Stream)
	case storage.WrongVersion:
		return 0, errWrongVersion(r.Stream, r.Expected, d.Revision)
	default:
		return d.Position, nil
	}
}
