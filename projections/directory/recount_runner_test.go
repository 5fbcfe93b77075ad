package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/runner"
)

// A project with very many identities that puts rules in a loop holds up neither the identities of other
// projects nor the end of their recounts.
func TestRecount_OtherProjectsDoNotWait(t *testing.T) {
	w := newWriter("hostile")
	store, codec := eventstoretest.NewMemory(), eventstoretest.Codec(t)
	log, db := eventstore.Journal{Store: store, Codec: codec}, pgtest.Database(t)
	logID := uuid.New()
	revisions := map[string]eventstore.Revision{}
	appendAll := func() (last eventstore.Position) {
		t.Helper()
		for _, f := range w.Facts {
			at, known := revisions[f.Stream]
			if !known {
				at = eventstore.NoStream
			}
			done, err := log.Append(t.Context(), f.Stream, at, event.NewMeta("test", time.Now()), f.Event)
			if err != nil {
				t.Fatal(err)
			}
			revisions[f.Stream], last = at+1, done.Position
		}
		w.Facts = w.Facts[:0]
		return last
	}
	p := directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler)).WithSlice(1)
	rt, err := runner.New(runner.Config{
		DB: db, Store: store, Codec: codec, Projectors: []projections.Projector{p}, Logger: runtest.Warnings(t),
		LogID: func(context.Context) (uuid.UUID, error) { return logID, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	runtest.Part(t, rt.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	wait := func(at eventstore.Position) {
		t.Helper()
		if err := rt.Waiter().Wait(ctx, at, directory.Name); err != nil {
			t.Fatal(err)
		}
	}
	wait(appendAll())
	hostile := project("hostile").ID
	// Each takes a slice of its own: far more than the test waits for.
	if _, err := db.Exec(t.Context(), `insert into directory.identities
		select gen_random_uuid(), $1, n::text, '{}', '', false, 'api', now(), now(), gen_random_uuid(), 1 from generate_series(1, 50000) n`,
		hostile); err != nil {
		t.Fatal(err)
	}
	w.rule("own", audience.MatchAll, is("team", "blue"))
	wait(appendAll())
	for n := range 20 {
		rule := audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{is("team", fmt.Sprint(n))}}
		w.Append(stream.Name(stream.Audiences, hostile), &audience.Put{
			ProjectID: hostile, AudienceID: id("hostile rule"), Slug: "rule", Name: "rule", Kind: audience.KindRule, Rule: &rule,
			CreatedAt: w.now(), PutAt: w.now(),
		})
		w.put(fmt.Sprint("person ", n), traits{"team": "blue"})
		w.recompute("own")
		wait(appendAll())
		if err := rt.Waiter().WaitFollowUp(ctx, directory.Name, directory.Recount, id("own")); err != nil {
			t.Fatal(err)
		}
		var members int
		if err := db.QueryRow(t.Context(), `select member_count from directory.audiences where id = $1 and not recounting`,
			id("own")).Scan(&members); err != nil || members != n+1 {
			t.Fatalf("%d members, want %d: %v", members, n+1, err)
		}
		var waits bool
		if err := db.QueryRow(t.Context(), `select recounting from directory.audiences where id = $1`, id("hostile rule")).
			Scan(&waits); err != nil || !waits {
			t.Fatalf("the recount of the other project is done (%v): the test shows nothing", err)
		}
	}
}
