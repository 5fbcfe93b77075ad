package identities

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

func TestAudienceReader_CacheIsBounded(t *testing.T) {
	journal := engine.NewJournal(eventstoretest.NewMemory(), eventstoretest.Codec(t), slog.New(slog.DiscardHandler))
	reader := newAudienceReader(journal)
	// define stores audiences of a new project, which the reader then reads.
	define := func(count int) {
		project := uuid.New()
		puts := make([]event.Event, count)
		for i := range puts {
			puts[i] = audience.Put{
				ProjectID: project, AudienceID: uuid.New(), Slug: fmt.Sprint("rule-", i), Kind: audience.KindRule,
				Rule: &audience.Rule{
					Match:      audience.MatchAll,
					Conditions: []audience.Condition{{Trait: "team", Operator: audience.Exists}},
				},
			}
		}
		meta := event.NewMeta("test", time.Now())
		if _, err := journal.Append(
			t.Context(), stream.Name(stream.Audiences, project), eventstore.NoStream, meta, puts...,
		); err != nil {
			t.Fatal(err)
		}
		if state, err := reader.read(t.Context(), project); err != nil || state.Len() != count {
			t.Fatalf("%v, want %d audiences", err, count)
		}
	}
	remembered := func() (projects, audiences int) {
		for _, state := range reader.known.Values() {
			audiences += state.Len()
		}
		return reader.known.Len(), audiences
	}
	for range 1100 {
		define(1)
	}
	if projects, audiences := remembered(); projects > 1000 || audiences != projects {
		t.Errorf("%d projects are remembered, with %d audiences", projects, audiences)
	}
	for range 52 {
		define(limit.Audiences)
	}
	if projects, audiences := remembered(); audiences > 50_000 || projects < 40 || audiences != reader.audiences {
		t.Errorf("%d audiences of %d projects are remembered", audiences, projects)
	}
}
