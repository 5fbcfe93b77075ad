package feed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

func accepted(b testing.TB, codec *eventstore.Codec) eventstore.Proposed {
	b.Helper()
	p, err := codec.Encode(&datapoint.RevisionAccepted{
		Send: datapoint.Send{
			ProjectID:   uuid.New(),
			IngestionID: uuid.New(),
			Items:       1,
			AcceptedAt:  later,
			RequestID:   uuid.New(),
			Bytes:       300,
			Month:       "2026-11",
		},
		States: datapoint.States{Effect: datapoint.State{
			SourceID: "bench", Revision: 1, LastNumber: 1, Content: strings.Repeat("0", 64), OccurredAt: later, IngestionID: uuid.New(),
		}},
		Body: datapoint.Body{Content: datapoint.Text{Inline: strings.Repeat("memory ", 43)}},
	}, 0, event.NewMeta("key:bench", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func noCheckpoint(context.Context, string) (eventstore.Position, error) { return 0, nil }

// BenchmarkReplay measures how many events a second topics read from the beginning if they apply
// none.
func BenchmarkReplay(b *testing.B) {
	const total, each = 100_000, 500
	store, codec := newNode(b, nil)
	for range total / each {
		events := make([]eventstore.Proposed, each)
		for i := range events {
			events[i] = accepted(b, codec)
		}
		name := stream.Name(stream.DataPoint, uuid.New())
		if _, err := store.Append(b.Context(), name, eventstore.NoStream, events); err != nil {
			b.Fatal(err)
		}
	}
	for _, topics := range []int{1, 4} {
		b.Run(fmt.Sprint("topics=", topics), func(b *testing.B) {
			begun := time.Now()
			for b.Loop() {
				f := feed.New(store, codec, noCheckpoint, quiet())
				done := make(chan struct{}, topics)
				for i := range topics {
					messages, err := f.Subscribe(b.Context(), fmt.Sprint(i))
					if err != nil {
						b.Fatal(err)
					}
					go func() {
						n := 0
						for msg := range messages {
							page, _ := feed.PageOf(msg)
							msg.Ack()
							if n += len(page.Events); n >= total {
								break
							}
						}
						done <- struct{}{}
					}()
				}
				for range topics {
					<-done
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*total)/time.Since(begun).Seconds(), "events/s")
		})
	}
}

// BenchmarkLive measures the time from an append until a topic receives its page.
func BenchmarkLive(b *testing.B) {
	store, codec := newNode(b, nil)
	f := feed.New(store, codec, noCheckpoint, quiet())
	messages, err := f.Subscribe(b.Context(), "live")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		name, events := stream.Name(stream.DataPoint, uuid.New()), []eventstore.Proposed{accepted(b, codec)}
		if _, err := store.Append(b.Context(), name, eventstore.NoStream, events); err != nil {
			b.Fatal(err)
		}
		msg, _ := take(b.Context(), b, messages)
		msg.Ack()
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
