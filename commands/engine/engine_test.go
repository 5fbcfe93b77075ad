package engine

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
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/runtest"
)

// A panic in a goroutine of a fan-out is an error of the call. It does not end the process.
func TestEach_OneItemPanics(t *testing.T) {
	l := &Journal{Logger: slog.New(slog.DiscardHandler)}
	err := l.Each(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 7 {
			panic("item")
		}
		return nil
	})
	if p, ok := errors.AsType[*panics.Error](err); !ok || p.Value != "item" || len(p.Stack) == 0 {
		t.Errorf("error %v", err)
	}
}

// A stream that conflicts each time, as one whose events another hand removed, is tried with pauses until the command
// ends.
func TestUntilNoConflict_LastingConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), DecideTimeout)
		defer cancel()
		tries := 0
		err := UntilNoConflict(ctx, nil, func(reread bool) error {
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
	runtest.Must(t, err)
	if _, at, err := Fold[project.State](t.Context(), journal, name); err != nil || at.Revision != 1 {
		t.Errorf("the whole stream: %d, %v", at.Revision, err)
	}
	runtest.Must(t, store.Truncate(t.Context(), name, 1))
	_, _, err = Fold[project.State](t.Context(), journal, name)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable {
		t.Errorf("without its first event: %v", err)
	}
}
