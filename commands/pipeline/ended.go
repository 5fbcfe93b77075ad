package pipeline

import (
	"context"
	"errors"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

// endedElsewhere is the message of an item that cannot be derived since a stream of its data point is tombstoned.
const endedElsewhere = "somebody else deleted a stream of the data point in the event store: nothing can be derived"

// failEnded ends an item that met a tombstone. Erasure tombstones the streams of a data point after its deletion, and
// no item waits for that; before, somebody else did. The stream of the memories may take no event any more, so the
// failure is recorded in the stream of the send.
func (w *Worker) failEnded(ctx context.Context, item work.Item) (res result, err error) {
	res.dataPoint = item.DataPoint
	last, _, err := w.Journal.Last(ctx, stream.Name(stream.DataPoint, item.DataPoint))
	if _, deleted := last.Event.(*datapoint.Deleted); deleted {
		return res, nil
	}
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return res, err
	}
	failed := w.failed(item, item.Attempt+1, &Failure{Code: ingestion.Internal, Message: endedElsewhere})
	name, at := stream.Name(stream.Ingestion, item.IngestionID), eventstore.NoStream
	meta := event.NewMeta("pipeline", w.Now()).Of(item.IngestionID)
	for {
		done, err := w.Journal.Append(ctx, name, at, meta, failed)
		if !errors.Is(err, eventstore.ErrConflict) {
			res.position = done.Position
			return res, err
		}
		last, _, err := w.Journal.Last(ctx, name)
		if err != nil {
			return res, err
		}
		if e, is := last.Event.(*memory.Failed); is && e.Ordinal == item.Ordinal && e.Round == item.Round {
			res.position = last.Position // by another worker
			return res, nil
		}
		at = last.Revision
	}
}
