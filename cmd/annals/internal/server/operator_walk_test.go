package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// operatorWalk is a service under load on stores that an operator changes: a node that can be put back from a copy, and
// a database that another application uses too, which is reached through a pooler by a role without rights beyond those
// of docs/stores.md.
type operatorWalk struct {
	*harness
	log    *replaceable
	pooler *pgtest.Bouncer
	mode   string
	// admin is a superuser in the database; role is the user of the service.
	admin          *pgx.Conn
	database, role string
	rng            *rand.Rand
	load           *steadyLoad
	others         otherApplication
	// confirmed is how many of the acknowledged sends were found completed and recalled.
	confirmed int
}

// acknowledged is a send that the service has taken. Its text has a word that no other has.
type acknowledged struct{ id, send, word string }

func contentOf(word string) string { return "The word of today is " + word + "." }

// steadyLoad sends texts one after the other, whatever happens to the service.
type steadyLoad struct {
	t   *testing.T
	key string
	// api is the address of the service, which changes with each start.
	api atomic.Pointer[string]

	mu    sync.Mutex
	taken []acknowledged
	// refused counts the other answers by status and message.
	refused map[string]int
}

// loadWidth is how many sends are made at a time, and loadPause the pause of each sender after an answer: what is sent
// while the others are confirmed must not become more.
const (
	loadWidth    = 3
	loadPause    = 300 * time.Millisecond
	confirmWidth = 8
	// loadCall is how long a sender waits for an answer.
	loadCall = time.Minute
)

// run sends until the context ends.
func (l *steadyLoad) run(ctx context.Context) {
	var senders sync.WaitGroup
	for sender := range loadWidth {
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.send(fmt.Sprintf("sender-%d-%d", sender, n))
				_ = backoff.Pause(ctx, loadPause, nil)
			}
		})
	}
	senders.Wait()
}

func (l *steadyLoad) send(id string) {
	word := runtest.Word()
	status, body, err := l.call(http.MethodPost, "/ingest", point{"id": id, "content": contentOf(word)})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused["no answer"]++ // the service restarts
		return
	}
	if status != http.StatusAccepted {
		l.refused[strconv.Itoa(status)+" "+messageOf(body)]++
		if status != http.StatusServiceUnavailable {
			l.t.Errorf("send %s: %d %s", id, status, body)
		}
		return
	}
	var receipt struct{ IngestionID string }
	if err := json.Unmarshal(body, &receipt); err != nil {
		l.t.Error(err)
	}
	l.taken = append(l.taken, acknowledged{id, receipt.IngestionID, word})
}

func messageOf(body []byte) string {
	var refusal struct{ DebugMessage string }
	if json.Unmarshal(body, &refusal) != nil {
		return string(body)
	}
	return refusal.DebugMessage
}

// call makes a call of the API.
func (l *steadyLoad) call(method, path string, body any) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), loadCall)
	defer cancel()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, *l.api.Load()+api+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// count is how many sends were acknowledged.
func (l *steadyLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.taken)
}

// forget removes the sends that were acknowledged after a count of them: their log was given up.
func (l *steadyLoad) forget(after int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = l.taken[:after]
}

func (l *steadyLoad) since(n int) []acknowledged {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.taken[n:])
}

// start starts the service, and gives the load its address.
func (w *operatorWalk) start() {
	w.t.Helper()
	w.harness.start()
	w.load.api.Store(&w.urls.API)
}

// awaitEffect waits until the service takes sends in spite of what the operator did, or shows the reason why not.
func (w *operatorWalk) awaitEffect(what string) {
	w.t.Helper()
	taken := w.load.count()
	runtest.Await(w.t, what+": sends are taken, or /readyz shows why not", func() bool {
		got := w.readyz()
		return w.load.count() >= taken+loadWidth || got.status != http.StatusOK ||
			strings.Contains(got.body, string(lockAwaited))
	})
	if got := w.readyz(); got.status != http.StatusOK && !strings.Contains(got.body, `"reason":"`) {
		w.t.Errorf("%s: /readyz gives no reason: %s", what, got.body)
	}
}

// settle waits until the service is ready, every acknowledged send is completed and recalled, and checks that the other
// application has what it had.
func (w *operatorWalk) settle(what string) {
	w.t.Helper()
	runtest.Await(w.t, what+": the service is ready again", func() bool {
		got := w.readyz()
		if strings.Contains(got.body, "setAside") {
			w.t.Fatalf("%s: an event is set aside: %s", what, got.body)
		}
		return got.status == http.StatusOK
	})
	taken := w.load.since(w.confirmed)
	var group errgroup.Group
	group.SetLimit(confirmWidth)
	for _, a := range taken {
		group.Go(func() error { return w.confirm(a) })
	}
	if err := group.Wait(); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	w.confirmed += len(taken)
	w.others.check(w)
}

// confirm waits until a send is completed and recalled.
func (w *operatorWalk) confirm(a acknowledged) error {
	for _, c := range []struct {
		method, path string
		body         any
		want         string
	}{
		{http.MethodGet, "/ingest/" + a.send, nil, `"status":"completed"`},
		{http.MethodPost, "/recall", point{"query": "the word " + a.word, "identity": "ana"}, contentOf(a.word)},
	} {
		pause, last := backoff.Backoff{First: 10 * time.Millisecond, Longest: time.Second}, ""
		for deadline := time.Now().Add(runtest.Timeout); ; {
			status, answer, err := w.load.call(c.method, c.path, c.body)
			if err == nil && status == http.StatusOK && bytes.Contains(answer, []byte(c.want)) {
				break
			}
			if last = fmt.Sprint(status, " ", string(answer), " ", err); time.Now().After(deadline) {
				return fmt.Errorf("send %s: %s %s: not within %s: %s: %s", a.id, c.method, c.path, runtest.Timeout, c.want, last)
			}
			if err := pause.Wait(w.background()); err != nil {
				return err
			}
		}
	}
	return nil
}

func newOperatorWalk(t *testing.T) *operatorWalk {
	h, log := newReplaceableHarness(t)
	w := &operatorWalk{
		harness: h, log: log, mode: pgtest.SessionMode,
		rng: rand.New(rand.NewPCG(seedtest.Of(t), 0)),
	}
	address := emptyDatabase(t)
	w.admin = asAdmin(t, address)
	runtest.Must(t, w.admin.QueryRow(t.Context(), `select current_database()`).Scan(&w.database))
	w.role = fmt.Sprintf("annals_walk_%d_%d", os.Getpid(), storesRoles.Add(1))
	t.Cleanup(func() {
		runScript(t, w.admin, "drop owned by "+w.role+" cascade;\ndrop role "+w.role)
	})
	runScript(t, w.admin, "create role "+w.role+" login;\ngrant connect, create on database "+w.database+" to "+w.role)
	w.pooler = pgtest.NewBouncer(t, withUser(t, address, w.role, w.database), w.mode)
	h.postgres = w.pooler.URL()
	set := h.set
	h.set = func(cfg *Config) {
		set(cfg)
		cfg.RateLimit = new(0)
	}
	w.load = &steadyLoad{t: t, refused: map[string]int{}}
	return w
}

// stepsOf is how many steps a walk has: as many as an environment variable asks for, or fewer.
func stepsOf(t *testing.T, variable string, few int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return few
	}
	steps, err := strconv.Atoi(text)
	runtest.Must(t, err)
	return steps
}

// An operator restarts, freezes, restores, locks, takes rights away and gives them back, changes the mode of the
// pooler, and runs another application on the same stores, in a random order under load: every acknowledged send is
// completed and recalled, or the service shows why it takes none, and nothing of the other application is changed.
// ANNALS_OPERATOR_STEPS makes it longer.
func TestOperator_Walk(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector looks at the tests of each step")
	}
	t.Parallel()
	steps := stepsOf(t, "ANNALS_OPERATOR_STEPS", 12)
	w := newOperatorWalk(t)
	w.start()
	w.load.key, _ = w.keys()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); w.load.run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	w.settle("before the first step")
	var deck []int // each step comes once before any comes again
	for n := range steps {
		if len(deck) == 0 {
			deck = w.rng.Perm(len(operatorSteps))
		}
		step := operatorSteps[deck[0]]
		deck = deck[1:]
		what, began := fmt.Sprintf("step %d, %s", n, step.name), time.Now()
		step.do(w, what)
		w.settle(what)
		t.Logf("%s took %s", what, time.Since(began).Round(time.Millisecond))
	}
	stop()
	<-ended
	w.confirmed = 0
	w.settle("after the last step")
	t.Logf("%d sends were acknowledged, and are completed and recalled; others: %v", w.confirmed, w.load.refused)
	if w.confirmed < steps {
		t.Errorf("%d sends in %d steps are no load", w.confirmed, steps)
	}
}

// operatorStep is what an operator does, and undoes.
type operatorStep struct {
	name string
	do   func(w *operatorWalk, what string)
}

// operatorSteps are all that an operator does. A step leaves the stores such that the service becomes ready by itself.
var operatorSteps = []operatorStep{
	{"the service restarts", func(w *operatorWalk, _ string) { w.stop(); w.start() }},
	{"the event store restarts", func(w *operatorWalk, _ string) { w.log.restart(func() {}) }},
	{"the event store freezes", func(w *operatorWalk, what string) {
		w.log.wire.Mute(true)
		w.awaitEffect(what)
		w.log.wire.Mute(false)
		w.log.wire.Cut() // what it answered meanwhile is lost
	}},
	{"the newer log is put back", func(w *operatorWalk, what string) { w.restore(what, false) }},
	{"the older log is accepted", func(w *operatorWalk, what string) { w.restore(what, true) }},
	{"Postgres freezes", func(w *operatorWalk, what string) {
		w.pooler.Freeze()
		w.awaitEffect(what)
		w.pooler.Thaw()
	}},
	{"sessions are ended", func(w *operatorWalk, _ string) { w.endSessions() }},
	{"a table has another owner", func(w *operatorWalk, what string) {
		table := w.table()
		w.sql("alter table " + table + " owner to " + w.admin.Config().User)
		w.awaitEffect(what + " " + table)
		w.sql("alter table " + table + " owner to " + w.role)
	}},
	{"a schema has no rights", func(w *operatorWalk, what string) {
		schema, _, _ := strings.Cut(w.table(), ".")
		w.sql("revoke all on schema " + schema + " from " + w.role)
		w.awaitEffect(what + " " + schema)
		w.sql("grant all on schema " + schema + " to " + w.role)
	}},
	{"a table is locked", func(w *operatorWalk, what string) {
		tx, err := w.admin.Begin(w.background())
		runtest.Must(w.t, err)
		table := w.table()
		_, err = tx.Exec(w.background(), "lock table "+table+" in access exclusive mode")
		runtest.Must(w.t, err)
		w.awaitEffect(what + " " + table)
		runtest.Must(w.t, tx.Rollback(w.background()))
	}},
	{"the database is read-only", func(w *operatorWalk, what string) {
		w.sql("alter database " + w.database + " set default_transaction_read_only = on")
		w.endSessions()
		w.awaitEffect(what)
		w.sql("set default_transaction_read_only = off")
		w.sql("alter database " + w.database + " reset default_transaction_read_only")
		w.endSessions() // the pooler keeps those that were opened meanwhile
		// One that was just being opened is listed later: no program without retries must get it.
		taken := w.load.count()
		runtest.Await(w.t, what+": sends are taken again", func() bool { return w.load.count() > taken+loadWidth })
		w.endSessions()
	}},
	{"the pooler changes its mode", func(w *operatorWalk, _ string) {
		if w.mode = pgtest.SessionMode; w.rng.IntN(2) == 0 {
			w.mode = pgtest.TransactionMode
		}
		w.pooler.SetMode(w.mode)
	}},
	{"another application makes schemas", func(w *operatorWalk, _ string) { w.others.makeSchema(w) }},
	{"another application has a schema of our name", (*operatorWalk).refusesSchema},
	{"another application writes streams", func(w *operatorWalk, _ string) { w.others.writeStreams(w) }},
}

func (w *operatorWalk) background() context.Context { return context.WithoutCancel(w.t.Context()) }

func (w *operatorWalk) sql(statement string) {
	w.t.Helper()
	if _, err := w.admin.Exec(w.background(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *operatorWalk) endSessions() {
	w.t.Helper()
	w.sql(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '` + w.role + `'`)
}

// table is one of the tables of the service, with its schema.
func (w *operatorWalk) table() string {
	w.t.Helper()
	rows, err := w.admin.Query(w.background(),
		`select schemaname || '.' || tablename from pg_tables where tableowner = $1 order by 1`, w.role)
	runtest.Must(w.t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(w.t, err)
	return names[w.rng.IntN(len(names))]
}

// restore puts the event store back from a copy that lacks some sends. The service takes no send after that, and shows
// why. Then the operator puts the newer log back, or accepts the older one, of which the sends after the copy are gone.
func (w *operatorWalk) restore(what string, accept bool) {
	w.t.Helper()
	before, others := w.load.count(), maps.Clone(w.others.streams)
	kept, newer := filepath.Join(w.log.TempDir(), "copy"), filepath.Join(w.log.TempDir(), "newer")
	w.log.restart(func() { runtest.Must(w.t, os.CopyFS(kept, os.DirFS(w.log.dir))) })
	copied := w.load.count()
	runtest.Await(w.t, what+": sends are taken after the copy", func() bool { return w.load.count() > copied+loadWidth })
	w.log.restart(func() {
		runtest.Must(w.t, os.Rename(w.log.dir, newer))
		runtest.Must(w.t, os.Rename(kept, w.log.dir))
	})
	runtest.Await(w.t, what+": /readyz shows that the log is an older copy", func() bool {
		return strings.Contains(w.readyz().body, "older copy")
	})
	w.stop()
	if accept {
		// A renewal that the stop cut off may have come after the release: then the rebuild is refused for four seconds.
		runtest.Await(w.t, what+": no process has the lease of the index", func() bool {
			var left bool
			err := w.admin.QueryRow(w.background(), `select until > clock_timestamp() from recallindex.checkpoint`).Scan(&left)
			runtest.Must(w.t, err)
			return !left
		})
		w.acceptOlderCopy()
		w.load.forget(before)
		w.confirmed, w.others.streams = min(w.confirmed, before), others
		runtest.Must(w.t, os.RemoveAll(newer))
	} else {
		w.log.restart(func() {
			runtest.Must(w.t, os.RemoveAll(w.log.dir))
			runtest.Must(w.t, os.Rename(newer, w.log.dir))
		})
	}
	w.start()
}

// refusesSchema restarts the service next to a schema of another application that has a name of the service: the start
// is refused, and the schema keeps what it holds. The other application gives it another name.
func (w *operatorWalk) refusesSchema(string) {
	w.t.Helper()
	schema := fmt.Sprintf("trace_old_%d", 1000+w.rng.IntN(1000))
	if w.rng.IntN(2) == 0 {
		schema = "memories_next"
	}
	w.sql("create schema " + schema + "; create table " + schema + ".customers (name text); insert into " + schema +
		".customers values ('Ana')")
	w.stop()
	w.wantRefused("schema " + schema + " of the database is of another application")
	name := w.others.name(w)
	w.sql("alter schema " + schema + " rename to " + name)
	w.others.schemas[name] = 1
	w.start()
}

// otherApplication is another application on the same stores: how many customers are in each of its schemas, and which
// events in each of its streams.
type otherApplication struct {
	schemas map[string]int
	streams map[string][]uuid.UUID
	names   int
}

func (o *otherApplication) name(w *operatorWalk) string {
	if o.schemas == nil {
		o.schemas = map[string]int{}
	}
	o.names++
	return fmt.Sprintf("%s_%d", []string{"crm", "usage_of_others", "directory_data"}[w.rng.IntN(3)], o.names)
}

func (o *otherApplication) makeSchema(w *operatorWalk) {
	w.t.Helper()
	name, rows := o.name(w), 1+w.rng.IntN(5)
	w.sql(fmt.Sprintf("create schema %s; create table %s.customers as select 'Ana' as name from generate_series(1, %d)",
		name, name, rows))
	o.schemas[name] = rows
	if len(o.schemas) > 20 { // it gives up an old one
		old := slices.Sorted(maps.Keys(o.schemas))[0]
		w.sql("drop schema " + old + " cascade")
		delete(o.schemas, old)
	}
}

// open connects the other application to the event store.
func (o *otherApplication) open(w *operatorWalk) *esdb.Store {
	w.t.Helper()
	store, err := esdb.Open(esdb.Config{
		ConnectionString: w.log.node.Connection().ConnectionString(), Logger: runtest.Warnings(w.t),
	})
	runtest.Must(w.t, err)
	return store
}

// writeStreams writes to streams whose names are nearly those of the service.
func (o *otherApplication) writeStreams(w *operatorWalk) {
	w.t.Helper()
	if o.streams == nil {
		o.streams = map[string][]uuid.UUID{}
	}
	store := o.open(w)
	defer func() { runtest.Must(w.t, store.Close()) }()
	for _, category := range []string{"project", "person", "identity", "usage", "memory", "crm"} {
		name := fmt.Sprintf("%s-%d", category, w.rng.IntN(5))
		e := eventstore.Proposed{ID: uuid.New(), Type: "customer.called", Data: []byte(`{"name":"Ana"}`), Meta: []byte(`{}`)}
		at := eventstore.Revision(len(o.streams[name]) - 1)
		if _, err := store.Append(w.background(), name, at, []eventstore.Proposed{e}); err != nil {
			w.t.Fatalf("append of the other application: %v", err)
		}
		o.streams[name] = append(slices.Clip(o.streams[name]), e.ID)
	}
}

// check checks that the other application has what it had.
func (o *otherApplication) check(w *operatorWalk) {
	w.t.Helper()
	for schema, want := range o.schemas {
		var n int
		err := w.admin.QueryRow(w.background(), "select count(*) from "+schema+".customers").Scan(&n)
		if err != nil || n != want {
			w.t.Fatalf("schema %s has %d customers, want %d: %v", schema, n, want, err)
		}
	}
	if len(o.streams) == 0 {
		return
	}
	store := o.open(w)
	defer func() { runtest.Must(w.t, store.Close()) }()
	for name, want := range o.streams {
		events, err := store.Read(w.background(), name, 0, eventstore.Forwards, len(want)+1)
		var got []uuid.UUID
		for _, e := range events {
			got = append(got, e.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			w.t.Fatalf("stream %s has the events %v, want %v: %v", name, got, want, err)
		}
	}
}
