package runner

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
)

// Measures the runtime itself: events of no projector, and events of one projector of two.
func BenchmarkCatchUp(b *testing.B) {
	for _, family := range []string{"plum", "apple"} {
		b.Run(family, func(b *testing.B) {
			w := newWorld(b)
			var last eventstore.Position
			data, err := json.Marshal(added{N: 1})
			if err != nil {
				b.Fatal(err)
			}
			meta, err := json.Marshal(event.Meta{Schema: event.FirstStep})
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; n < b.N; n += 100 {
				events := make([]eventstore.Proposed, 100)
				for i := range events {
					events[i] = eventstore.Proposed{ID: uuid.New(), Type: added{}.EventType(), Data: data, Meta: meta}
				}
				done, err := w.store.Append(b.Context(), fmt.Sprintf("%s-%d", family, n), eventstore.NoStream, events)
				if err != nil {
					b.Fatal(err)
				}
				last = done.Position
			}
			rt := w.runtime(b, nil, quick{tally{family: "apple"}}, quick{tally{family: "pear"}})
			b.ResetTimer()
			stop := run(b, rt)
			mustWait(b, rt.Waiter(), last, "apples", "pears")
			b.StopTimer()
			stop()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
