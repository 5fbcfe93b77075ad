package datapoints_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
)

// cost is what a page or a slice took.
type cost struct {
	rows  int64  // read and changed
	bytes uint64 // allocated
}

// measure runs do in a transaction with the tables of the projection.
func measure(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) (c cost) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if err := projectiontest.Enter(t.Context(), tx, datapoints.New(nil)); err != nil {
			return err
		}
		// Of tables as small as those of this test, Postgres would read all rows rather than an index.
		if _, err := tx.Exec(t.Context(), "set local enable_seqscan = off"); err != nil {
			return err
		}
		var err error
		if c.rows, err = touched(t.Context(), tx); err != nil {
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = do(tx)
		runtime.ReadMemStats(&after)
		c.bytes = after.TotalAlloc - before.TotalAlloc
		now, countErr := touched(t.Context(), tx)
		c.rows = now - c.rows
		return errors.Join(err, countErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// touched counts the rows of the projection that a connection has read and changed since it reported them.
func touched(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	err = tx.QueryRow(ctx, `select sum(seq_tup_read + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd + n_tup_del)
		from pg_stat_xact_user_tables where schemaname = annals_schema_prefix() || 'datapoints'`).Scan(&n)
	return n, err
}

// fill makes the rows of a data point with revisions, each of a send of its own. The newest open ones are
// queued and those before, as many, failed; all others are indexed.
func fill(t *testing.T, db *pgxpool.Pool, source string, revisions, open int) {
	t.Helper()
	send := `('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid`
	phase := `case when n > $3 - $4 then 'queued' when n > $3 - 2 * $4 then 'failed' else 'captured' end`
	typed := strings.NewReplacer("$1", "$1::uuid", "$2", "$2::uuid", "$3", "$3::int", "$4", "$4::int")
	series := ` from generate_series(1, $3) n where $4 >= 0 and $1 is not null and $2 is not null`
	for _, sql := range []string{
		`insert into datapoints.revisions (data_point, number, project_id, node_id, historic, content, occurred_at,
			ingestion_id, accepted_at) select $2, n, $1, gen_random_uuid(), false, 'text', now(), ` + send + `, now()` + series,
		`insert into datapoints.items (ingestion_id, ordinal, project_id, data_point, revision, historic, outcome, phase,
			attempt, overtaken, outdated, position, batch, bytes, due) select ` + send + `, 0, $1, $2, n, false, 'updated',
			` + phase + `, 0, false, false, n, false, 4, case when n = $3 - $4 + 1 then 'live' end` + series,
		`insert into datapoints.sends (id, project_id, request_id, accepted_at, item_count, batch, phase, settled_at,
			failure_code, failure_open, round, ingestions, bytes, credit_tenths, month, fanned_out, final_phase, final_at,
			searchable_at, queued, processing, captured, failed, open_failures, unchanged, deleted, position)
			select ` + send + `, $1, gen_random_uuid(), now(), 1, false,
				case when n > $3 - $4 then 'queued' when n > $3 - 2 * $4 then 'failed' else 'indexed' end,
				case when n <= $3 - $4 then now() end, case when n > $3 - 2 * $4 and n <= $3 - $4 then 'x' end,
				n > $3 - 2 * $4 and n <= $3 - $4, 0, 1, 1, 1, '2026-11', true,
				case when n > $3 - 2 * $4 and n <= $3 - $4 then 'failed' else '' end, now(),
				case when n <= $3 - 2 * $4 then now() end, (n > $3 - $4)::int, 0, (n <= $3 - 2 * $4)::int,
				(n > $3 - 2 * $4 and n <= $3 - $4)::int, (n > $3 - 2 * $4 and n <= $3 - $4)::int, 0, 0, n` + series,
		`insert into datapoints.data_points (id, project_id, source_id, revision, audience, occurred_at, ingestion_id,
			accepted_at, position, size, metadata_size, traits, stems, exact, outline, conversation)
			select $2, $1, 's', $3, '00000000-0000-0000-0000-000000000000', now(), $2, now(), $3, 1, 0, 0, 0, 0, 0, 0
			where $4 >= 0`,
		`insert into datapoints.scopes select $1, '00000000-0000-0000-0000-000000000000', 1, 0
			where $2 is not null and $3 > 0 and $4 >= 0`,
		`insert into datapoints.readiness select $1, $4, 0, $4 where $2 is not null and $3 > 0`,
		`insert into datapoints.month_usage select $1, '2026-11', $3, $3 where $2 is not null and $4 >= 0`,
	} {
		if _, err := db.Exec(t.Context(), typed.Replace(sql), project.ID, id(source), revisions, open); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), "analyze"); err != nil {
		t.Fatal(err)
	}
}

// sendOf is the send of a revision that fill made.
func sendOf(n int) uuid.UUID {
	text := strconv.Itoa(n)
	return uuid.MustParse("00000000-0000-4000-8000-" + "000000000000"[len(text):] + text)
}

// manyRevisions is how many revisions the tests of this file make. ANNALS_TEST_REVISIONS sets another number.
func manyRevisions(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_TEST_REVISIONS")
	if text == "" {
		return 12_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The page of a deletion and each of its slices cost the same for a data point with few and with very many
// revisions. What clients read is deleted with the page.
func TestDeletion_CostIsFlat(t *testing.T) {
	db := pgtest.Database(t)
	makeSchemas(t, db)
	var page, slice [2]cost
	for n, revisions := range []int{6_000, manyRevisions(t)} {
		for _, table := range []string{"items", "sends", "revisions", "scopes", "readiness", "month_usage"} {
			if _, err := db.Exec(t.Context(), "truncate datapoints."+table); err != nil {
				t.Fatal(err)
			}
		}
		const open = 1_200
		fill(t, db, "a", revisions, open)
		w := fixtureOf(t, db)
		w.deleted("operation", "a", true)
		p := datapoints.New(nil)
		page[n] = measure(t, db, func(tx pgx.Tx) error { return p.Apply(t.Context(), tx, w.Facts) })
		wantDeleted(t, w, revisions)
		for done := 0; ; done++ {
			var found bool
			c := measure(t, db, func(tx pgx.Tx) (err error) {
				_, found, _, err = projections.DoSlice(t.Context(), tx, p, uuid.Nil)
				return err
			})
			if !found {
				break
			}
			slice[n] = cost{max(slice[n].rows, c.rows), max(slice[n].bytes, c.bytes)}
			if done < 10 { // it reads all sends
				wantCounters(t, db)
			}
		}
		var left int
		if err := db.QueryRow(t.Context(), `select (select count(*) from datapoints.revisions)
			+ (select count(*) from datapoints.items where deleted_at is null or phase <> 'done')
			+ (select count(*) from datapoints.sends where phase <> 'indexed' or deleted <> 1)
			+ (select raw + comprehension + failed from datapoints.readiness)`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	}
	t.Logf("page %+v, most of a slice %+v", page, slice)
	for what, c := range map[string][2]cost{"page": page, "slice": slice} {
		// Postgres may read the rows of a slice once more, by another index; the revisions are 6,000 more.
		if c[1].rows > c[0].rows+projections.SliceRows || c[1].rows > 25*projections.SliceRows {
			t.Errorf("a %s touches %d rows, and %d with more revisions", what, c[0].rows, c[1].rows)
		}
		if c[1].bytes > c[0].bytes*3/2+1<<20 {
			t.Errorf("a %s allocates %d bytes, and %d with more revisions", what, c[0].bytes, c[1].bytes)
		}
	}
}

// wantDeleted requires that clients read nothing of a deleted data point of which a follow-up is left.
func wantDeleted(t *testing.T, w *fixture, revisions int) {
	t.Helper()
	if followed, err := w.Queries.FollowedUp(t.Context(), []uuid.UUID{id("a")}); err != nil || !followed[id("a")] {
		t.Errorf("followed up %v, %v", followed, err)
	}
	counts, err := w.Queries.Counts(t.Context(), w.Queries.DB, []uuid.UUID{project.ID}, "2026-11")
	if got := counts[project.ID]; err != nil || got.Live != 0 || got.Ingested != int64(revisions) {
		t.Errorf("counts %+v, %v", got, err)
	}
	if deleted, err := w.Queries.AnyDeleted(t.Context(), project, []uuid.UUID{id("a")}); err != nil || !deleted {
		t.Errorf("deleted %t, %v", deleted, err)
	}
	for _, n := range []int{1, revisions / 2, revisions - 1_201, revisions} { // indexed, failed and queued before
		s, ok, err := w.Queries.Send(t.Context(), project, sendOf(n))
		if err != nil || !ok || s.Phase != datapoints.PhaseIndexed || s.Failure != nil {
			t.Errorf("send %d is %+v, %t, %v", n, s, ok, err)
		}
		e, ok, err := w.Queries.Explain(t.Context(), project, sendOf(n), 10, 0)
		if err != nil || !ok || !e.Deleted || e.Phase != datapoints.PhaseIndexed || e.SettledAt == nil || e.FailureOpen ||
			len(e.Items) != 1 || e.Items[0].Outcome != "deleted" || e.Items[0].Phase != "done" || e.Items[0].SourceID != "" {
			t.Errorf("explained %d: %+v, %t, %v", n, e, ok, err)
		}
	}
	failed, err := w.Queries.FailedSends(t.Context(), project.ID, 10, uuid.Nil)
	if err != nil || len(failed) != 0 {
		t.Errorf("failed %+v, %v", failed, err)
	}
}

// wantCounters requires that the counters of the project are those of its sends.
func wantCounters(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	var same bool
	err := db.QueryRow(t.Context(), `select (raw, failed) = (select count(*) filter (where phase = 'queued'),
		count(*) filter (where failure_open) from datapoints.sends) from datapoints.readiness`).Scan(&same)
	if err != nil || !same {
		t.Errorf("counters are right: %t, %v", same, err)
	}
}

// A capture that overtakes very many failures loads as few of them as a deletion does.
func TestOvertaken_CostIsFlat(t *testing.T) {
	db := pgtest.Database(t)
	makeSchemas(t, db)
	revisions := manyRevisions(t)
	fill(t, db, "a", revisions, revisions/2-1)
	p := datapoints.New(nil)
	derived := eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{
			Stream: stream.Name(stream.Memory, id("a")), Position: 1 << 40, Type: memory.Derived{}.EventType(),
		},
		Event: &memory.Derived{ProjectID: project.ID, IngestionID: sendOf(revisions), Revision: revisions},
	}
	page := measure(t, db, func(tx pgx.Tx) error {
		return p.Apply(t.Context(), tx, []eventstore.DecodedEvent{derived})
	})
	if page.rows > 20*projections.SliceRows {
		t.Errorf("the page touches %d rows", page.rows)
	}
	if err := projectiontest.FollowUp(t.Context(), db, p); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := db.QueryRow(t.Context(), `select (select count(*) from datapoints.items where phase = 'failed' and not overtaken)
		+ (select failed from datapoints.readiness)`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d failures count, %v", left, err)
	}
}

// A page of events that are each about a whole send is small.
func TestFit(t *testing.T) {
	p := datapoints.New(nil)
	page := func(e event.Event) []eventstore.DecodedEvent {
		return slices.Repeat([]eventstore.DecodedEvent{{Event: e}}, 4096)
	}
	if n := p.Fit(page(&datapoint.Deleted{})); n != 4096 {
		t.Errorf("%d deletions fit", n)
	}
	if n := p.Fit(page(&ingestion.Retried{})); n < 1 || n > 40 {
		t.Errorf("%d retries fit", n)
	}
}
