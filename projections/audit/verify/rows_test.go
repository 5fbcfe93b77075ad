package verify_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/verify"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The rows of the projection are those of the log, before and after a rebuild, and each damage of them is found.
func TestVerify_Rows(t *testing.T) {
	s := newSubject(t, 7, 2400)
	s.Scavenge()
	s.read(t)
	p, db := audit.New(s.Store, s.Codec), pgtest.Database(t)
	projectiontest.Make(t, db, p)
	projectiontest.Apply(t, db, p, s.Events(0)...)
	v := verify.Verifier{
		Log: eventstore.Journal{Store: s.Store, Codec: s.Codec}, Trees: audit.Queries{DB: db},
	}
	find := func() *verify.Finding {
		t.Helper()
		report, err := v.Verify(t.Context(), verify.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return report.Finding
	}
	if f := find(); f != nil {
		t.Fatalf("found %+v", f)
	}
	for name, c := range map[string]struct{ damage, what string }{
		"a record":         {flipped("bundles", "records", 70) + ` where n = 1`, verify.Changed},
		"a position":       {flipped("bundles", "positions", 15) + ` where n = 1`, verify.Missing},
		"a tile":           {flipped("tiles", "hashes", 40) + ` where level = 1`, verify.Tile},
		"a tile removed":   {`delete from audit.tiles where level = 1`, verify.Tile},
		"a bundle removed": {`delete from audit.bundles where n = 1`, verify.Missing},
		"the last bundle removed": {`delete from audit.bundles b where n = (select size / 256 from audit.trees t
			where t.organization_id = b.organization_id)`, verify.Missing},
		"the newest checkpoint": {`update audit.trees set checkpoint = replace(checkpoint, E'\n', E'\n1')`, verify.Tile},
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, c.damage)
			if f := find(); f == nil || f.What != c.what {
				t.Errorf("found %+v, want %s", f, c.what)
			}
			projectiontest.Empty(t, db, p)
			projectiontest.Apply(t, db, p, s.Events(0)...)
			if f := find(); f != nil {
				t.Errorf("after a rebuild %+v", f)
			}
		})
	}
}

// flipped is a statement that flips a bit of a byte of a column.
func flipped(table, column string, at int) string {
	return fmt.Sprintf("update audit.%s set %s = set_byte(%s, %d, get_byte(%s, %d) # 1)", table, column, column, at, column, at)
}

func exec(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql)
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%d rows, %v", tag.RowsAffected(), err)
	}
}
