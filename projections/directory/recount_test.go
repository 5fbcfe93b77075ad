package directory_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/runner"
)

// Whatever changes between the slices of recounts, the counts are right once these are done, and the
// rows are those of a rebuild, which applies everything first.
func TestRecount_ChangesWhileItRuns(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, directory.New(nil, namespaces, nil))
	rapid.Check(tt, func(t *rapid.T) {
		w := newWriter()
		p := directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler)).WithSlice(rapid.IntRange(1, 3).Draw(t, "slice"))
		for n := range 8 {
			w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 2)})
		}
		w.rule("a", audience.MatchAll, is("team", "0"))
		w.rule("b", audience.MatchAll, is("team", "1"))
		tx, err := db.Begin(tt.Context())
		runtest.Must(t, err)
		defer func() { _ = tx.Rollback(tt.Context()) }() // a test database
		done, last := 0, uuid.Nil
		apply := func() {
			if done == len(w.Facts) {
				return
			}
			runtest.Must(t, p.Apply(tt.Context(), tx, w.Facts[done:]))
			done = len(w.Facts)
		}
		slice := func() (found bool) {
			work, found, _, err := projections.DoSlice(tt.Context(), tx, p, last)
			runtest.Must(t, err)
			last = work.Project
			return found
		}
		runtest.Must(t, projectiontest.Enter(tt.Context(), tx, p))
		apply()
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			name := fmt.Sprint("person ", rapid.IntRange(0, 9).Draw(t, "person"))
			slug := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "audience")
			team := rapid.SampledFrom([]string{"0", "1"}).Draw(t, "team")
			switch rapid.SampledFrom([]string{"put", "remove", "rule", "recompute", "fixed", "end", "slice", "slice", "page"}).
				Draw(t, "step") {
			case "put":
				w.put(name, traits{"team": team})
			case "remove":
				w.remove(name)
			case "rule":
				w.rule(slug, audience.MatchAll, is("team", team))
			case "recompute":
				w.recompute(slug)
			case "fixed":
				w.fixed(slug, name)
			case "end":
				w.endAudience(slug)
			case "slice":
				apply()
				slice()
			case "page":
				apply()
			}
		}
		apply()
		for slice() {
		}
		runtest.Must(t, counts(tt.Context(), t, tx))
		got, err := projectiontest.Dump(tt.Context(), tx, p)
		runtest.Must(t, err)
		runtest.Must(t, tx.Rollback(tt.Context()))
		if diff := cmp.Diff(rowsAfter(tt.Context(), t, db, w.blobs, projectiontest.Cut(t, w.Facts)), got); diff != "" {
			t.Fatalf("rows differ from those of a rebuild (-rebuild +slices):\n%s", diff)
		}
	})
}

// While a recount runs, the count of before is shown, and recall reaches by the new rule.
func TestRecount_RecallDoesNotWait(t *testing.T) {
	w := newFixture(t)
	for n := range 5 {
		w.put(fmt.Sprint("person ", n), traits{"team": "blue"})
	}
	w.rule("blue", audience.MatchAll, is("team", "red"))
	w.apply()
	w.rule("blue", audience.MatchAll, is("team", "blue"))
	projectiontest.Apply(t, w.db, w.projector, w.Facts[len(w.Facts)-1])
	reaches := func() int {
		t.Helper()
		reach, err := w.queries.Reach(t.Context(), here, "person 1")
		runtest.Must(t, err)
		return len(reach.Audiences)
	}
	count := func() int64 {
		t.Helper()
		a, ok, err := w.queries.Audience(t.Context(), here, "blue")
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return a.MemberCount
	}
	for slices := 0; ; slices++ {
		if n := reaches(); n != 3 { // with its own and what is project-visible
			t.Errorf("after %d slices the identity reaches %d audiences, want 3", slices, n)
		}
		found := doSlice(t, w, 2)
		if !found {
			if n := count(); n != 5 || slices != 3 {
				t.Errorf("after %d slices %d members, want 5 after 3", slices, n)
			}
			break
		}
		if n := count(); slices < 2 && n != 0 {
			t.Errorf("after %d slices %d members, want the count of before", slices+1, n)
		}
	}
}

// doSlice does one slice of at most n identities; found is false if no recount was left.
func doSlice(t *testing.T, w *fixture, n int) (found bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), w.db, func(tx pgx.Tx) (err error) {
		if err = projectiontest.Enter(t.Context(), tx, w.projector); err == nil {
			_, found, _, err = projections.DoSlice(t.Context(), tx, w.projector.WithSlice(n), uuid.Nil)
		}
		return err
	})
	runtest.Must(t, err)
	return found
}

// A slice is bounded in bytes as well: identities with many traits are counted a few at a time.
func TestRecount_SliceIsBoundedByBytes(t *testing.T) {
	w := newFixture(t)
	broad := traits{}
	for n := range 10 {
		broad[fmt.Sprint(n)] = "x"
	}
	const people, traitBytes = 20, 10 * 32 // two hashes for each trait
	w.projector.WithSliceBytes(3 * traitBytes)
	for n := range people {
		w.put(fmt.Sprint("person ", n), broad)
	}
	w.apply()
	w.rule("all", audience.MatchAll, is("7", "x"))
	projectiontest.Apply(t, w.db, w.projector, w.Facts[len(w.Facts)-1])
	slices := 0
	for doSlice(t, w, 1000) {
		slices++
	}
	if a, _, err := w.queries.Audience(t.Context(), here, "all"); err != nil || a.MemberCount != people || slices != 7 {
		t.Errorf("%d members in %d slices, want %d in 7: %v", a.MemberCount, slices, people, err)
	}
}

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
			runtest.Must(t, err)
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
	runtest.Must(t, err)
	runtest.Part(t, rt.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	wait := func(at eventstore.Position) {
		t.Helper()
		runtest.Must(t, rt.Waiter().Wait(ctx, at, directory.Name))
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
		runtest.Must(t, rt.Waiter().WaitFollowUp(ctx, directory.Name, directory.Recount, id("own")))
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
