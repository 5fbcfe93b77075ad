package datapoints_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

func rowsAfter(
	t *rapid.T, tt *testing.T, db *pgxpool.Pool, blobs projectiontest.Blobs, pages [][]eventstore.DecodedEvent,
	without ...string,
) map[string][]string {
	tt.Helper()
	rows := rapid.SampledFrom([]int{1, 2, 3, 1000}).Draw(t, "rows of a slice")
	return projectiontest.RowsAfter(t, tt, db, datapoints.New(blobs).WithRows(rows), pages, without...)
}

func TestApply_PageSizes(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		var single, twice [][]eventstore.DecodedEvent
		for _, f := range h.Facts {
			single = append(single, []eventstore.DecodedEvent{f})
			twice = append(twice, []eventstore.DecodedEvent{f}, []eventstore.DecodedEvent{f})
		}
		want := rowsAfter(t, tt, db, h.Blobs, single)
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.Blobs, projectiontest.Cut(t, h.Facts))); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.Blobs, twice)); diff != "" {
			t.Fatalf("events that come twice change rows (-once +twice):\n%s", diff)
		}
	})
}

func TestApply_ErasedStreams(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		left := h.WithoutErased(t)
		want := rowsAfter(t, tt, db, h.Blobs, projectiontest.Cut(t, h.Facts), "position")
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.LeftBlobs(), projectiontest.Cut(t, left), "position")); diff != "" {
			t.Fatalf("%d of %d events left, %d data points erased: rows differ (-whole +erased):\n%s", len(left), len(h.Facts),
				len(h.Erased), diff)
		}
	})
}

func TestApply_RetainedFacts(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		var unkept []eventstore.DecodedEvent
		for _, f := range h.Facts {
			switch f.Event.(type) {
			case *deletion.FactsKept, *deletion.Cleaned:
			default:
				unkept = append(unkept, f)
			}
		}
		rows := func(facts []eventstore.DecodedEvent) map[string][]string {
			dump := rowsAfter(t, tt, db, h.Blobs, projectiontest.Cut(t, facts), "position")
			delete(dump, "deletions") // the work lists of the finisher do change
			delete(dump, "erasures")
			return dump
		}
		if diff := cmp.Diff(rows(unkept), rows(h.Facts)); diff != "" {
			t.Fatalf("rows differ (-before cleaning +cleaned):\n%s", diff)
		}
	})
}

// contradictions selects, as text, rows that no history may yield: counts that disagree with the
// items or sends, and remains of deleted data points or of unknown sends.
const contradictions = `
	select 'send ' || s.id || ' counts ' || (s.queued, s.processing, s.captured, s.failed, s.open_failures, s.unchanged,
		s.deleted)::text || ' for ' || c.counts::text
	from datapoints.sends s cross join lateral (
		select (
			count(*) filter (where i.phase = 'queued'), count(*) filter (where i.phase = 'processing'),
				count(*) filter (where i.phase = 'captured'),
			count(*) filter (where i.phase in ('failed', 'unindexed')), count(*) filter (where i.phase in ('failed',
				'unindexed') and not i.overtaken),
			count(*) filter (where i.outcome in ('unchanged', 'moved')),
			count(*) filter (where i.outcome not in ('unchanged', 'moved') and (i.deleted_at is not null
				or i.outcome = 'deleted'))
		) as counts from datapoints.items i where i.ingestion_id = s.id
	) c where (s.queued, s.processing, s.captured, s.failed, s.open_failures, s.unchanged, s.deleted)::text <> c.counts::text
	union all
	select 'project ' || project_id || ' counts ' || (raw, comprehension, failed)::text || ' for ' || c.counts::text
	from datapoints.readiness r cross join lateral (
		select (count(*) filter (where phase = 'queued'), count(*) filter (where phase in ('processing', 'captured')),
			count(*) filter (where phase = 'failed' and failure_open))
			as counts from datapoints.sends s where s.project_id = r.project_id
	) c where (raw, comprehension, failed)::text <> c.counts::text
	union all
	select 'project ' || s.project_id || ' used ' || (u.ingestions,
		u.credit_tenths)::text || ' in ' || s.month || ' for ' || s.sums::text
	from (select project_id, month, (sum(ingestions), sum(credit_tenths)) as sums from datapoints.sends group by 1, 2) s
		full join datapoints.month_usage u using (project_id, month)
	where (u.ingestions, u.credit_tenths)::text is distinct from s.sums::text
	union all
	select 'project ' || project_id || ' has a backlog of ' || (b.items, b.bytes)::text || ' for ' || i.sums::text
	from (select project_id, (count(*), sum(bytes)) as sums from datapoints.items
			where batch and phase in ('queued', 'processing') group by 1) i
		full join datapoints.bulk b using (project_id)
	where (b.items, b.bytes)::text is distinct from i.sums::text
	union all
	select 'due is not the lowest open revision, or in another lane: ' || i.data_point || ' ' || i.revision
	from datapoints.items i where i.due is distinct from case
		when i.phase in ('queued', 'processing') and not exists (select from datapoints.items l
			where l.data_point = i.data_point and l.phase in ('queued', 'processing') and l.revision < i.revision)
		then case when exists (select from datapoints.items l where l.data_point = i.data_point
			and l.phase in ('queued', 'processing') and not l.batch) then 'live' else 'bulk' end end
	union all
	select 'audience ' || s.audience || ' counts ' || (s.live, s.memories)::text || ' for ' || d.sums::text
	from (select project_id, audience, (count(*), sum(memories)) as sums from datapoints.data_points group by 1, 2) d
		full join datapoints.scopes s using (project_id, audience)
	where (s.live, s.memories)::text is distinct from d.sums::text
	union all
	select 'deleted, but still there: ' || id from datapoints.data_points where id = any($1)
	union all
	select 'deleted, but its text is still there: ' || data_point from datapoints.revisions where data_point = any($1)
	union all
	select 'deleted, but to be worked on: ' || data_point from datapoints.items where data_point = any($1)
		and phase in ('queued', 'processing', 'failed', 'unindexed')
	union all
	select 'nothing is known of send ' || id from datapoints.sends_without_items
	union all
	select 'facts are kept, and not of item ' || ingestion_id || '/' || ordinal from datapoints.items
		where phase = 'erased'
	union all
	select 'overtaken or not: ' || i.ingestion_id from datapoints.items i join datapoints.data_points d on d.id = i.data_point
		where i.phase in ('failed', 'unindexed') and i.overtaken <> (i.revision < d.captured)
	union all
	select 'captured of ' || d.id || ' is ' || d.captured || ' for ' || c.newest from datapoints.data_points d cross
		join lateral (
		select coalesce(max(i.revision), 0) as newest from datapoints.items i where i.data_point = d.id
			and i.phase in ('captured', 'unindexed') and not i.historic
	) c where c.newest <> d.captured
	union all
	select 'newest of ' || d.id || ' has another audience' from datapoints.data_points d
		where not exists (select from datapoints.revisions r where r.data_point = d.id and r.number = d.revision
			and r.audience = d.audience)
	union all
	select 'newest of ' || d.id || ' is ' || d.revision from datapoints.data_points d
		where not exists (select from datapoints.revisions r where r.data_point = d.id and r.number = d.revision
			and r.ingestion_id = d.ingestion_id and not r.historic)
			or exists (select from datapoints.revisions r where r.data_point = d.id and r.number > d.revision
				and not r.historic)
	union all
	select 'send ' || id || ' is ' || phase from datapoints.sends
		where (phase in ('indexed', 'failed', 'nothing-changed')) <> (settled_at is not null)
			or (phase = 'failed') <> (failure_code is not null) or failure_open and phase <> 'failed'`

func TestApply_ConsistentRows(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		facts, p := h.Facts, datapoints.New(projectiontest.Blobs(h.Blobs))
		if rapid.Bool().Draw(t, "erased streams are gone") {
			facts, p = h.WithoutErased(t), datapoints.New(projectiontest.Blobs(h.LeftBlobs()))
		}
		deleted := make([]uuid.UUID, 0, len(h.Deleted))
		for id := range h.Deleted {
			deleted = append(deleted, id)
		}
		p = p.WithRows(rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "rows of a slice"))
		err := projectiontest.Inspect(tt.Context(), db, p, projectiontest.Cut(t, facts), func(tx pgx.Tx) error {
			rows, err := tx.Query(tt.Context(), contradictions, deleted)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if len(found) > 0 {
				t.Errorf("contradictions: %s", found)
			}
			return err
		})
		runtest.Must(t, err)
	})
}

func TestApply_AcceptedTexts(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	name := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })) // ids and labels reject U+0000
	rapid.Check(tt, func(t *rapid.T) {
		w := &fixture{t: tt, project: project.ID}
		label, source := name.Draw(t, "label"), name.Draw(t, "source id")
		body := datapoint.Body{Content: datapoint.Text{Inline: rapid.String().Draw(t, "content")}}
		if rapid.Bool().Draw(t, "metadata") {
			metadata, err := json.Marshal(rapid.String().Draw(t, "metadata")) // JSON writes U+0000 as an escape
			runtest.Must(t, err)
			body.Metadata = &datapoint.Text{Inline: string(metadata)}
		}
		if rapid.Bool().Draw(t, "big") {
			body.Content = datapoint.Text{Blob: &blob.Ref{Stream: "blob-a", Size: 1 << 40, SHA256: "00"}}
		}
		occurred := time.Date(rapid.IntRange(0, 9999).Draw(t, "year"), 12, 31, 23, 59, 59,
			rapid.IntRange(0, 999999999).Draw(t, "ns"), time.UTC)
		from := w.send("s", alone)
		author := name.Draw(t, "author")
		w.Append(stream.Name(
			stream.DataPoint, id("a"),
		), &datapoint.RevisionAccepted{Send: from, Body: body, Author: author, States: datapoint.States{
			Effect: datapoint.State{
				SourceID: source, Revision: 1, LastNumber: 1, Label: &label, OccurredAt: occurred, IngestionID: id("s"),
			},
		}})
		w.Append(stream.Name(stream.Memory, id("a")), &memory.Failed{
			ProjectID: w.project, IngestionID: id("s"), Revision: 1, Code: rapid.String().Draw(t, "code"),
			Message: rapid.String().Draw(t, "message"), Final: true,
		})
		w.Append(stream.Name(stream.Ingestion, id("s")),
			&ingestion.Failed{ProjectID: w.project, Code: ingestion.Internal, Message: rapid.String().Draw(t, "reason")})
		type row struct {
			Source, Label string
			Content       []byte
			Metadata      *string
			OccurredAt    time.Time
		}
		pages := [][]eventstore.DecodedEvent{w.Facts}
		err := projectiontest.Inspect(tt.Context(), db, datapoints.New(nil), pages, func(tx pgx.Tx) error {
			var got row
			if err := tx.QueryRow(tt.Context(), `select d.source_id, r.label, r.content, r.metadata, d.occurred_at
				from datapoints.data_points d join datapoints.revisions r on r.data_point = d.id`).
				Scan(&got.Source, &got.Label, &got.Content, &got.Metadata, &got.OccurredAt); err != nil {
				return err
			}
			want := row{Source: source, Label: label, OccurredAt: occurred.Truncate(time.Microsecond)}
			if body.Content.Blob == nil {
				want.Content = []byte(body.Content.Inline)
			}
			if body.Metadata != nil {
				want.Metadata = &body.Metadata.Inline
			}
			same(t, "row", want, got)
			return nil
		})
		runtest.Must(t, err)
	})
}
