package node

import (
	"context"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
)

// Delete hides a stream until it is written again.
func (s *service) Delete(ctx context.Context, in *streams.DeleteReq) (*streams.DeleteResp, error) {
	o := in.GetOptions()
	r := &request{kind: kindDelete, stream: string(o.GetStreamIdentifier().GetStreamName())}
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.DeleteReq_Options_Revision:
		r.expected = exact(e.Revision)
	case *streams.DeleteReq_Options_NoStream:
		r.expected = expectation{revision: noStream}
	case *streams.DeleteReq_Options_Any:
		r.expected.kind = expectAny
	case *streams.DeleteReq_Options_StreamExists:
		r.expected.kind = expectExists
	default:
		return nil, s.node.failUnary(ctx, errInvalid("a delete says which revision it expects"))
	}
	position, err := s.end(ctx, r)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{
		Position: &streams.DeleteResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// Tombstone ends a stream for ever.
func (s *service) Tombstone(ctx context.Context, in *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	o := in.GetOptions()
	r := &request{kind: kindTombstone, stream: string(o.GetStreamIdentifier().GetStreamName())}
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.TombstoneReq_Options_Revision:
		r.expected = exact(e.Revision)
	case *streams.TombstoneReq_Options_NoStream:
		r.expected = expectation{revision: noStream}
	case *streams.TombstoneReq_Options_Any:
		r.expected.kind = expectAny
	case *streams.TombstoneReq_Options_StreamExists:
		r.expected.kind = expectExists
	default:
		return nil, s.node.failUnary(ctx, errInvalid("a tombstone says which revision it expects"))
	}
	position, err := s.end(ctx, r)
	if err != nil {
		return nil, s.node.failUnary(ctx, err)
	}
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_Position_{
		Position: &streams.TombstoneResp_Position{CommitPosition: position, PreparePosition: position},
	}}, nil
}

// end deletes or entombs a stream.
func (s *service) end(ctx context.Context, r *request) (uint64, error) {
	if err := writable(r.stream); err != nil {
		return 0, err
	}
	if isMeta(r.stream) {
		return 0, errInvalid("metadata is not deleted but written anew")
	}
	d, err := s.node.writer.do(ctx, r)
	if err != nil {
		return 0, err
	}
	switch d.verdict {
	case streamDeleted:
		return 0, errStreamDeleted(r.stream)
	case wrongVersion:
		return 0, errWrongVersion(r.stream, r.expected, d.revision)
	default:
		return d.position, nil
	}
}
