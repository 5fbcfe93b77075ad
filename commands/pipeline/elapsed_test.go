package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
)

// unwell fails after so long by a clock that it moves itself.
type unwell struct {
	clock *time.Time
	takes []time.Duration
	asked int
}

func (*unwell) Name() string { return "unwell/1" }

func (u *unwell) Extract(context.Context, comprehend.Input) ([]memory.Memory, error) {
	*u.clock = u.clock.Add(u.takes[min(u.asked, len(u.takes)-1)])
	u.asked++
	return nil, &Failure{Code: ingestion.ModelUnavailable, Message: "status 500", Retryable: true}
}

func TestAttempts_EndWithinAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		takes []time.Duration
		asked int
		took  time.Duration
	}{
		"at once":           {[]time.Duration{0}, 5, 15 * time.Second},
		"slow":              {[]time.Duration{9 * time.Second}, 3, 30 * time.Second},
		"slowest":           {[]time.Duration{29 * time.Second}, 2, 59 * time.Second},
		"late":              {[]time.Duration{0, 0, 0, 0, 29 * time.Second}, 5, 44 * time.Second},
		"always hangs":      {[]time.Duration{30 * time.Second}, 5, 165 * time.Second},
		"hung at the first": {[]time.Duration{30 * time.Second, 0}, 5, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "text")
			clock := at
			model := &unwell{clock: &clock, takes: c.takes}
			b.Now, b.Extractor = func() time.Time { return clock }, model
			for {
				r := b.attempt()
				if r.backoff == 0 {
					break
				}
				clock = clock.Add(r.backoff)
			}
			facts := b.history()
			last, ok := facts[len(facts)-1].Event.(*memory.Failed)
			if !ok || !last.Final || last.Code != ingestion.ModelUnavailable {
				t.Errorf("the end: %+v", facts[len(facts)-1].Event)
			}
			if took := clock.Sub(at); model.asked != c.asked || took != c.took {
				t.Errorf("%d attempts in %s, want %d in %s", model.asked, took, c.asked, c.took)
			}
			// A retry of the send has time of its own.
			b.item.Round, model.takes = 1, []time.Duration{0}
			if r := b.attempt(); r.backoff != firstBackoff {
				t.Errorf("the first attempt of the retry: %+v", r)
			}
			if r := b.attempt(); r.backoff != 2*firstBackoff {
				t.Errorf("the second attempt of the retry: %+v", r)
			}
		})
	}
}
