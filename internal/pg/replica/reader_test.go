package replica_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a replicated database with one projection, and a reader.
type fixture struct {
	*testing.T
	*pgtest.Replicated
	db     *pgxpool.Pool // the primary
	reader *replica.Reader
	said   *output
}

// output holds what was logged.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) count(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Count(o.text.String(), text)
}

const createProjection = `create schema things;
	create table things.checkpoint (position bigint, version int);
	insert into things.checkpoint values (1, 3);
	create table things.rows (id int);
	insert into things.rows values (1)`

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, Replicated: pgtest.NewReplicated(t), said: &output{}}
	var err error
	if f.db, err = pg.OpenPool(t.Context(), f.Primary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.db.Close)
	f.exec(createProjection)
	f.CatchUp()
	f.reader = f.open(f.Replica)
	return f
}

// open opens a reader and watches its replica.
func (f *fixture) open(url string) *replica.Reader {
	f.Helper()
	r, err := replica.Open(f.Context(), replica.Config{
		URL: url, Primary: f.db, Versions: map[string]int{"things": 3}, Logger: slog.New(slog.NewTextHandler(f.said, nil)),
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
		r.Close()
	})
	return r
}

func (f *fixture) exec(sql string) {
	f.Helper()
	if _, err := f.db.Exec(f.Context(), sql); err != nil {
		f.Fatal(err)
	}
}

// read counts the rows at the replica as of a position.
func (f *fixture) read(at eventstore.Position) (rows int, ok bool) {
	f.Helper()
	ok, err := f.reader.Read(f.Context(), need(at), func(ctx context.Context, db replica.Snapshot) error {
		return db.QueryRow(ctx, `select count(*) from things.rows`).Scan(&rows)
	})
	if err != nil {
		f.Fatal(err)
	}
	return rows, ok
}

func need(at eventstore.Position) replica.Need {
	return replica.Need{Kind: "rows", Position: at, Projections: []string{"things"}}
}

// results returns the counter of the reads by result.
func (f *fixture) results() map[string]float64 {
	f.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.reader)
	families, err := registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	results := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "annals_postgres_replica_reads_total" {
			results[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "result" {
					results[label.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return results
}

func TestReader_Positions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if rows, ok := f.read(1); !ok || rows != 1 {
		t.Errorf("as of a position that was replayed: %d rows, %v", rows, ok)
	}
	if _, ok := f.read(2); ok {
		t.Error("a position that no checkpoint has was read at the replica")
	}
	f.Pause()
	f.exec(`update things.checkpoint set position = 2; delete from things.rows`)
	if _, ok := f.read(2); ok {
		t.Error("a replica that lags was read")
	}
	if rows, ok := f.read(0); !ok || rows != 1 {
		t.Errorf("as of any position: %d rows, %v", rows, ok)
	}
	f.Resume()
	runtest.Await(t, "the replica is in time again", func() bool { _, ok := f.read(2); return ok })
	if rows, _ := f.read(2); rows != 0 {
		t.Errorf("a deleted row was read as of its deletion")
	}
	// A read waits for a replica that follows closely.
	f.exec(`update things.checkpoint set position = 3`)
	runtest.Await(t, "a read is served just after the change", func() bool { _, ok := f.read(3); return ok })
	f.exec(`update things.checkpoint set version = 4`)
	f.CatchUp()
	if _, ok := f.read(0); ok {
		t.Error("rows of another version were read")
	}
	f.exec(`alter schema things rename to things_old; `)
	f.CatchUp()
	if _, ok := f.read(0); ok {
		t.Error("a missing schema was read")
	}
	f.exec(strings.ReplaceAll(createProjection, "id int", "id bigint, more text"))
	f.CatchUp()
	runtest.Await(t, "rows of the new schema are read", func() bool { _, ok := f.read(1); return ok })
	if r := f.results(); r["late"] < 4 || r["served"] < 4 || r["failed"] != 0 || r["annals_postgres_replica_up"] != 1 {
		t.Errorf("counted %v", r)
	}
}

func TestReader_ErrorsOfTheRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	try := func(err error) (bool, error) {
		return f.reader.Read(t.Context(), need(1), func(context.Context, replica.Snapshot) error { return err })
	}
	full := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "full")
	if ok, err := try(full); !ok || !errors.Is(err, full) {
		t.Errorf("a fault: %v, %v", ok, err)
	}
	if ok, err := try(replica.ErrDeclined); ok || err != nil {
		t.Errorf("a read that declines: %v, %v", ok, err)
	}
	if s := f.reader.Stat(); s.TotalConns() != 1 || s.AcquiredConns() != 0 {
		t.Errorf("%d connections are open, %d in use", s.TotalConns(), s.AcquiredConns())
	}
	ok, err := f.reader.Read(t.Context(), need(1), func(ctx context.Context, db replica.Snapshot) error {
		var id int
		return db.QueryRow(ctx, `delete from things.rows returning id`).Scan(&id)
	})
	if ok || err != nil {
		t.Errorf("a write: %v, %v", ok, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := f.reader.Read(ended, need(1), nil); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is over: %v, %v", ok, err)
	}
	if ok, err := (*replica.Reader)(nil).Read(t.Context(), need(1), nil); ok || err != nil {
		t.Errorf("no replica: %v, %v", ok, err)
	}
	if r := f.results(); r["served"] != 1 || r["declined"] != 1 {
		t.Errorf("counted %v", r)
	}
}

// A replica that ends is left alone, which is logged once, and reads go to it again once it is back.
func TestReader_ReplicaAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.read(1)
	f.Stop()
	for range 20 {
		if _, ok := f.read(1); ok {
			t.Fatal("a replica that ended was read")
		}
	}
	if r := f.results(); r["failed"] != 1 || r["away"] != 19 || r["annals_postgres_replica_up"] != 0 {
		t.Errorf("counted %v", r)
	}
	f.Start()
	runtest.Await(t, "the replica is read again", func() bool { _, ok := f.read(1); return ok })
	if n := f.said.count("reads go to it"); n != 1 {
		t.Errorf("its return was logged %d times", n)
	}
	if n := f.said.count("reads stay on the primary"); n == 0 || n > 3 {
		t.Errorf("its failure was logged %d times", n)
	}
	runtest.Await(t, "the lag is known", func() bool { _, known := f.results()["annals_postgres_replica_lag_seconds"]; return known })

	// A promoted replica follows nobody.
	f.OnReplica(`select pg_promote()`)
	runtest.Await(t, "a promoted replica is not read", func() bool { _, ok := f.read(1); return !ok })
	runtest.Await(t, "nor does it count as up", func() bool { return !f.reader.Up() })
}

// Of several hosts, one that is a standby is read.
func TestReader_SeveralHosts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reader = f.open(hosts(f.Primary, f.Replica))
	if !f.reader.Up() {
		t.Fatalf("it is not read:\n%s", f.said.text.String())
	}
	if rows, ok := f.read(1); !ok || rows != 1 {
		t.Errorf("%d rows, %v", rows, ok)
	}
	f.reader = f.open(f.Primary)
	if _, ok := f.read(1); ok || f.said.count("not in hot standby mode") == 0 {
		t.Errorf("the primary was taken for a replica:\n%s", f.said.text.String())
	}
}

// hosts returns an address with the hosts of several.
func hosts(first, second string) string {
	host := func(url string) string {
		_, rest, _ := strings.Cut(url, "host=")
		host, _, _ := strings.Cut(rest, "&")
		return host
	}
	return strings.Replace(strings.Replace(first, host(first), host(first)+","+host(second), 1), "port=5432", "port=5432,5432", 1)
}

// A server that can never serve is refused in words that tell why and repeat no password. A user without
// privileges can check that.
func TestOpen_WrongServers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`create role plain login`)
	f.exec(`create database other`)
	f.CatchUp()
	plain := strings.Replace(f.Replica, "annals@", "plain:secret@", 1)
	f.db.Close()
	var err error
	if f.db, err = pg.OpenPool(t.Context(), strings.Replace(f.Primary, "annals@", "plain@", 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.db.Close)
	if r := f.open(plain); !r.Up() {
		t.Errorf("a user without privileges cannot read:\n%s", f.said.text.String())
	}
	for name, c := range map[string]struct{ url, says string }{
		"another cluster":   {pgtest.URL(t), "another cluster"},
		"another database":  {strings.Replace(plain, "/annals?", "/other?", 1), `names the database "other"`},
		"a missing one":     {strings.Replace(plain, "/annals?", "/nothing?", 1), "does not exist"},
		"an unknown user":   {strings.Replace(plain, "plain:", "nobody:", 1), `role "nobody" does not exist`},
		"no address":        {"postgres://u:secret@h:port/db", "is no address such as"},
		"a password in two": {"postgres://u:sec/ret@h/db", "is no address such as"},
		"another scheme":    {"mysql://u:secret@h/db", "is no address such as"},
	} {
		_, err := replica.Open(t.Context(), replica.Config{URL: c.url, Primary: f.db})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}
