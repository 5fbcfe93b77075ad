package pgtest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabase_OfTwoTests(t *testing.T) {
	ctx := t.Context()
	one, other := pgtest.Database(t), pgtest.Database(t)
	if _, err := one.Exec(ctx, "create table ops.only_here (id int)"); err != nil {
		t.Fatal(err)
	}
	var seen bool
	if err := other.QueryRow(ctx, "select to_regclass('ops.only_here') is not null").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if seen {
		t.Error("a table of one database is in the other")
	}
	var migrated bool
	if err := other.QueryRow(ctx, "select to_regclass('ops.leases') is not null").Scan(&migrated); err != nil {
		t.Fatal(err)
	}
	if !migrated {
		t.Error("schema ops is not migrated")
	}
}

func TestDatabase_ReleasedByAnotherTest(t *testing.T) {
	var name, again string
	t.Run("first", func(t *testing.T) {
		db := pgtest.Database(t)
		err := db.QueryRow(t.Context(), `with created as (
			insert into ops.leases (data_point, holder, until) values (gen_random_uuid(), 'a', now()) returning 1
		) select current_database() from created`).Scan(&name)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"create schema projection", "create table projection.rows (id int)", "create table ops.more (id int)",
			"create table public.rows (id int)",
		} {
			if _, err := db.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
	t.Run("second", func(t *testing.T) {
		var left int
		err := pgtest.Database(t).QueryRow(t.Context(), `select current_database(), (select count(*) from ops.leases)
			+ (select count(*) from pg_tables where tablename in ('rows', 'more'))
			+ (select count(*) from pg_namespace where nspname = 'projection')`).Scan(&again, &left)
		if err != nil {
			t.Fatal(err)
		}
		if again != name || left != 0 {
			t.Errorf("got database %s with %d leftovers, want %s with none", again, left, name)
		}
	})
}

// Programs of two packages of a run have one server and databases of their own; the last of them takes the server away,
// also if it is killed.
func TestServer_IsSharedByTheRun(t *testing.T) {
	if os.Getenv(pgtest.Variable) != "" {
		t.Skip("the server is not one of a run")
	}
	tree := t.TempDir() // another run
	var before []string
	for _, killed := range []bool{false, true} {
		first, second := another(t, tree), another(t, tree)
		one, other := first.identity(t), second.identity(t)
		if one[0] != other[0] || one[1] == other[1] {
			t.Errorf("two programs have %v and %v", one, other)
		}
		if before != nil && before[0] == one[0] {
			t.Errorf("the server %s is still there", before[0])
		}
		before = one
		first.end(t)
		if killed {
			runtest.Must(t, second.cmd.Process.Kill())
			_ = second.cmd.Wait()
		} else {
			second.end(t)
		}
		runtest.Await(t, "the server is gone", func() bool {
			left, err := filepath.Glob(filepath.Join(tree, "annals-pgtest-*"))
			runtest.Must(t, err)
			return len(left) == 0
		})
	}
}

// holding makes a test program hold a database until its input ends.
const holding = "ANNALS_PGTEST_HOLDS"

func TestHolds(t *testing.T) {
	if os.Getenv(holding) == "" {
		t.Skip("this is for programs that another test starts")
	}
	var server, name string
	err := pgtest.Database(t).QueryRow(t.Context(),
		"select pg_postmaster_start_time()::text, current_database()").Scan(&server, &name)
	runtest.Must(t, err)
	fmt.Printf("holds\t%s\t%s\n", server, name)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

// program is another test program.
type program struct {
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
}

func another(t *testing.T, tree string) *program {
	t.Helper()
	self, err := os.Executable()
	runtest.Must(t, err)
	p := &program{cmd: exec.CommandContext(t.Context(), self, "-test.run=^TestHolds$", "-test.v")}
	p.cmd.Dir, p.cmd.Stderr = tree, t.Output()
	p.cmd.Env = append(os.Environ(), holding+"=1", "TMPDIR="+tree)
	p.input, err = p.cmd.StdinPipe()
	runtest.Must(t, err)
	output, err := p.cmd.StdoutPipe()
	runtest.Must(t, err)
	p.lines = bufio.NewScanner(output)
	runtest.Must(t, p.cmd.Start())
	return p
}

// identity returns which server and database a program has.
func (p *program) identity(t *testing.T) []string {
	t.Helper()
	for p.lines.Scan() {
		if fields := strings.Split(p.lines.Text(), "\t"); fields[0] == "holds" {
			return fields[1:]
		}
	}
	t.Fatalf("the program ended: %v", p.lines.Err())
	return nil
}

func (p *program) end(t *testing.T) {
	t.Helper()
	runtest.Must(t, p.input.Close())
	for p.lines.Scan() {
	}
	runtest.Must(t, p.cmd.Wait())
}

// A uuid.UUID, a pointer to one and lists of them are what they were, in each form in which a statement takes and
// returns them.
func TestUUIDs(t *testing.T) {
	db := pgtest.Database(t)
	type row struct {
		One, Null      uuid.UUID
		Pointer, None  *uuid.UUID
		List           []uuid.UUID
		Text           string
		Nullable, Gone uuid.NullUUID
	}
	id, other := uuid.New(), uuid.New()
	want := row{
		One: id, Null: other, Pointer: &other, List: []uuid.UUID{id, other}, Text: id.String(),
		Nullable: uuid.NullUUID{UUID: id, Valid: true},
	}
	got := row{Null: other} // a null leaves it
	err := db.QueryRow(t.Context(), `select $1::uuid, null::uuid, $2::uuid, $3::uuid, $4::uuid[], $1::uuid::text, $5::uuid, $6::uuid`,
		id, &other, (*uuid.UUID)(nil), []uuid.UUID{id, other}, want.Nullable, uuid.NullUUID{}).Scan(
		&got.One, &got.Null, &got.Pointer, &got.None, &got.List, &got.Text, &got.Nullable, &got.Gone)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var one any
	if err := db.QueryRow(t.Context(), `select $1::uuid`, id).Scan(&one); err != nil || one != any(id) {
		t.Errorf("%v (%T), %v", one, one, err)
	}
	if err := db.QueryRow(t.Context(), `select 'no uuid'`).Scan(&got.One); err == nil {
		t.Error("a text is read as a uuid")
	}
}
