package erasure_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/work"
)

// mute is a store that never reports the result of a truncation.
type mute struct {
	*eventstoretest.Memory
	at []time.Time
}

func (s *mute) Truncate(context.Context, string, eventstore.Revision) error {
	s.at = append(s.at, time.Now())
	return eventstore.ErrUnknown
}

// removed returns a store with a removed record, and the removal.
func removed(t *testing.T) (*mute, erasure.Streams, work.Removal) {
	t.Helper()
	codec := eventstoretest.Codec(t)
	store := &mute{Memory: eventstoretest.NewMemory()}
	log := eventstore.Journal{Store: store, Codec: codec}
	r := work.Removal{ProjectID: uuid.New(), IdentityID: uuid.New(), Revision: 1}
	name := stream.Name(stream.Identity, r.IdentityID)
	if _, err := log.Append(t.Context(), name, eventstore.NoStream, event.NewMeta("test", time.Now()),
		identity.Appeared{ProjectID: r.ProjectID, Identity: "ana"}, identity.Removed{ProjectID: r.ProjectID}); err != nil {
		t.Fatal(err)
	}
	return store, erasure.Streams{
		Journal: log, Projects: tenants{r.ProjectID: uuid.New()}, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}, r
}

func TestTruncateIdentity_UnknownResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, streams, r := removed(t)
		err := streams.TruncateIdentity(t.Context(), r)
		if !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("it ended with %v", err)
		}
		if len(store.at) != 10 {
			t.Fatalf("it was tried %d times", len(store.at))
		}
		for n := range store.at[1:] {
			if pause := store.at[n+1].Sub(store.at[n]); pause < 5*time.Millisecond || pause > time.Second {
				t.Errorf("the pause after try %d was %s", n+1, pause)
			}
		}
		if took := store.at[9].Sub(store.at[0]); took < time.Second {
			t.Errorf("all tries took %s", took)
		}
	})
}

func TestTruncateIdentity_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, streams, r := removed(t)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := streams.TruncateIdentity(ctx, r)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(began); took != 12*time.Millisecond || len(store.at) == 0 || len(store.at) > 2 {
			t.Errorf("it ended after %s and %d tries", took, len(store.at))
		}
	})
}
