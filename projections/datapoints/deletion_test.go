package datapoints_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
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
	runtest.Must(t, err)
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
		exec(t, db, typed.Replace(sql), project.ID, id(source), revisions, open)
	}
	exec(t, db, "analyze")
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
	runtest.Must(t, err)
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
			exec(t, db, "truncate datapoints."+table)
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
	runtest.Must(t, projectiontest.FollowUp(t.Context(), db, p))
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

// The deletion of a data point that was often sent unchanged changes only the items with a
// revision.
func TestDeleted_UnchangedSendsAreNotTouched(t *testing.T) {
	const resends = 500
	w := newFixture(t)
	w.revised("s", "a", alone)
	facts := []deletion.RetainedFact{
		{IngestionID: id("s"), RequestID: id("request of s"), AcceptedAt: at(0), Items: 1, Bytes: 7, CreditTenths: 10, Month: "2026-11", Outcome: ingestion.Created, Revision: 1},
	}
	for n := range resends {
		name := fmt.Sprint("again ", n)
		facts = append(facts, deletion.RetainedFact{
			IngestionID: id(name), RequestID: id("request of " + name), AcceptedAt: w.at(), Items: 1, Bytes: 7, CreditTenths: 10,
			Month: "2026-11", Outcome: ingestion.Unchanged, Revision: 1,
		})
		w.resent(name, "a", alone)
	}
	w.apply()
	read := func() string {
		var tables string
		if err := w.Queries.DB.QueryRow(t.Context(), `select string_agg(row, ' ' order by row) from (
				select 'item ' || ctid::text || xmin::text as row from datapoints.items where outcome = 'unchanged'
				union all select 'send ' || ctid::text || xmin::text from datapoints.sends
					where phase = 'nothing-changed') r`).Scan(&tables); err != nil {
			t.Fatal(err)
		}
		return tables
	}
	before := read()
	outcome := func() string {
		items := w.shown("again 7")
		if len(items) != 1 {
			t.Fatalf("items are %+v", items)
		}
		return items[0].Outcome
	}
	if got := outcome(); got != ingestion.Unchanged {
		t.Errorf("before its deletion it is %s", got)
	}
	w.deleted("d", "a", true)
	w.apply()
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Error("the deletion writes rows of unchanged sends")
	}
	if got := outcome(); got != ingestion.Deleted {
		t.Errorf("after its deletion it is %s", got)
	}
	// In parts, as the finisher retains them.
	w.kept("d", "a", facts[:300]...)
	w.kept("d", "a", append([]deletion.RetainedFact{facts[0]}, facts[300:]...)...)
	w.apply()
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Error("retaining the facts writes rows of unchanged sends")
	}
	s, err := w.Queries.Status(t.Context(), project, id("again 7"))
	if err != nil || s.Status != datapoints.StatusCompleted {
		t.Errorf("an unchanged send is %+v, %v", s, err)
	}
}

// used returns what the pages of an index hold in their items, the separators of inner pages and the high keys
// included. It leaves out the unused part of a page.
func used(t *testing.T, db *pgxpool.Pool, index string) (items []byte) {
	t.Helper()
	const pageSize, headerSize, deleted = 8192, 24, 1 << 2
	var file []byte
	if err := db.QueryRow(t.Context(), "select pg_read_binary_file(pg_relation_filepath($1::regclass))", index).
		Scan(&file); err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(file, pageSize) {
		lower, special := binary.LittleEndian.Uint16(page[12:]), binary.LittleEndian.Uint16(page[16:])
		if lower < headerSize || binary.LittleEndian.Uint16(page[special+12:])&deleted != 0 {
			continue
		}
		for pointer := range slices.Chunk(page[headerSize:lower], 4) {
			item := binary.LittleEndian.Uint32(pointer)
			from, length, isUsed := item&0x7fff, item>>17, item>>15&3 != 0
			if isUsed && from+length <= pageSize {
				items = append(items, page[from:from+length]...)
			}
		}
	}
	return items
}

// A B-tree keeps keys of deleted rows as the bounds of its pages, however often it is vacuumed: so no key is a text of
// customers. What the leaves include besides leaves with the row.
func TestIndexes_KeepNoTextOfDeletedRows(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	fillPoints(t, w, 5_000)
	// Each page has rows that stay.
	exec(t, w.Queries.DB, `update datapoints.data_points
		set source_id = id || name, label_key = id || name, author = id || name
		from (values (true, ' deleted'), (false, ' kept')) names (goes, name) where goes = (position % 20 > 0)`)
	rows, err := w.Queries.DB.Query(t.Context(), `select indexrelid::regclass::text from pg_index
		where indrelid = 'datapoints.data_points'::regclass`)
	runtest.Must(t, err)
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(indexes) < 4 {
		t.Fatalf("indexes %v, %v", indexes, err)
	}
	exec(t, w.Queries.DB, "checkpoint")
	held := 0
	for _, index := range indexes {
		held += bytes.Count(used(t, w.Queries.DB, index), []byte(" deleted"))
	}
	if held < 1_000 {
		t.Fatalf("the test finds %d texts before the rows are deleted", held)
	}
	exec(t, w.Queries.DB, "delete from datapoints.data_points where position % 20 > 0")
	exec(t, w.Queries.DB, "vacuum (index_cleanup on, truncate off) datapoints.data_points")
	exec(t, w.Queries.DB, "checkpoint")
	for _, index := range indexes {
		if n := bytes.Count(used(t, w.Queries.DB, index), []byte(" deleted")); n > 0 {
			t.Errorf("index %s holds %d texts of deleted rows", index, n)
		}
	}
}

// Blobs of identities, bulk writes and audiences are swept only without a reference; the rows of a
// bulk write also once it is fanned out.
func TestBlobs_DirectoryReferences(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	ref := func(name string) *blob.Ref { return &blob.Ref{Stream: "blob-" + name} }
	begun := func(owner string, names ...string) {
		for _, name := range names {
			w.Append("blob-"+name, &blob.Opened{ProjectID: w.project, Owner: id(owner), Deadline: noon})
		}
	}
	add := func(family, owner string, e event.Event) { w.last = w.Append(stream.Name(family, id(owner)), e) }
	traits := func(name string) identity.Record { return identity.Record{Traits: identity.Traits{Blob: ref(name)}} }
	row := traits("row")

	begun("ana", "replaced", "patch", "merged", "row", "never")
	begun("bulk", "rows")
	begun("other bulk", "other rows")
	begun("project", "members", "rule")
	add(stream.Identity, "ana", &identity.Appeared{ProjectID: w.project, Identity: "ana"})
	add(stream.Identity, "ana", &identity.TraitsReplaced{ProjectID: w.project, Record: traits("replaced")})
	add(stream.Identity, "ana",
		&identity.TraitsMerged{ProjectID: w.project, Patch: identity.Patch{Blob: ref("patch")}, Record: traits("merged")})
	add(stream.Bulk, "bulk", &identity.BulkAccepted{ProjectID: w.project, Rows: *ref("rows")})
	add(stream.Bulk, "other bulk", &identity.BulkAccepted{ProjectID: w.project, Rows: *ref("other rows")})
	add(stream.Identity, "ana", &identity.BulkRowApplied{ProjectID: w.project, Record: &row})
	add(stream.Identity, "ben", &identity.BulkRowApplied{ProjectID: w.project, History: true})
	add(stream.Bulk, "bulk", &identity.BulkFannedOut{ProjectID: w.project})
	add(stream.Audiences, "project",
		&audience.Put{ProjectID: w.project, MembersBlob: ref("members"), RuleBlob: ref("rule")})
	add(stream.Audiences, "project", &audience.Recomputed{ProjectID: w.project})
	add(stream.Audiences, "project", &audience.Removed{ProjectID: w.project})
	add(stream.Identity, "ana", &identity.Removed{ProjectID: w.project})
	add(stream.Identity, "ana", &identity.Cleared{ProjectID: w.project})

	var single, twice [][]eventstore.DecodedEvent
	for _, f := range w.Facts {
		single = append(single, []eventstore.DecodedEvent{f})
		twice = append(twice, []eventstore.DecodedEvent{f}, []eventstore.DecodedEvent{f})
	}
	for name, pages := range map[string][][]eventstore.DecodedEvent{
		"one page": {w.Facts}, "single events": single, "each twice": twice,
	} {
		err := projectiontest.Inspect(t.Context(), w.Queries.DB, datapoints.New(nil), pages, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), `select stream from datapoints.blobs where not referred order by stream`)
			if err != nil {
				return err
			}
			loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
			same(t, name+": loose", []string{"blob-never", "blob-rows"}, loose)
			return err
		})
		runtest.Must(t, err)
	}
	w.apply()
	blobs, err := w.Queries.UnreferencedBlobs(t.Context(), noon.Add(time.Second), noon, 10)
	runtest.Must(t, err)
	var swept []string
	for _, b := range blobs {
		swept = append(swept, b.Stream)
	}
	same(t, "to be swept", []string{"blob-never", "blob-rows"}, swept)
}
