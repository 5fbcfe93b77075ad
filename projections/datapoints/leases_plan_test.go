package datapoints_test

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// leaseItems is how many items wait in TestLease_ReadsWhatItLeases. "make soak" sets more.
var leaseItems = flag.Int("lease.items", 20_000, "items that wait while leases are planned")

// plan is a node of the output of explain.
type plan struct {
	Node   string  `json:"Node Type"`
	Index  string  `json:"Index Name"`
	Rows   float64 `json:"Actual Rows"`
	Loops  float64 `json:"Actual Loops"`
	Lost   float64 `json:"Rows Removed by Filter"`
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
	if err != nil {
		t.Fatal(err)
	}
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
				if _, err := db.Exec(t.Context(), `analyze datapoints.items, datapoints.sends, datapoints.revisions`); err != nil {
					t.Fatal(err)
				}
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
			held += size
			t.Logf("%d items, %d projects, analyzed %v: %.0f rows of projects, %.0f rows and %.0f blocks of items",
				*leaseItems, projects, analyzed, list.rows(), lease.rows(), lease.Blocks+lease.Read)
		}
	}
}

func projectsOf(t *testing.T, db *pgxpool.Pool) []uuid.UUID {
	t.Helper()
	rows, err := db.Query(t.Context(), `select distinct project_id from datapoints.items order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}
