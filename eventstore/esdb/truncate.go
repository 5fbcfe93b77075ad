package esdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// truncateBefore is the field of stream metadata with the revision before which the stream is
// truncated.
const truncateBefore = "$tb"

// Truncate implements eventstore.Store. It writes the stream metadata at the revision that it
// read, so that a lower truncation never replaces a higher one. While other writers change the
// metadata first, it repeats that until the context ends.
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
	for pause := backoff.Conflict(); ; {
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
				return fmt.Errorf("%s: its metadata is not a JSON object", what)
			}
		}
		if current, err := truncatedBefore(fields); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		} else if current >= before {
			return nil
		}
		fields[truncateBefore] = json.RawMessage(fmt.Sprint(before))
		data, err := json.Marshal(fields)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		_, err = s.Append(ctx, metadata, at,
			[]eventstore.Proposed{{ID: uuid.New(), Type: eventstore.MetadataType, Data: data}})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return fmt.Errorf("%s: %w: its metadata changed at each try: %w", what, eventstore.ErrUnavailable, ended)
		}
	}
}

// Restore implements eventstore.Store. While other writers change the metadata first, it repeats that until the context
// ends.
func (s *Store) Restore(ctx context.Context, stream string) (hidden bool, err error) {
	what := "restore " + stream
	metadata := "$$" + stream
	for pause := backoff.Conflict(); ; {
		stored, ok, err := s.ReadLast(ctx, metadata)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		if !ok {
			return false, nil
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(stored.Data, &fields); err != nil {
			return false, fmt.Errorf("%s: its metadata: %w", what, err)
		}
		n := len(fields)
		for _, name := range []string{truncateBefore, "$maxAge", "$maxCount"} {
			delete(fields, name)
		}
		if len(fields) == n {
			return false, nil
		}
		data, err := json.Marshal(fields)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		_, err = s.Append(ctx, metadata, stored.Revision,
			[]eventstore.Proposed{{ID: uuid.New(), Type: eventstore.MetadataType, Data: data}})
		if !errors.Is(err, eventstore.ErrConflict) {
			return err == nil, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return false, fmt.Errorf("%s: %w: its metadata changed at each try: %w", what, eventstore.ErrUnavailable, ended)
		}
	}
}

// truncatedBefore returns the revision before which metadata truncates its stream, 0 if it does
// not.
func truncatedBefore(fields map[string]json.RawMessage) (eventstore.Revision, error) {
	raw, ok := fields[truncateBefore]
	if !ok {
		return 0, nil
	}
	var before eventstore.Revision
	if err := json.Unmarshal(raw, &before); err != nil {
		return 0, fmt.Errorf("%s of its metadata: %w", truncateBefore, err)
	}
	return before, nil
}
