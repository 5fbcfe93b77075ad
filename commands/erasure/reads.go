package erasure

import (
	"context"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/work"
)

// EndReads tombstones the stream of the read records of a day, once the records of its events are kept. No process
// appends to it any more: its day is long over.
func (s Streams) EndReads(ctx context.Context, d work.ReadsDay) error {
	_, err := s.end(ctx, Owner{d.OrganizationID, d.ProjectID}, stream.ReadsName(d.ProjectID, d.Day), 0)
	return err
}
