package history

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Principals are some principals of events as people read them, by how the events have them.
func (q Reader) Principals(ctx context.Context, texts []string) (map[string]Principal, error) {
	n := &namer{asked: map[string]map[string]struct{}{}}
	for _, text := range texts {
		n.principal(text)
	}
	if err := q.find(ctx, n); err != nil {
		return nil, err
	}
	named := map[string]Principal{}
	for _, text := range texts {
		named[text] = n.principal(text)
	}
	return named, nil
}

// maxSends is how many events of a data point are read to find one of its sends.
const maxSends = 64

// SentBy is who sent something: a batch, or the send of one text that brought a revision of a data point. ok is false
// if it is not known: the event left the log with the text.
func (q Reader) SentBy(ctx context.Context, send, dataPoint uuid.UUID) (by Principal, ok bool, err error) {
	principal, err := q.principalOf(ctx, stream.Name(stream.Ingestion, send), eventstore.Forwards, uuid.Nil)
	if err == nil && principal == "" && dataPoint != uuid.Nil {
		principal, err = q.principalOf(ctx, stream.Name(stream.DataPoint, dataPoint), eventstore.Backwards, send)
	}
	if err != nil || principal == "" {
		return by, false, err
	}
	named, err := q.Principals(ctx, []string{principal})
	return named[principal], err == nil, err
}

// principalOf is who caused the first event of a stream that is of a send, from one of its ends; zero is any send.
func (q Reader) principalOf(
	ctx context.Context, name string, direction eventstore.Direction, send uuid.UUID,
) (string, error) {
	from, most := eventstore.Revision(0), 1
	if direction == eventstore.Backwards {
		from, most = eventstore.EndOfStream, maxSends
	}
	list, err := q.Log.Read(ctx, name, from, direction, most)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return "", err
	}
	for _, r := range list {
		var of struct {
			IngestionID uuid.UUID `json:"ingestionId"`
		}
		var meta event.Meta
		if json.Unmarshal(r.Data, &of) != nil || json.Unmarshal(r.Meta, &meta) != nil {
			continue // an operator set it aside
		}
		if send == uuid.Nil || of.IngestionID == send {
			return meta.Principal, nil
		}
	}
	return "", nil
}
