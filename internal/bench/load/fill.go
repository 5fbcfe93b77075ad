package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	domainmemory "github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Fill writes single sends and their derived memories to the log, as fast as the event store
// accepts them: a million texts would take an hour through the API. The service itself records
// that they are searchable, once it runs. No service may run on the log during a Fill.
type Fill struct {
	Store eventstore.Store
	Codec *eventstore.Codec
	// Project and Namespace are those of the project of the texts.
	Project, Namespace uuid.UUID
	// Words is the length of each text, Callers how many append at once.
	Words, Callers int
}

// fillChunk is how many texts a caller makes from one seed.
const fillChunk = 1000

// Run writes the texts from and up to, exclusive. Each occurred a minute after the one before, as
// in Batches.
func (f Fill) Run(ctx context.Context, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	group, ctx := errgroup.WithContext(ctx)
	for range f.Callers {
		group.Go(func() error {
			for {
				start := int(next.Add(fillChunk)) - fillChunk
				if start >= to {
					return nil
				}
				texts := NewTexts(uint64(start) + 50_000)
				for n := start; n < min(start+fillChunk, to); n++ {
					if err := f.send(ctx, n, texts.Text(f.Words)); err != nil {
						return fmt.Errorf("text %d: %w", n, err)
					}
				}
			}
		})
	}
	return group.Wait()
}

// send writes one send and its derivation.
func (f Fill) send(ctx context.Context, n int, text string) error {
	source := fmt.Sprintf("fill/%d", n)
	id, now, occurred := stream.DataPointID(f.Namespace, source), time.Now().UTC().Truncate(time.Microsecond), epoch.Add(
		time.Duration(n)*time.Minute,
	)
	send := datapoint.Send{
		ProjectID: f.Project, IngestionID: uuid.New(), Items: 1, AcceptedAt: now, RequestID: uuid.New(),
		Bytes: int64(len(text)), CreditTenths: 10, Month: now.Format("2006-01"),
	}
	ingest := datapoint.Ingest{
		Send: send, Author: identity, SourceID: source, ContentDigest: datapoint.Digest([]byte(text)),
		Content: datapoint.Text{Inline: text}, OccurredAt: &occurred,
	}
	accepted := datapoint.Base{}.Decide(ingest).Event(ingest, nil)
	derived := domainmemory.Derived{
		ProjectID: f.Project, IngestionID: send.IngestionID, Revision: 1, Extractor: comprehend.Extractor,
		DerivedAt: now, OccurredAt: occurred,
		Memories: comprehend.Extract(
			comprehend.Input{DataPoint: id, Revision: 1, Content: text, Author: identity, OccurredAt: occurred},
		),
	}
	for _, a := range []struct {
		stream string
		events []event.Event
	}{
		{stream.Name(stream.DataPoint, id), []event.Event{accepted}},
		{stream.Name(stream.Memory, id), []event.Event{derived}},
	} {
		proposed, err := f.Codec.EncodeAll(a.events,
			event.NewMeta("bench", now).Of(send.IngestionID))
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if _, err := eventstore.AppendUntilKnown(ctx, f.Store, a.stream, eventstore.NoStream, proposed); err != nil {
			return fmt.Errorf("append to %s: %w", a.stream, err)
		}
	}
	return nil
}
