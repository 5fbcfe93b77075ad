package directory_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/directory"
)

func decode[V any](data []byte) (v V) {
	if err := json.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	return v
}

// emptyTables makes empty tables, to which one log after the other is applied.
func emptyTables(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, directory.New(nil, namespaces, nil))
	return db
}

func rowsAfter(
	ctx context.Context, t *rapid.T, db *pgxpool.Pool, b blobs, pages [][]eventstore.DecodedEvent, without ...string,
) map[string][]string {
	p := directory.New(b, namespaces, slog.New(slog.DiscardHandler))
	rows, err := projectiontest.Rows(ctx, db, p.WithSlice(rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "slice")), pages,
		without...)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestApply_PageSizes(tt *testing.T) {
	db := emptyTables(tt)
	rapid.Check(tt, func(t *rapid.T) {
		h := drawHistory(t)
		var single, twice [][]eventstore.DecodedEvent
		for _, f := range h.Facts {
			single = append(single, []eventstore.DecodedEvent{f})
		}
		pages := projectiontest.Cut(t, h.Facts)
		for _, page := range pages {
			twice = append(twice, page, page)
		}
		want := rowsAfter(tt.Context(), t, db, h.blobs, single)
		if diff := cmp.Diff(want, rowsAfter(tt.Context(), t, db, h.blobs, pages)); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		if diff := cmp.Diff(want, rowsAfter(tt.Context(), t, db, h.blobs, twice)); diff != "" {
			t.Fatalf("pages that come twice change rows (-once +twice):\n%s", diff)
		}
	})
}

func TestApply_ErasedEvents(tt *testing.T) {
	db := emptyTables(tt)
	rapid.Check(tt, func(t *rapid.T) {
		h := drawHistory(t)
		left, kept := h.withoutErased()
		want := rowsAfter(tt.Context(), t, db, h.blobs, projectiontest.Cut(t, h.Facts), "position")
		if diff := cmp.Diff(want, rowsAfter(tt.Context(), t, db, kept, projectiontest.Cut(t, left), "position")); diff != "" {
			t.Fatalf("%d of %d events and %d of %d blobs left: rows differ (-whole +erased):\n%s", len(left), len(h.Facts),
				len(kept), len(h.blobs), diff)
		}
	})
}

// contradictions selects, as text, rows that no history may yield.
const contradictions = `
	select 'a member that is no identity: ' || m.identity_id from directory.members m
		where not exists (select from directory.identities i where i.id = m.identity_id)
	union all
	select 'a member of no fixed audience: ' || m.audience_id from directory.members m
		where not exists (select from directory.audiences a where a.id = m.audience_id and a.rule is null)
	union all
	select 'a mark of no identity: ' || m.identity_id from directory.marks m
		where not exists (select from directory.identities i where i.id = m.identity_id and i.created_at = m.created_at)
	union all
	select 'marks of ' || i.id || ' are ' || c.marks from directory.identities i cross join lateral (
		select count(*) as marks from directory.marks m where m.identity_id = i.id
	) c where c.marks <> 2 * (select count(*) from jsonb_object_keys(i.traits::jsonb))
	union all
	select 'a slug that stands twice: ' || slug from directory.audiences group by project_id, slug having count(*) > 1
	union all
	select 'an open row of no bulk write: ' || bulk_id from directory.bulk_rows r where not exists (select
		from directory.bulks b where b.id = r.bulk_id)
	union all
	select 'a project of ' || p.identities || ' identities has ' || c.n from directory.projects p cross join lateral (
		select count(*) as n from directory.identities i where i.project_id = p.project_id and i.identity is not null) c
			where c.n <> p.identities
	union all
	select 'an identity that is only known of: ' || id from directory.identities where identity is null`

func TestApply_ConsistentRows(tt *testing.T) {
	db := emptyTables(tt)
	rapid.Check(tt, func(t *rapid.T) {
		h := drawHistory(t)
		facts, kept := h.Facts, h.blobs
		if rapid.Bool().Draw(t, "erased") {
			facts, kept = h.withoutErased()
		}
		err := projectiontest.Inspect(tt.Context(), db, directory.New(
			kept, namespaces, slog.New(slog.DiscardHandler),
		).WithSlice(rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "slice")), projectiontest.Cut(t, facts), func(tx pgx.Tx) error {
			rows, err := tx.Query(tt.Context(), contradictions)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			for _, c := range found {
				t.Error(c)
			}
			return counts(tt.Context(), t, tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// counts compares the stored counts of rules with the identities in the tables.
func counts(ctx context.Context, t *rapid.T, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `select traits from directory.identities where identity is not null`)
	if err != nil {
		return err
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `select id, rule, member_count from directory.audiences where rule is not null`)
	if err != nil {
		return err
	}
	var (
		audienceID uuid.UUID
		text       string
		counted    int
	)
	_, err = pgx.ForEachRow(rows, []any{&audienceID, &text, &counted}, func() error {
		var rule audience.Matcher
		if err := rule.Add(audienceID, audience.Compile(uuid.Nil, decode[audience.Rule]([]byte(text)))); err != nil {
			return err
		}
		members := 0
		for _, of := range texts {
			members += len(rule.Reached(audience.TraitKeysOf(uuid.Nil, decode[traits]([]byte(of)))))
		}
		if members != counted {
			t.Errorf("rule %s reaches %d identities, and is said to reach %d", text, members, counted)
		}
		return nil
	})
	return err
}
