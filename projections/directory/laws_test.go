package directory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
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
	runtest.Must(t, err)
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
		runtest.Must(t, err)
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

// statements is a transaction that records the statements sent.
type statements struct {
	pgx.Tx
	sent *[]string
}

func (s statements) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	*s.sent = append(*s.sent, sql)
	return s.Tx.Query(ctx, sql, args...)
}

func (s statements) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	*s.sent = append(*s.sent, sql)
	return s.Tx.QueryRow(ctx, sql, args...)
}

func (s statements) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		*s.sent = append(*s.sent, q.SQL)
	}
	return s.Tx.SendBatch(ctx, b)
}

// containing counts the statements that contain a text.
func containing(sent []string, text string) (n int) {
	for _, sql := range sent {
		if strings.Contains(sql, text) {
			n++
		}
	}
	return n
}

// countsIdentities is in the statement that reads the next identities of a project.
const countsIdentities = "where project_id = $1 and id > $2"

// follow does all follow-ups of a projector, and counts how often they read identities.
func follow(t *testing.T, db *pgxpool.Pool, p *directory.Projector) (reads, slices int) {
	t.Helper()
	var sent []string
	for found := true; found; slices++ {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) (err error) {
			if err = projectiontest.Enter(t.Context(), tx, p); err == nil {
				_, found, _, err = projections.DoSlice(t.Context(), statements{tx, &sent}, p, uuid.Nil)
			}
			return err
		})
		runtest.Must(t, err)
	}
	return containing(sent, countsIdentities), slices - 1
}

// A page reads no identities to count them, and no text of rules or traits. Its recounts go through the
// identities of a project once, however many there are. Writes of identities read no other identities.
func TestApply_CostOfAPage(t *testing.T) {
	w := newWriter()
	p, db := directory.New(w.blobs, namespaces, slog.New(slog.DiscardHandler)), pgtest.Database(t)
	projectiontest.Make(t, db, p)
	done := 0
	apply := func() (sent []string) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if err := projectiontest.Enter(t.Context(), tx, p); err != nil {
				return err
			}
			return p.Apply(t.Context(), statements{tx, &sent}, w.Facts[done:])
		})
		runtest.Must(t, err)
		done = len(w.Facts)
		return sent
	}
	const rules = 100
	for n := range rules {
		w.rule(fmt.Sprint("rule-", n), audience.MatchAll, is("team", fmt.Sprint(n%3)))
	}
	for n := range 50 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint(n % 3)})
	}
	apply()
	for n := range rules {
		w.recompute(fmt.Sprint("rule-", n))
	}
	sent := apply()
	if n := containing(sent, countsIdentities); n > 0 {
		t.Errorf("the page of %d recomputes goes through the identities %d times", rules, n)
	}
	if passes, slices := follow(t, db, p.WithSlice(50)); passes != 2 || slices != rules+1 {
		t.Errorf("%d recomputes read %d slices of identities in %d slices, want all in two", rules, passes, slices)
	}
	for _, text := range []string{"select traits", ", traits,", ", rule,"} {
		if n := containing(sent, text); n > 0 {
			t.Errorf("%d statements read %q:\n%s", n, text, strings.Join(sent, "\n"))
		}
	}
	for n := range 50 {
		w.put(fmt.Sprint("person ", n), traits{"team": fmt.Sprint((n + 1) % 3)})
	}
	sent = apply()
	if n := containing(sent, countsIdentities); n > 0 {
		t.Errorf("writes of identities go through those of the project %d times", n)
	}
	if n := containing(sent, "select compiled") + containing(sent, "select id, compiled from audiences"); n > 1 {
		t.Errorf("50 writes read the rules %d times", n)
	}
	if len(sent) > 20 {
		t.Errorf("%d statements for 50 writes:\n%s", len(sent), strings.Join(sent, "\n"))
	}
}

func TestFit(t *testing.T) {
	inline := make(traits, 1000)
	for n := range 1000 {
		inline[fmt.Sprint(n)] = "x"
	}
	at := func(n int) *blob.Ref { return &blob.Ref{Stream: fmt.Sprint("blob-", n), Size: 1_000_000} } // 62,500 traits
	of := func(count int, make func(n int) event.Event) (facts []eventstore.DecodedEvent) {
		for n := range count {
			facts = append(facts, eventstore.DecodedEvent{Event: make(n)})
		}
		return facts
	}
	project := func(n int) uuid.UUID { return uuid.UUID{15: byte(n)} }
	for name, c := range map[string]struct {
		facts []eventstore.DecodedEvent
		want  int
	}{
		"small events": {of(512, func(int) event.Event { return &identity.Appeared{} }), 512},
		"250 of 1,000 traits": {of(250, func(int) event.Event {
			return &identity.TraitsReplaced{Record: identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"251 of 1,000 traits": {of(251, func(int) event.Event {
			return &identity.TraitsMerged{Record: identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"rows of 1,000 traits": {of(300, func(int) event.Event {
			return &identity.BulkRowApplied{Record: &identity.Record{Traits: identity.Traits{Inline: inline}}}
		}), 250},
		"rows of nothing": {of(300, func(int) event.Event { return &identity.BulkRowApplied{} }), 300},
		"blobs": {of(9, func(n int) event.Event {
			return &identity.TraitsReplaced{Record: identity.Record{Traits: identity.Traits{Blob: at(n)}}}
		}), 4},
		"one blob of many": {of(9, func(int) event.Event { return &identity.BulkAccepted{Rows: *at(7)} }), 9},
		"lists of members": {of(9, func(n int) event.Event { return &audience.Put{Kind: audience.KindFixed, MembersBlob: at(n)} }), 4},
		"inline members": {of(300, func(int) event.Event {
			return &audience.Put{Kind: audience.KindFixed, Members: make([]uuid.UUID, 6000)}
		}), 41},
		"projects to count": {of(64, func(n int) event.Event { return &audience.Recomputed{ProjectID: project(1 + n)} }), 64},
		"one too big goes alone": {of(3, func(n int) event.Event {
			return &identity.BulkAccepted{Rows: blob.Ref{Stream: fmt.Sprint(n), Size: 16 << 20}}
		}), 1},
		"one too big and no other": {of(1, func(int) event.Event { return &identity.BulkAccepted{Rows: blob.Ref{Size: 64 << 20}} }), 1},
	} {
		if got := (*directory.Projector)(nil).Fit(c.facts); got != c.want {
			t.Errorf("%s: %d events fit, want %d", name, got, c.want)
		}
	}
}
