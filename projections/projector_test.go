package projections_test

import (
	"errors"
	"testing"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

func TestEach_FailingFact(t *testing.T) {
	unreadable, unfit := errors.New("unreadable"), errors.New("unfit")
	fact := func(revision eventstore.Revision, err error) eventstore.DecodedEvent {
		return eventstore.DecodedEvent{Recorded: eventstore.Recorded{Stream: "a", Revision: revision}, Err: err}
	}
	for _, tt := range []struct {
		page  []eventstore.DecodedEvent
		done  int
		is    error
		wants string
	}{
		{[]eventstore.DecodedEvent{fact(0, nil), fact(1, nil)}, 2, nil, ""},
		{[]eventstore.DecodedEvent{fact(0, nil), fact(1, unreadable), fact(2, nil)}, 1, unreadable, "event 1 of a: unreadable"},
		{[]eventstore.DecodedEvent{fact(6, nil), fact(7, nil), fact(8, nil)}, 2, unfit, "event 7 of a: unfit"},
	} {
		done := 0
		err := projections.Each(tt.page, func(f eventstore.DecodedEvent) error {
			if done++; f.Revision == 7 {
				return unfit
			}
			return nil
		})
		if done != tt.done || !errors.Is(err, tt.is) || (err != nil && err.Error() != tt.wants) {
			t.Errorf("got %v after %d facts, want %q after %d", err, done, tt.wants, tt.done)
		}
	}
}
