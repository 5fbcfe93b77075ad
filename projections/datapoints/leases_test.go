package datapoints_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// claimed leases and returns "source revision phase" of each item.
func (w *fixture) claimed(holder string, limit int, now time.Time) []string {
	w.t.Helper()
	items, _, err := w.Queries.Lease(w.t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: holder, Limit: limit, Now: now, Until: now.Add(time.Minute)})
	runtest.Must(w.t, err)
	names := map[uuid.UUID]string{}
	for name := range w.states {
		names[id(name)] = name
	}
	list := []string{}
	for _, i := range items {
		list = append(list, fmt.Sprintf("%s %d %s", names[i.DataPoint], i.Revision, i.Phase))
	}
	return list
}

func (w *fixture) wantClaimed(want []string, holder string, limit int, now time.Time) {
	w.t.Helper()
	same(w.t, "claimed by "+holder, want, w.claimed(holder, limit, now))
}

func TestLease_FairBetweenProjects(t *testing.T) {
	w := newFixture(t)
	for n := range 5 {
		w.revised(fmt.Sprintf("big %d", n), fmt.Sprintf("big %d", n), alone)
	}
	w.project = neighbour.ID
	w.revised("small 0", "small 0", alone)
	w.revised("small 1", "small 1", alone)
	w.apply()
	w.wantClaimed([]string{"big 0 1 queued", "small 0 1 queued", "big 1 1 queued"}, "one", 3, noon)
	w.wantClaimed([]string{"big 2 1 queued", "small 1 1 queued", "big 3 1 queued", "big 4 1 queued"}, "two", 100, noon)
	w.wantClaimed([]string{}, "two", 100, noon)
}

func TestLease_LowestOpenRevision(t *testing.T) {
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.revised("s2", "a", alone)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 100, noon)
	w.started("s1", "a", 0, 1, 1, 0)
	w.derived("s1", "a", 0, 1)
	w.apply()
	w.wantClaimed([]string{}, "two", 100, noon) // the data point is leased
	runtest.Must(t, w.Queries.Release(t.Context(), "one", []uuid.UUID{id("a")}))
	w.wantClaimed([]string{"a 2 queued"}, "two", 100, noon)
}

func TestLease_LostWorker(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 100, noon)
	w.started("s", "a", 0, 1, 1, 0)
	w.apply()
	w.wantClaimed([]string{}, "two", 100, noon.Add(59*time.Second))
	w.wantClaimed([]string{"a 1 processing"}, "two", 100, noon.Add(60*time.Second))
	if err := w.Queries.Release(t.Context(), "one", []uuid.UUID{id("a")}); err != nil { // no longer the holder's
		t.Fatal(err)
	}
	runtest.Must(t, w.Queries.Extend(t.Context(), "one", []uuid.UUID{id("a")}, noon))
	w.wantClaimed([]string{}, "one", 100, noon.Add(61*time.Second))
	runtest.Must(t, w.Queries.Extend(t.Context(), "two", []uuid.UUID{id("a")}, noon.Add(time.Hour)))
	w.wantClaimed([]string{}, "one", 100, noon.Add(59*time.Minute))
	runtest.Must(t, w.Queries.AbandonLeases(t.Context(), noon))
	w.wantClaimed([]string{"a 1 processing"}, "one", 100, noon)
}

func TestLease_Suspect(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.revised("t", "b", alone)
	w.apply()
	suspects := func(holder string, now time.Time, want map[string]bool) {
		t.Helper()
		items, _, err := w.Queries.Lease(t.Context(),
			work.LeaseRequest{Lane: work.LaneLive, Holder: holder, Limit: 10, Now: now, Until: now.Add(time.Minute)})
		runtest.Must(t, err)
		got := map[string]bool{}
		for _, i := range items {
			for name := range w.states {
				if id(name) == i.DataPoint {
					got[name] = i.Suspect
				}
			}
		}
		same(t, "claimed by "+holder+", and whether it is suspect", want, got)
	}
	suspects("one", noon, map[string]bool{"a": false, "b": false})
	runtest.Must(t, w.Queries.Release(t.Context(), "one", []uuid.UUID{id("b")}))
	suspects("two", noon.Add(time.Minute), map[string]bool{"a": true, "b": false})
	w.derived("t", "b", 0, 1)
	w.revised("v", "c", alone)
	w.apply()
	suspects("two", noon.Add(time.Minute), map[string]bool{"c": false})
	w.derived("v", "c", 0, 1)
	w.apply()
	// A lease of a process that has ended is suspect at once. A lease of finished work is
	// forgotten.
	later := noon.Add(90 * time.Second)
	runtest.Must(t, w.Queries.AbandonLeases(t.Context(), later))
	runtest.Must(t, w.Queries.ForgetLeases(t.Context(), later))
	w.revised("x", "b", alone)
	w.revised("y", "c", alone)
	w.apply()
	suspects("three", later, map[string]bool{"a": true, "b": false, "c": false})
}

func TestLease_ConcurrentHolders(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const items, holders = 60, 8
	for n := range items {
		w.revised(fmt.Sprint(n), fmt.Sprint(n), alone)
	}
	w.apply()
	type result struct {
		items []work.Item
		err   error
	}
	results := make(chan result, holders)
	for n := range holders {
		go func() {
			var all []work.Item
			for range items {
				got, _, err := w.Queries.Lease(t.Context(),
					work.LeaseRequest{Lane: work.LaneLive, Holder: fmt.Sprint(n), Limit: 3, Now: noon, Until: noon.Add(time.Minute)})
				if err != nil {
					results <- result{err: err}
					return
				}
				all = append(all, got...)
			}
			results <- result{items: all}
		}()
	}
	seen := map[uuid.UUID]int{}
	for range holders {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		for _, i := range r.items {
			seen[i.DataPoint]++
		}
	}
	for dataPoint, times := range seen {
		if times != 1 {
			t.Errorf("data point %s was claimed %d times", dataPoint, times)
		}
	}
	if len(seen) != items {
		t.Errorf("%d of %d items were claimed", len(seen), items)
	}
}

func TestLease_AttemptAndRound(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	in := w.committed("s", "a", "b")
	w.revised("s", "a", in(0))
	w.revised("s", "b", in(1))
	w.fannedOut("s", ingestion.Outcome{Outcome: ingestion.Created, Revision: 1},
		ingestion.Outcome{Outcome: ingestion.Created, Revision: 1})
	w.derived("s", "a", 0, 1)
	w.missed("s", "b", 1, 1, 5, 0, true)
	w.stopped("s", ingestion.ModelUnavailable)
	w.retried("s", 1)
	w.missed("s", "b", 1, 1, 1, 1, false)
	last := w.last
	w.apply()
	got, _, err := w.Queries.Lease(t.Context(),
		work.LeaseRequest{Lane: work.LaneBulk, Holder: "one", Limit: 10, Now: noon, Until: noon.Add(time.Minute)})
	runtest.Must(t, err)
	want := []work.Item{{
		ProjectID: project.ID, IngestionID: id("s"), DataPoint: id("b"), Ordinal: 1, Revision: 1,
		Attempt: 1, Round: 1, Lane: work.LaneBulk, Phase: work.Queued, Position: last,
		Text: &work.Text{Content: "content of b", OccurredAt: noon},
	}}
	same(t, "claimed", want, got)
}

// A request scans the oldest items of a project only, and more if they all belong to a leased data
// point.
func TestLease_ManyOpenRevisions(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for n := range 90 {
		w.revised(fmt.Sprint("heavy ", n), "heavy", alone)
	}
	w.revised("s", "behind", alone)
	w.apply()
	w.wantClaimed([]string{"heavy 1 queued"}, "one", 1, noon)
	w.wantClaimed([]string{"behind 1 queued"}, "one", 1, noon)
	w.wantClaimed([]string{}, "one", 1, noon)
}

// A retry queues an item after items with higher revisions of its data point, but it must be
// derived first.
func TestLease_RetriedRevision(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("first", "a", alone)
	w.started("first", "a", 0, 1, 5, 0)
	w.missed("first", "a", 0, 1, 5, 0, true)
	w.stopped("first", ingestion.Internal)
	for n := range 20 {
		w.revised(fmt.Sprint("later ", n), "a", alone)
	}
	w.retried("first", 1)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 1, noon)
}

// If more projects have work than one request covers, each request continues with the next
// projects.
func TestLease_ManyProjects(t *testing.T) {
	w := newFixture(t)
	const projects, each = 10, 3
	for p := range projects {
		w.project = uuid.NewSHA1(uuid.Nil, []byte{byte(p)})
		for n := range each {
			name := fmt.Sprint(p, " ", n)
			w.revised(name, name, alone)
		}
	}
	w.apply()
	var next uuid.UUID
	claimed := map[uuid.UUID]int{}
	claim := func(limit int) (items []work.Item) {
		t.Helper()
		var err error
		items, next, err = w.Queries.Lease(t.Context(),
			work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: limit, After: next, Now: noon, Until: noon.Add(time.Minute)})
		runtest.Must(t, err)
		for _, i := range items {
			claimed[i.ProjectID]++
		}
		return items
	}
	for range projects / 2 {
		if items := claim(2); len(items) != 2 {
			t.Fatalf("claimed %d items", len(items))
		}
	}
	if len(claimed) != projects {
		t.Fatalf("so many claims as projects served %d of %d", len(claimed), projects)
	}
	// A project without work is skipped, and the request is filled from the others, also after the
	// last project.
	if items := claim(projects*each - projects - 1); len(items) != projects*each-projects-1 {
		t.Errorf("claimed %d items", len(items))
	}
	if items := claim(100); len(items) != 1 {
		t.Errorf("claimed %d items at last", len(items))
	}
	for p, n := range claimed {
		if n != each {
			t.Errorf("project %s: claimed %d of %d", p, n, each)
		}
	}
	if items := claim(100); len(items) != 0 {
		t.Errorf("claimed %d items of nothing", len(items))
	}
}

// Projects whose items are leased do not keep a request from reaching other projects.
func TestLease_LeasedProjectsAreSkipped(t *testing.T) {
	w := newFixture(t)
	for p := range 40 {
		w.project = uuid.NewSHA1(uuid.Nil, []byte{byte(p)})
		w.revised(fmt.Sprint(p), fmt.Sprint(p), alone)
	}
	w.apply()
	c := work.LeaseRequest{Lane: work.LaneLive, Holder: "one", Limit: 39, Now: noon, Until: noon.Add(time.Minute)}
	if items, _, err := w.Queries.Lease(t.Context(), c); err != nil || len(items) != 39 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	c.Limit = 1
	if items, _, err := w.Queries.Lease(t.Context(), c); err != nil || len(items) != 1 {
		t.Errorf("%d items, %v", len(items), err)
	}
}

// leaseItems is how many items wait in TestLease_ReadsWhatItLeases. "make soak" sets more.
var leaseItems = flag.Int("lease.items", 20_000, "items that wait while leases are planned")

// plan is a node of the output of explain.
type plan struct {
	Node   string  `json:"Node Type"`
	Index  string  `json:"Index Name"`
	Rows   float64 `json:"Actual Rows"`
	Loops  float64 `json:"Actual Loops"`
	Lost   float64 `json:"Rows Removed by Filter"`
	Pairs  float64 `json:"Rows Removed by Join Filter"`
	Blocks float64 `json:"Shared Hit Blocks"`
	Read   float64 `json:"Shared Read Blocks"`
	Plans  []plan  `json:"Plans"`
}

// rows sums the rows that the scans of a plan read from tables.
func (p plan) rows() (sum float64) {
	if p.Index != "" || p.Node == "Seq Scan" {
		sum = (p.Rows + p.Lost) * p.Loops
	}
	for _, child := range p.Plans {
		sum += child.rows()
	}
	return sum
}

// pairs sums the pairs of rows that joins of a plan compare in vain.
func (p plan) pairs() (sum float64) {
	sum = p.Pairs * p.Loops
	for _, child := range p.Plans {
		sum += child.pairs()
	}
	return sum
}

// explained runs a statement of a lease, as a lease does, and returns its plan.
func explained(t *testing.T, db *pgxpool.Pool, statement string, args ...any) plan {
	t.Helper()
	var plans []struct{ Plan plan }
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), datapoints.PlanLease); err != nil {
			return err
		}
		var output []byte
		if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+statement, args...).
			Scan(&output); err != nil {
			return err
		}
		return json.Unmarshal(output, &plans)
	})
	runtest.Must(t, err)
	return plans[0].Plan
}

// A lease reads about as many rows as it leases and as projects have work, however many items wait, and
// whether or not Postgres has statistics of them.
func TestLease_ReadsWhatItLeases(t *testing.T) {
	const size, leased = 256, 1024
	for _, projects := range []int{1, 64} {
		db := pgtest.Database(t)
		projectiontest.Make(t, db, datapoints.New(nil))
		fillBacklog(t, db, projects, *leaseItems/projects)
		q, held := datapoints.Queries{DB: db}, 0
		for _, analyzed := range []bool{false, true} {
			if analyzed {
				exec(t, db, `analyze datapoints.items, datapoints.sends, datapoints.revisions`)
			}
			// Leases of others, which a lease passes over.
			request := work.LeaseRequest{
				Lane: work.LaneBulk, Holder: "other", Limit: leased, Now: noon, Until: noon.Add(time.Minute),
			}
			others, _, err := q.Lease(t.Context(), request)
			if err != nil || len(others) != leased {
				t.Fatalf("leased %d items, %v", len(others), err)
			}
			held += leased
			list := explained(t, db, datapoints.SelectDueProjects, uuid.Nil, uuid.Max, size, work.LaneBulk)
			if rows := list.rows(); rows > float64(5*projects+5) {
				t.Errorf("%d projects, analyzed %v: the list of projects reads %.0f rows", projects, analyzed, rows)
			}
			ids := projectsOf(t, db)
			lease := explained(t, db, datapoints.LeaseItems, size, "one", noon, noon.Add(time.Minute),
				size/projects, 1<<14, ids, work.LaneBulk, 4<<20)
			// Of each item: itself, its lease, its send and its text; of each leased one: itself and its lease.
			most := float64(5*size + 2*held + 5*projects)
			if rows := lease.rows(); rows > most || rows < size {
				t.Errorf("%d projects, analyzed %v: a lease reads %.0f rows, want at most %.0f", projects, analyzed, rows, most)
			}
			if pairs := lease.pairs(); pairs > 0 {
				t.Errorf("%d projects, analyzed %v: a lease compares %.0f pairs of rows in vain", projects, analyzed, pairs)
			}
			held += size
			t.Logf("%d items, %d projects, analyzed %v: %.0f rows of projects, %.0f rows and %.0f blocks of items",
				*leaseItems, projects, analyzed, list.rows(), lease.rows(), lease.Blocks+lease.Read)
		}
	}
}

func projectsOf(t *testing.T, db *pgxpool.Pool) []uuid.UUID {
	t.Helper()
	rows, err := db.Query(t.Context(), `select distinct project_id from datapoints.items order by 1`)
	runtest.Must(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	runtest.Must(t, err)
	return ids
}
