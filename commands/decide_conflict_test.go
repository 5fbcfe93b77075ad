package commands

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// A stream that conflicts each time, as one whose events another hand removed, is tried with pauses until the command
// ends.
func TestUntilNoConflict_LastingConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), decideTimeout)
		defer cancel()
		tries := 0
		err := untilNoConflict(ctx, nil, func(reread bool) error {
			if reread != (tries > 0) {
				t.Errorf("try %d: reread is %t", tries, reread)
			}
			if tries++; tries == 1000 {
				cancel()
			}
			return eventstore.ErrConflict
		})
		if f, is := errors.AsType[*fault.Error](err); tries >= 1000 || !is || f.Kind != fault.Unavailable {
			t.Errorf("%d tries, then %v", tries, err)
		}
	})
}

// Somebody removed the first events of a stream. Nothing is decided on the rest.
func TestFold_FirstEventsAreGone(t *testing.T) {
	store, name := eventstoretest.NewMemory(), stream.Name(stream.Project, uuid.New())
	journal := NewJournal(store, eventstoretest.Codec(t), slog.New(slog.DiscardHandler))
	_, err := journal.Append(t.Context(), name, eventstore.NoStream, event.NewMeta("test", time.Now()),
		project.Archived{}, project.Unarchived{})
	if err != nil {
		t.Fatal(err)
	}
	if _, at, err := fold[project.State](t.Context(), journal, name); err != nil || at.revision != 1 {
		t.Errorf("the whole stream: %d, %v", at.revision, err)
	}
	if err := store.Truncate(t.Context(), name, 1); err != nil {
		t.Fatal(err)
	}
	_, _, err = fold[project.State](t.Context(), journal, name)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable {
		t.Errorf("without its first event: %v", err)
	}
}
