package esdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// truncateBefore is the field of a stream's metadata that says before which revision it is cut off.
const truncateBefore = "$tb"

// Truncate implements eventstore.Store. What is cut off stands in the metadata of the stream, which is a stream too: it is written
// at the revision that was read, so that of two at once the lower never comes behind the higher.
func (s *Store) Truncate(ctx context.Context, stream string, before eventstore.Revision) error {
	what := fmt.Sprintf("truncate %s before %d", stream, before)
	last, ok, err := s.ReadLast(ctx, stream)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !ok || before < 0 || before > last.Revision {
		return fmt.Errorf("%s: %w", what, eventstore.ErrConflict)
	}
	metadata := "$$" + stream
	for {
		stored, ok, err := s.ReadLast(ctx, metadata)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		at, fields := eventstore.NoStream, map[string]json.RawMessage{}
		if ok {
			at = stored.Revision
			if err := json.Unmarshal(stored.Data, &fields); err != nil {
				return fmt.Errorf("%s: its metadata: %w", what, err)
			}
			if fields == nil {
				return fmt.Errorf("%s: its metadata is no object", what)
			}
		}
		if cut, err := cutOff(fields); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		} else if cut >= before {
			return nil
		}
		fields[truncateBefore] = json.RawMessage(fmt.Sprint(before))
		data, err := json.Marshal(fields)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		_, err = s.Append(ctx, metadata, at, []eventstore.Proposed{{ID: uuid.New(), Type: eventstore.MetadataType, Data: data}})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
	}
}

// cutOff is the revision before which metadata says that its stream is cut off, 0 for nothing.
func cutOff(fields map[string]json.RawMessage) (eventstore.Revision, error) {
	raw, ok := fields[truncateBefore]
	if !ok {
		return 0, nil
	}
	var cut eventstore.Revision
	if err := json.Unmarshal(raw, &cut); err != nil {
		return 0, fmt.Errorf("%s of its metadata: %w", truncateBefore, err)
	}
	return cut, nil
}
