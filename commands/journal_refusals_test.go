package commands_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// smallStore is an event store whose operator lowered the size of an append.
type smallStore struct{ eventstore.Store }

func (smallStore) Append(
	context.Context, string, eventstore.Revision, []eventstore.Proposed,
) (eventstore.Appended, error) {
	return eventstore.Appended{}, eventstore.ErrTooLarge
}

// A store that takes smaller appends than this program makes is named with the limit to raise.
func TestJournal_NamesTheLimitOfTheStore(t *testing.T) {
	store := smallStore{eventstoretest.NewMemory()}
	journal := commands.NewJournal(store, eventstoretest.Codec(t), slog.New(slog.DiscardHandler))
	_, err := journal.Append(t.Context(), stream.Pipeline, eventstore.NoStream, event.NewMeta("test", time.Now()),
		pipeline.Searchable{Position: 1, SearchableAt: time.Now()})
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable ||
		!strings.Contains(f.Msg, "--max-append-size") {
		t.Errorf("the refusal is %v", err)
	}
}
