package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// The load of a chaos test, and how long a fault lasts and the next one waits, at most. The load is a
// tenth more than what must be accepted: calls that wait for a fault are made up for.
const (
	chaosSends   = 220 // a second
	chaosRecalls = 110 // a second
	chaosDeletes = 5   // a second
	chaosFault   = 8 * time.Second
	chaosPause   = 3 * time.Second
)

// TestChaos runs two processes of each role on a Postgres, an event store and, where
// ANNALS_TEST_ELASTICSEARCH names one, an Elasticsearch for ANNALS_CHAOS (such as 60s). Without an
// Elasticsearch it runs two processes of all roles. Under load a random process is killed or frozen
// every few seconds. At the end every acknowledged send is searchable, no deleted text was in an
// answer after its deletion was acknowledged, and a rebuild gives the same rows. ANNALS_SEED repeats
// the faults.
func TestChaos(t *testing.T) {
	text := os.Getenv("ANNALS_CHAOS")
	if text == "" {
		t.Skip("ANNALS_CHAOS names no duration")
	}
	lasts, err := time.ParseDuration(text)
	runtest.Must(t, err)
	seed := seedtest.Of(t)
	d := newChaosDeployment(t)
	d.start()
	l := newChaosLoad(t, d, seed)

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var load sync.WaitGroup
	l.run(ctx, &load)
	faults := d.breakParts(ctx, rand.New(rand.NewPCG(seed, 0)))
	l.keepRates()
	d.heal() // a process that ended by itself in the last fault may be what the open calls wait for
	load.Wait()
	t.Logf("%s; %s; %s", faults, l.rates(lasts), d.endedAlone())
	l.wantRecalls(lasts)
	if t.Failed() {
		return
	}

	l.settle()
	l.check("after the load")
	tables := d.quiesce()
	d.rebuild()
	d.wantRows(tables)
	d.start()
	l.check("after the rebuild")
}

// chaosFaults counts what was done to the processes.
type chaosFaults struct{ kills, freezes int }

func (f chaosFaults) String() string {
	return fmt.Sprintf("%d kills, %d freezes", f.kills, f.freezes)
}

// breakParts kills or freezes one process after the other until the context ends. It leaves every
// process running.
func (d *chaosDeployment) breakParts(ctx context.Context, rng *rand.Rand) (done chaosFaults) {
	d.t.Helper()
	for ctx.Err() == nil {
		for _, p := range d.parts {
			p.revive()
		}
		p := d.parts[rng.IntN(len(d.parts))]
		lasts := time.Duration(rng.Int64N(int64(chaosFault)))
		if rng.IntN(2) == 0 {
			d.t.Logf("kill %s for %s", p.name, lasts)
			p.kill()
			passes(ctx, lasts)
			p.begin()
			done.kills++
		} else {
			d.t.Logf("freeze %s for %s", p.name, lasts)
			p.freeze()
			passes(ctx, lasts)
			p.thaw()
			done.freezes++
		}
		passes(ctx, time.Duration(rng.Int64N(int64(chaosPause))))
	}
	return done
}

// passes lets time pass: the length of a fault is what the test is about.
func passes(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// chaosPart is one process of a deployment.
type chaosPart struct {
	t    *testing.T
	name string
	addr string
	args []string
	env  []string
	// ready reports whether the process serves; readiness is what it answered last, if it did not.
	ready     func() bool
	readiness string

	cmd  *exec.Cmd
	done chan error
	log  *runtest.Output
	// ended is why it ended by itself, each time.
	ended []string
}

func (p *chaosPart) begin() {
	p.t.Helper()
	p.cmd = exec.Command(binary, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	runtest.Must(p.t, p.cmd.Start())
	p.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(p.cmd, p.done)
}

// signal sends a signal. A process that has ended by itself takes none.
func (p *chaosPart) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.log.Tail(4<<10))
	}
}

// revive starts the process again if it has ended by itself, as whatever supervises it would: a start
// that does not reach the event store ends.
func (p *chaosPart) revive() (ended bool) {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.t.Logf("%s ended with %v, and is started again: %s", p.name, err, p.log.Tail(1<<10))
		p.ended = append(p.ended, fmt.Sprintf("%s: %v", p.name, err))
		p.begin()
		return true
	default:
		return false
	}
}

func (p *chaosPart) freeze() { p.signal(syscall.SIGSTOP) }
func (p *chaosPart) thaw()   { p.signal(syscall.SIGCONT) }

func (p *chaosPart) kill() {
	p.t.Helper()
	p.signal(os.Kill)
	<-p.done
	p.cmd = nil
}

// stop asks the process to end, if it runs.
func (p *chaosPart) stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	p.signal(os.Interrupt)
	if err := <-p.done; err != nil {
		p.t.Errorf("%s ended with %v\n%s", p.name, err, p.log.Tail(4<<10))
	}
	p.cmd = nil
}

// chaosDeployment is an event store, a database, an index and the processes of every role on them.
type chaosDeployment struct {
	t  *testing.T
	db *pgxpool.Pool
	// parts are all processes: the event store first, then those of the service.
	parts []*chaosPart
	// writers and readers are the indexes in parts of those that answer writes and reads.
	writers, readers []int

	mu     sync.Mutex
	errors []string
}

// errorf fails the test, and keeps what failed first to print it again after what the processes wrote.
func (d *chaosDeployment) errorf(format string, args ...any) {
	d.t.Helper()
	d.t.Errorf(format, args...)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.errors) < 5 {
		d.errors = append(d.errors, fmt.Sprintf(format, args...))
	}
}

func newChaosDeployment(t *testing.T) *chaosDeployment {
	t.Helper()
	dir, database := t.TempDir(), pgtest.URL(t)
	db, err := pg.OpenPool(t.Context(), database)
	runtest.Must(t, err)
	t.Cleanup(db.Close)
	d := &chaosDeployment{t: t, db: db}
	t.Cleanup(func() {
		if len(d.errors) > 0 {
			t.Logf("failed with: %s", strings.Join(d.errors, "\n"))
		}
	})
	store := runtest.FreeAddress(t)
	d.add("event store", store,
		[]string{"node", "--data-dir", filepath.Join(dir, "node"), "--addr", store, "--insecure", "--log-level", "error"}, nil)
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	env := []string{
		"ANNALS_EVENTSTORE=esdb://" + store + "?tls=false", "ANNALS_POSTGRES=" + database, "ANNALS_LOG_LEVEL=warn",
		"ANNALS_MIN_FREE_DISK=0", "ANNALS_HASH_KEY=" + key, "ANNALS_SEAL_KEY=" + key,
	}
	roles := []string{""}
	if index := os.Getenv("ANNALS_TEST_ELASTICSEARCH"); index != "" {
		env = append(env, "ANNALS_INDEX="+index, "ANNALS_INDEX_CA="+os.Getenv("ANNALS_TEST_ELASTICSEARCH_CA"))
		roles = []string{"write", "read", "projector", "pipeline"}
	}
	for _, role := range roles {
		for n := range 2 {
			own := env
			if role != "" {
				own = append(own[:len(own):len(own)], "ANNALS_ROLES="+role)
			}
			name, addr := strings.TrimSpace(fmt.Sprintf("%s %d", role, n+1)), runtest.FreeAddress(t)
			if role == "" || role == "write" {
				d.writers = append(d.writers, len(d.parts))
			}
			if role == "" || role == "read" {
				d.readers = append(d.readers, len(d.parts))
			}
			d.add(name, addr, []string{
				"serve", "--data-dir", filepath.Join(dir, name), "--api-addr", addr, "--console-addr", "127.0.0.1:0",
			}, own)
		}
	}
	return d
}

func (d *chaosDeployment) add(name, addr string, args, env []string) {
	p := &chaosPart{t: d.t, name: name, addr: addr, args: args, env: env, log: &runtest.Output{}}
	p.ready = func() bool {
		if args[0] == "node" {
			return true // those that need it wait for it
		}
		p.readiness = readiness(d.t.Context(), addr)
		return p.readiness == ""
	}
	d.t.Cleanup(func() {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if d.t.Failed() {
			d.t.Logf("%s said:\n%s\nnot ready when it was asked last: %q", name, p.log.Tail(6<<10), p.readiness)
		}
	})
	d.parts = append(d.parts, p)
}

// readiness returns why a process does not serve, and nothing if it does.
func readiness(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, chaosCall)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s: %s", res.Status, body)
	}
	return ""
}

// start starts what does not run, and waits until all is ready: the roles need each other. The second
// process that writes starts last, since two first starts at once would each write keys.
func (d *chaosDeployment) start() {
	d.t.Helper()
	const second = 2
	for i, p := range d.parts {
		if p.cmd == nil && i != second {
			p.begin()
		}
	}
	for i, p := range d.parts {
		if i != second {
			d.awaitReady(p)
		}
	}
	if p := d.parts[second]; p.cmd == nil {
		p.begin()
	}
	d.awaitReady(d.parts[second])
}

func (d *chaosDeployment) awaitReady(p *chaosPart) {
	d.t.Helper()
	runtest.Await(d.t, p.name+" is ready", func() bool {
		select {
		case err := <-p.done:
			d.t.Fatalf("%s ended: %v\n%s", p.name, err, p.log.Tail(4<<10))
		default:
		}
		return p.ready()
	})
}

// heal waits until every process is ready after the faults.
func (d *chaosDeployment) heal() {
	d.t.Helper()
	for _, p := range d.parts {
		runtest.Await(d.t, p.name+" is ready", func() bool { return !p.revive() && p.ready() })
	}
}

// endedAlone describes which processes ended by themselves.
func (d *chaosDeployment) endedAlone() string {
	var all []string
	for _, p := range d.parts {
		all = append(all, p.ended...)
	}
	return fmt.Sprintf("%d processes ended by themselves %q", len(all), all)
}

// clients returns a client of each process with the key of the first start.
func (d *chaosDeployment) clients(of []int) []*client.Client {
	d.t.Helper()
	key := (&service{t: d.t, dir: d.parts[1].args[2]}).credentials()["ANNALS_PROJECT_KEY"] // it started first
	all := make([]*client.Client, len(of))
	for i, n := range of {
		c, err := client.New("http://"+d.parts[n].addr, key, client.WithMaxAttempts(1))
		runtest.Must(d.t, err)
		all[i] = c
	}
	return all
}

// quiesce stops every process of the service once all is projected, keeps the rows of the
// projections. A stop appends what was metered: those that project read it when they start again,
// and the second stop has nothing to append.
func (d *chaosDeployment) quiesce() (tables []string) {
	d.t.Helper()
	d.stopService()
	d.start()
	d.stopService()
	return d.keepRows()
}

// stopService stops every process but the event store.
func (d *chaosDeployment) stopService() {
	d.t.Helper()
	for _, p := range d.parts[1:] {
		p.stop()
	}
}

// rebuild rebuilds every projection while nothing runs but the servers.
func (d *chaosDeployment) rebuild() {
	d.t.Helper()
	p := d.parts[len(d.parts)-1]
	cmd := exec.CommandContext(d.t.Context(), binary, "rebuild", "all", "--data-dir", p.args[2])
	cmd.Env = append(os.Environ(), p.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("rebuild: %v\n%s", err, out)
	}
}

// keepRows copies the tables of the projections into another schema, and returns their names.
func (d *chaosDeployment) keepRows() []string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), readyLimit)
	defer cancel()
	rows, err := d.db.Query(ctx, `select t.table_schema || '.' || t.table_name
		from information_schema.tables t join information_schema.tables c
			on c.table_schema = t.table_schema and c.table_name = 'checkpoint'
		where t.table_name <> 'checkpoint'`)
	runtest.Must(d.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		d.t.Fatalf("tables of projections: %v, %v", tables, err)
	}
	statements := []string{"create schema " + keptSchema}
	for _, table := range tables {
		statements = append(statements, "create table "+kept(table)+" as table "+table)
	}
	runtest.Must(d.t, errorOf(d.db.Exec(ctx, strings.Join(statements, "; "))))
	return tables
}

const keptSchema = "chaos_kept"

// kept is the name of the copy of a table.
func kept(table string) string {
	return keptSchema + "." + strings.ReplaceAll(table, ".", "_")
}

// wantRows compares the rows of tables with their copies, without positions: an event that is erased
// has none for a replay.
func (d *chaosDeployment) wantRows(tables []string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), readyLimit)
	defer cancel()
	for _, table := range tables {
		for _, side := range []struct{ what, rows, without string }{
			{"only before the rebuild", kept(table), table}, {"only after the rebuild", table, kept(table)},
		} {
			rows, err := d.db.Query(ctx, fmt.Sprintf(`select row::text || ', one of ' || count(*) over () from (
					select to_jsonb(t) - 'position' as row from %s t except all select to_jsonb(t) - 'position' from %s t
				) different order by 1 limit 3`, side.rows, side.without))
			runtest.Must(d.t, err)
			different, err := pgx.CollectRows(rows, pgx.RowTo[string])
			runtest.Must(d.t, err)
			for _, row := range different {
				d.errorf("%s: %s: %s", table, side.what, row)
			}
		}
	}
}
