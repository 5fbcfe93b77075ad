package table_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/table"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const schema = `-- A table with a column of each type.
create table rows (
	id       uuid primary key,
	made_at  timestamptz not null,   -- a comment, with "not null"
	                                 -- that goes on
	position bigint not null unique,
	name     text not null,
	lane     text,
	other    uuid,
	size     int not null,
	level    smallint not null,
	done     boolean not null,
	hash     bytea,
	note     text,
	at       timestamptz,
	cap      bigint,
	tokens   int,
	parent   uuid,
	names    jsonb not null,
	ref      jsonb,
	counter  bigint not null default 7,
	twice    bigint generated always as (size * 2) stored,
	unique (name, size)
) with (fillfactor = 80);
create index rows_by_name on rows (name);

create table pairs (
	one   uuid not null,
	two   text not null,
	three bigint not null,
	primary key (one, two)
);
`

type (
	lane string
	ref  struct {
		Stream string `json:"stream"`
	}
	inner struct {
		Size  int   `db:"size"`
		Level int16 `db:"level"`
		Done  bool  `db:"done"`
	}
	row struct {
		ID       uuid.UUID           `db:"id"`
		MadeAt   time.Time           `db:"made_at,once"`
		Position eventstore.Position `db:"position"`
		Name     string              `db:"name"`
		Lane     lane                `db:"lane,null"`
		Other    uuid.UUID           `db:"other,once,null"`
		inner
		Hash   []byte     `db:"hash"`
		Note   *string    `db:"note"`
		At     *time.Time `db:"at"`
		Cap    *int64     `db:"cap"`
		Tokens *int32     `db:"tokens"`
		Parent *uuid.UUID `db:"parent"`
		Names  []string   `db:"names"`
		Ref    *ref       `db:"ref"`
		Plain  int
	}
	pair struct {
		One   uuid.UUID           `db:"one"`
		Two   string              `db:"two"`
		Three eventstore.Revision `db:"three"`
	}
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// database returns a transaction with the tables.
func database(t *testing.T) pgx.Tx {
	tx, err := pgtest.Database(t).Begin(t.Context())
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	_, err = tx.Exec(t.Context(), schema)
	runtest.Must(t, err)
	return tx
}

func save[R any](t *testing.T, tx pgx.Tx, of *table.Table[R], rows ...*R) {
	t.Helper()
	b := &pgx.Batch{}
	of.Save(b, rows)
	runtest.Must(t, pgarray.Flush(t.Context(), tx, b))
}

func load(t *testing.T, tx pgx.Tx, of *table.Table[row], ids ...uuid.UUID) map[uuid.UUID]*row {
	t.Helper()
	keys, found, b := map[uuid.UUID]bool{}, map[uuid.UUID]*row{}, &pgx.Batch{}
	for _, id := range ids {
		keys[id] = true
	}
	table.Load(b, of, keys, func(r *row) { found[r.ID] = r })
	runtest.Must(t, pgarray.Flush(t.Context(), tx, b))
	return found
}

// equal compares rows as they are stored.
func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{}, inner{}), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func full() *row {
	return &row{
		ID: uuid.New(), MadeAt: noon, Position: 1 << 40, Name: "a", Lane: "live", Other: uuid.New(),
		inner: inner{Size: -3, Level: 4, Done: true}, Hash: []byte{1}, Note: new("note"), At: new(noon), Cap: new(int64(5)),
		Tokens: new(int32(6)), Parent: new(uuid.New()), Names: []string{"x", `"y"`}, Ref: &ref{"blob-1"},
	}
}

func empty() *row { return &row{ID: uuid.New(), MadeAt: noon, Names: []string{}} }

func TestTable_SavesAndLoads(t *testing.T) {
	tx, of := database(t), table.New[row]("test", schema, "rows")
	one, two := full(), empty()
	save(t, tx, of, one, two)
	equal(t, load(t, tx, of, one.ID, two.ID, uuid.New()), map[uuid.UUID]*row{one.ID: one, two.ID: two})

	var nulls int
	runtest.Must(t, tx.QueryRow(t.Context(), `select num_nulls(lane, other, hash, note, at, cap, tokens, parent, ref)
		from rows where id = $1`, two.ID).Scan(&nulls))
	if nulls != 9 {
		t.Errorf("%d columns of an empty row are null, want 9", nulls)
	}
	if found := load(t, tx, of); len(found) != 0 {
		t.Errorf("without a key %d rows are found", len(found))
	}
	save(t, tx, of)
}

func TestTable_UpdatesRows(t *testing.T) {
	tx, of := database(t), table.New[row]("test", schema, "rows")
	first := full()
	save(t, tx, of, first)
	changed := empty()
	changed.ID, changed.MadeAt, changed.Name = first.ID, noon.Add(time.Hour), "b"
	_, err := tx.Exec(t.Context(), `update rows set counter = 8`)
	runtest.Must(t, err)
	save(t, tx, of, changed)

	changed.MadeAt, changed.Other = first.MadeAt, first.Other // once
	equal(t, load(t, tx, of, first.ID), map[uuid.UUID]*row{first.ID: changed})
	var counter int
	runtest.Must(t, tx.QueryRow(t.Context(), `select counter from rows`).Scan(&counter))
	if counter != 8 {
		t.Errorf("a column without a field is %d, want 8", counter)
	}
}

func TestTable_InsertKeepsRows(t *testing.T) {
	tx, of, b := database(t), table.New[pair]("test", schema, "pairs"), &pgx.Batch{}
	of.Insert(b, []*pair{{Two: "two", Three: 3}})
	of.Insert(b, []*pair{{Two: "two", Three: 4}, {Two: "other", Three: 5}})
	runtest.Must(t, pgarray.Flush(t.Context(), tx, b))
	equalPairs(t, tx, &pair{Two: "other", Three: 5}, &pair{Two: "two", Three: 3})
}

func TestTable_UpdatesBySQL(t *testing.T) {
	tx := database(t)
	of := table.New[pair]("test", schema, "pairs", table.Change{Column: "three", Value: "pairs.three + excluded.three"},
		table.Change{If: "excluded.three > 0"})
	save(t, tx, of, &pair{Two: "added", Three: 3}, &pair{Two: "kept", Three: 3})
	save(t, tx, of, &pair{Two: "added", Three: 4}, &pair{Two: "kept", Three: -1})
	equalPairs(t, tx, &pair{Two: "added", Three: 7}, &pair{Two: "kept", Three: 3})
}

// A part changes its columns alone, and no row that is not there.
func TestPart_LoadsAndUpdates(t *testing.T) {
	type part struct {
		ID   uuid.UUID `db:"id"`
		Name string    `db:"name,once"`
		Note *string   `db:"note"`
	}
	tx, of, some := database(t), table.New[row]("test", schema, "rows"), table.NewPart[part]("test", schema, "rows")
	one, two := full(), full()
	two.Position, two.Name = 7, "two"
	save(t, tx, of, one, two)
	b := &pgx.Batch{}
	some.Update(b, []*part{{ID: one.ID, Name: "b", Note: new("other")}, {ID: uuid.New()}})
	some.Update(b, nil)
	var found []*part
	table.Load(b, some, map[uuid.UUID]bool{one.ID: true}, func(p *part) { found = append(found, p) })
	runtest.Must(t, pgarray.Flush(t.Context(), tx, b))
	equal(t, found, []*part{{ID: one.ID, Name: one.Name, Note: new("other")}})
	one.Note = new("other")
	equal(t, load(t, tx, of, one.ID, two.ID), map[uuid.UUID]*row{one.ID: one, two.ID: two})
}

func equalPairs(t *testing.T, tx pgx.Tx, want ...*pair) {
	t.Helper()
	of, b := table.New[pair]("test", schema, "pairs"), &pgx.Batch{}
	var found []*pair
	b.Queue(of.Select("pairs order by two")).Query(of.Read(func(p *pair) { found = append(found, p) }))
	runtest.Must(t, pgarray.Flush(t.Context(), tx, b))
	equal(t, found, want)
}

// Two projectors that share a connection do not share the text of a statement.
func TestNew_NamesTheProjection(t *testing.T) {
	of := table.New[row]("test", schema, "rows")
	for _, sql := range append(of.Statements(), of.Select("rows")) {
		if !strings.HasSuffix(sql, " -- test") {
			t.Errorf("statement %q does not name its projection", sql)
		}
	}
}

// panics returns what New panics with.
func panics[R any](name string, changes ...table.Change) (message string) {
	defer func() { message, _ = recover().(string) }()
	table.New[R]("test", schema, name, changes...)
	return ""
}

func TestLoad_KeyOfSeveralColumns(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("rows are loaded by one column of a key of two")
		}
	}()
	table.Load(&pgx.Batch{}, table.New[pair]("test", schema, "pairs"), map[string]bool{"two": true}, func(*pair) {})
}

func TestNew_Drift(t *testing.T) {
	for message, got := range map[string]string{
		"the schema creates no such table": panics[pair]("others"),
		"no field for column two of the key": panics[struct {
			One uuid.UUID `db:"one"`
		}]("pairs"),
		"no field for column three": panics[struct {
			One uuid.UUID `db:"one"`
			Two string    `db:"two"`
		}]("pairs"),
		"field Four: no column, or a second": panics[struct {
			pair
			Four int `db:"four"`
		}]("pairs"),
		"field Again: no column, or a second": panics[struct {
			pair
			Again string `db:"two"`
		}]("pairs"),
		"a int cannot hold a text": panics[struct {
			One int `db:"two"`
		}]("pairs"),
		"a []string cannot hold a bytea": panics[struct {
			Hash []string `db:"hash"`
		}]("rows"),
		"a *bool cannot hold a boolean": panics[struct {
			Done *bool `db:"done"`
		}]("rows"),
		"the field is not exported": panics[struct {
			two string `db:"two"`
		}]("pairs"),
		`no option "twice" of a string`: panics[struct {
			Two string `db:"two,twice"`
		}]("pairs"),
		`no option "null" of a time.Time`: panics[struct {
			At time.Time `db:"at,null"`
		}]("rows"),
		"column lane, field Lane: null in the column: true, in the field: false": panics[struct {
			Lane string `db:"lane"`
		}]("rows"),
		"column name, field Name: null in the column: false, in the field: true": panics[struct {
			Name *string `db:"name"`
		}]("rows"),
		"no column four to change": panics[pair]("pairs", table.Change{Column: "four", Value: "4"}),
	} {
		if !strings.Contains(got, message) {
			t.Errorf("panic with %q, want %q", got, message)
		}
	}
}

// A table is read from the text of a schema as Postgres creates it: what New compares a row with is true.
func TestColumnsOf_AsPostgres(t *testing.T) {
	db, logger := pgtest.Database(t), slog.New(slog.DiscardHandler)
	for _, p := range []projectiontest.Projector{
		access.New(), datapoints.New(nil), directory.New(nil, stream.Namespaces{}, logger), embeddings.New(),
		memories.New(nil, logger), trace.NewProjector(nil), usage.New(),
	} {
		projectiontest.Make(t, db, p)
		tables := 0
		for line := range strings.Lines(p.Schema()) {
			name, is := strings.CutPrefix(strings.TrimSpace(line), "create table ")
			if !is {
				continue
			}
			tables++
			name = strings.TrimSuffix(name, " (")
			columns, key, err := table.ColumnsOf(p.Schema(), name)
			if err != nil {
				t.Errorf("table %s of %s: %v", name, p.Name(), err)
				continue
			}
			slices.Sort(key)
			created, primary := inPostgres(t, db, p.Name(), name)
			if diff := cmp.Diff(created, columns); diff != "" {
				t.Errorf("columns of table %s of %s (-Postgres +text):\n%s", name, p.Name(), diff)
			}
			if diff := cmp.Diff(primary, key); diff != "" {
				t.Errorf("key of table %s of %s (-Postgres +text):\n%s", name, p.Name(), diff)
			}
		}
		if tables == 0 {
			t.Errorf("no table of %s is found", p.Name())
		}
	}
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// inPostgres returns the columns of a table in their order, and those of its primary key by name.
func inPostgres(t *testing.T, db querier, schema, name string) (columns []table.Created, key []string) {
	t.Helper()
	rows, err := db.Query(t.Context(), `select a.attname::text,
			replace(replace(format_type(a.atttypid, null), 'timestamp with time zone', 'timestamptz'), 'integer', 'int'),
			not a.attnotnull, a.atthasdef, coalesce(a.attnum = any(i.indkey), false)
		from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
		left join pg_index i on i.indrelid = c.oid and i.indisprimary
		where n.nspname in ($1::text, annals_schema_prefix() || $1::text) and c.relname = $2
			and a.attnum > 0 and not a.attisdropped
		order by a.attnum`, schema, name)
	runtest.Must(t, err)
	var c table.Created
	var inKey bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.PgType, &c.Nullable, &c.Optional, &inKey}, func() error {
		columns = append(columns, c)
		if inKey {
			key = append(key, c.Name)
		}
		return nil
	})
	runtest.Must(t, err)
	slices.Sort(key)
	return columns, key
}

// pageLog makes the events of pages.
type pageLog struct {
	at   eventstore.Position
	page []eventstore.DecodedEvent
}

func (l *pageLog) add(category string, owner uuid.UUID, e event.Event) {
	l.at += 10
	l.page = append(l.page, eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{
			Stream: stream.Name(category, owner), Revision: eventstore.Revision(l.at), Position: l.at, Type: e.EventType(),
		},
		Event: e,
	})
}

// BenchmarkPage applies pages of about 512 events to each projection that has tables of rows, but for datapoints, whose
// own package has its benchmark.
func BenchmarkPage(b *testing.B) {
	logger, at := slog.New(slog.DiscardHandler), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, bench := range []struct {
		projector projectiontest.Projector
		add       func(l *pageLog, n int)
		times     int
	}{
		{access.New(), func(l *pageLog, n int) { addKeys(l, n, at) }, 85},
		{directory.New(nil, stream.Namespaces{}, logger), func(l *pageLog, n int) { addIdentity(l, n, at) }, 512},
		{memories.New(nil, logger), func(l *pageLog, _ int) { addMemories(l, at) }, 512},
		{trace.NewProjector(nil), func(l *pageLog, _ int) { addMemories(l, at) }, 256},
		{usage.New(), func(l *pageLog, n int) { addCharges(l, n, at) }, 256},
	} {
		b.Run(bench.projector.Name(), func(b *testing.B) {
			db, l, n := pgtest.Database(b), &pageLog{}, 0
			projectiontest.Make(b, db, bench.projector)
			for b.Loop() {
				b.StopTimer()
				l.page = nil
				for range bench.times {
					n++
					bench.add(l, n)
				}
				b.StartTimer()
				projectiontest.Apply(b, db, bench.projector, l.page...)
			}
		})
	}
}

func addKeys(l *pageLog, n int, at time.Time) {
	org, id, key, hash := uuid.New(), uuid.New(), uuid.New(), sha256.Sum256(fmt.Append(nil, n))
	l.add(stream.Registry, org, &registry.OrganizationCreated{OrganizationID: org, Name: "org", Plan: "free", CreatedAt: at})
	l.add(stream.Registry, id, &registry.ProjectCreated{
		OrganizationID: org, ProjectID: id, Number: int64(n), Slug: "main", Name: "Main", Namespace: uuid.New(), CreatedAt: at,
	})
	l.add(stream.Project, id, &project.KeyCreated{
		ProjectID: id, KeyID: key, Name: "key", Hash: hex.EncodeToString(hash[:]), Prefix: "svc_sk_", Suffix: "abcd",
		CreatedAt: at,
	})
	l.add(stream.Organization, org, &organization.MemberAdded{
		OrganizationID: org, MemberID: uuid.New(), Role: organization.Owner, AddedAt: at,
	})
	l.add(stream.Project, id, &project.Described{ProjectID: id, Name: "Other", Description: "text", DescribedAt: at})
	l.add(stream.Project, id, &project.KeyRevoked{ProjectID: id, KeyID: key, RevokedAt: at})
}

var benchProject = uuid.New()

func addIdentity(l *pageLog, n int, at time.Time) {
	if n == 1 {
		l.add(stream.Registry, benchProject, &registry.ProjectCreated{ProjectID: benchProject, Slug: "main", CreatedAt: at})
	}
	name := fmt.Sprint("person ", n)
	l.add(stream.Identity, uuid.NewSHA1(benchProject, []byte(name)), &identity.TraitsReplaced{
		ProjectID: benchProject, Record: identity.Record{
			Identity: name, Origin: "api", CreatedAt: at, UpdatedAt: at,
			Traits: identity.Traits{Inline: map[string]string{"team": fmt.Sprint("team ", n%100), "level": fmt.Sprint(n % 5)}},
		},
	})
}

func addMemories(l *pageLog, at time.Time) {
	id, send := uuid.New(), uuid.New()
	l.add(stream.DataPoint, id, &datapoint.RevisionAccepted{
		Send:   datapoint.Send{ProjectID: benchProject, IngestionID: send, Items: 1, AcceptedAt: at, RequestID: send},
		States: datapoint.States{Effect: datapoint.State{SourceID: "a", Revision: 1, LastNumber: 1, OccurredAt: at}},
		Body:   datapoint.Body{Content: datapoint.Text{Inline: "text"}},
	})
	e := &memory.Derived{ProjectID: benchProject, IngestionID: send, Revision: 1, DerivedAt: at, OccurredAt: at}
	for n := range 3 {
		e.Memories = append(e.Memories, memory.Memory{
			ID: memory.ID(id, 1, n), Kind: "claim", Content: "Ada likes tea.", Excerpt: "I like tea", End: 10,
			Subject: "ada", Attribute: "likes", Inputs: []uuid.UUID{datapoint.NodeID(id, 1)},
		})
	}
	l.add(stream.Memory, id, e)
}

func addCharges(l *pageLog, n int, at time.Time) {
	org, id := uuid.NewSHA1(benchProject, fmt.Append(nil, n%500)), uuid.NewSHA1(benchProject, fmt.Append(nil, n%2000))
	l.add(stream.Usage, id, &metering.Charged{
		ProjectID: id, OrganizationID: org, FlushID: uuid.New(), Month: "2026-11", Recalls: 5, RecallTenths: 5, At: at,
	})
	l.add(stream.Organization, org, &organization.CreditsGranted{
		OrganizationID: org, Kind: "bought", Tenths: 100, Month: "2026-11", GrantedAt: at,
	})
}
