package erasure

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// deletionRecord is a deletion as its stream records it.
type deletionRecord struct {
	deletion.State
	id uuid.UUID
}

// last is the stream revision of the last event, NoStream if there is no such deletion.
func (r *deletionRecord) last() eventstore.Revision { return eventstore.Revision(r.Events) - 1 }

// readDeletion reads the stream of a deletion.
func (s Streams) readDeletion(ctx context.Context, id uuid.UUID) (*deletionRecord, error) {
	r := &deletionRecord{id: id}
	err := s.Journal.Scan(ctx, stream.Name(stream.Deletion, id), 0, func(e eventstore.DecodedEvent) (bool, error) {
		r.Evolve(e.Event)
		return true, nil
	})
	return r, err
}

// readSend reads the stream of a send. It is the zero value if the send has none.
func (s Streams) readSend(ctx context.Context, send uuid.UUID) (state ingestion.State, err error) {
	events, err := s.Journal.ReadFrom(ctx, stream.Name(stream.Ingestion, send), 0)
	for _, e := range events {
		state.Evolve(e.Event)
	}
	return state, err
}
