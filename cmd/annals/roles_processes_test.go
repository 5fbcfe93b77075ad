package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// get reads a path of a process that needs no key.
func (s *served) get(path string) (status int, body string) {
	s.d.t.Helper()
	res, err := http.Get("http://" + s.addr + path)
	runtest.Must(s.d.t, err)
	text, err := io.ReadAll(res.Body)
	runtest.Must(s.d.t, errors.Join(err, res.Body.Close()))
	return res.StatusCode, string(text)
}

// A process with role write takes what the others recall. Its answers wait for their projections, and each
// process refuses the calls of the other's role in words that name it. The pages of one without role write change what
// they change.
func TestRoles_WriteApart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	writer, rest := d.processes[0], d.processes[1]
	writer.args = []string{"--role", "write"}
	console := rest.consoleAt("read,projector,pipeline,console")
	rest.begin() // it waits for the first start of the other
	writer.start()
	rest.ready()
	for _, s := range d.processes {
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, body := s.get(path); status != http.StatusOK {
				t.Errorf("%s of %s: %d %s", path, s.dir, status, body)
			}
		}
	}

	ana := client.DataPoint{ID: "a", Content: "The code word of spring is marigold.", Identity: "ana"}
	runtest.Must(t, errorOf(writer.client().Ingest(t.Context(), ana)))
	runtest.Await(d.t, "the others recall it", func() bool { return rest.finds("marigold") })
	if _, code := writer.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Errorf("recall of a process without role read: code %q", code)
	}
	_, err := rest.client().Ingest(t.Context(), client.DataPoint{ID: "b", Content: "b"})
	refused, ok := errors.AsType[*client.APIError](err)
	if !ok || refused.Status != http.StatusServiceUnavailable || !strings.Contains(refused.Error(), "role write") {
		t.Errorf("a send to a process without role write: %v", err)
	}

	// The answer to a deletion waits until the projections of the other process have applied it.
	runtest.Must(t, errorOf(writer.client().DeleteDataPoints(t.Context(), []string{"a"})))
	if page, code := rest.recall("marigold"); code != "" || len(page.Results) > 0 {
		t.Errorf("recalled after its deletion was acknowledged: %+v, %q", page, code)
	}
	d.operatesElsewhere(writer, rest)
	d.wantConsole(rest, writer, console)
}

// operatesElsewhere checks that an operator's command names the process that it needs.
func (d *deployment) operatesElsewhere(writer, rest *served) {
	t := d.t
	t.Helper()
	var out, failed bytes.Buffer
	none := func(string) string { return "" }
	code := run(t.Context(), []string{"rebuild", "access", "--data-dir", writer.dir}, none, strings.NewReader(""), &out, &failed)
	if code != exitFailed || !strings.Contains(failed.String(), "has only the roles write") {
		t.Errorf("exit code %d: %s", code, failed.String())
	}
	rest.operate("rebuild", "access", "--json")
	writer.operate("project", "caps", "default", "--ingestion-cap", "1000")
	var is struct{ Status string }
	if _, body := rest.get("/readyz"); json.Unmarshal([]byte(body), &is) != nil || is.Status != "ready" {
		t.Errorf("after the rebuild: %s", body)
	}
}

// now returns the time of the database, with which leases are measured.
func (d *deployment) now() (now time.Time) {
	d.t.Helper()
	runtest.Must(d.t, d.db.QueryRow(d.t.Context(), `select clock_timestamp()`).Scan(&now))
	return now
}

// led reports whether the lease of every projection was taken or renewed since a time, with some slack.
func (d *deployment) led(since time.Time) bool {
	d.t.Helper()
	const lease = 4 * time.Second
	for _, name := range []string{"access", "datapoints", "directory", "memories", "usage"} {
		var until time.Time
		runtest.Must(d.t, d.db.QueryRow(d.t.Context(), `select until from `+name+`.checkpoint`).Scan(&until))
		if !until.After(since.Add(lease + 100*time.Millisecond)) {
			return false
		}
	}
	return true
}

// signal sends a signal to the process.
func (s *served) signal(sig os.Signal) {
	s.d.t.Helper()
	runtest.Must(s.d.t, s.cmd.Process.Signal(sig))
}

// A process that is frozen under load, wherever in a page that is, loses its projections to the other one. When
// it continues it notices that, and writes nothing: every send that was acknowledged is completed once.
func TestRoles_FrozenHolder(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	c := second.client()
	var accepted []string
	send := func() {
		t.Helper()
		id := fmt.Sprintf("p%d", len(accepted))
		receipt, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "Ana likes tea " + id + "."})
		if refused, ok := errors.AsType[*client.APIError](err); ok && refused.Status == http.StatusServiceUnavailable {
			return // as while nobody has the lease
		}
		runtest.Must(t, err)
		accepted = append(accepted, receipt.IngestionID)
	}
	for range 3 {
		for range 20 {
			send()
		}
		first.signal(syscall.SIGSTOP)
		frozen := d.now()
		runtest.Await(d.t, "the other process has every projection", func() bool { send(); return d.led(frozen) })
		t.Logf("every projection is led again %s after the process froze", d.now().Sub(frozen).Round(time.Millisecond))
		first.signal(syscall.SIGCONT)
		for range 20 {
			send()
		}
		last := accepted[len(accepted)-1]
		runtest.Await(d.t, "the process is back", func() bool {
			status, err := first.client().GetIngestion(t.Context(), last)
			return err == nil && status.Status == "completed"
		})
		first, second = second, first
		c = second.client()
	}
	for _, id := range accepted {
		runtest.Await(d.t, "send "+id+" is completed", func() bool {
			status, err := second.client().GetIngestion(t.Context(), id)
			return err == nil && status.Status == "completed"
		})
	}
	var points int
	runtest.Must(t, d.db.QueryRow(t.Context(), `select count(*) from datapoints.data_points`).Scan(&points))
	if points < len(accepted) {
		t.Errorf("%d sends were accepted, and %d data points are there", len(accepted), points)
	}
	for _, name := range []string{"datapoints", "memories", "usage"} {
		second.operate("rebuild", name) // it fails if the rows are not as many
	}
}

// consoleAt gives a process a known address of its console.
func (s *served) consoleAt(roles string) (url string) {
	addr := runtest.FreeAddress(s.d.t)
	s.args = []string{"--roles=" + roles, "--console-addr=" + addr}
	return "http://" + addr
}

// wantConsole signs in at a console whose process does not write, makes a project and a key there, and sees there what
// is sent with the key to another process.
func (d *deployment) wantConsole(console, writer *served, url string) {
	d.t.Helper()
	credentials, err := datafolder.ReadCredentials(console.dir)
	runtest.Must(d.t, err)
	r := webtest.NewReader(d.t, url)
	r.Open("/")
	r.Submit("Sign in", map[string]string{
		"E-mail": credentials[datafolder.OwnerEmailName], "Password": credentials[datafolder.OwnerPasswordName],
	})
	r.Answered(http.StatusOK)
	r.Open("/")
	r.Submit("Create project", map[string]string{"Name": "Garden"})
	r.Follow("Create a key")
	r.Submit("Create key", map[string]string{"Name": "bot"})
	r.Answered(http.StatusOK)
	c, err := client.New("http://"+writer.addr, r.At.Secrets()[0])
	runtest.Must(d.t, err)
	_, err = c.Ingest(d.t.Context(), client.DataPoint{ID: "a", Content: "The code word of spring is marigold."})
	runtest.Must(d.t, err)
	r.Open("/p/garden")
	r.SeeLater("indexed")
	r.Open("/health")
	r.Answered(http.StatusOK)
}

// A process with the role console alone changes what its pages change.
func TestRoles_ConsoleApart(t *testing.T) {
	t.Parallel()
	index := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 2)
	d.env = append(d.env, "ANNALS_INDEX="+index.URL, "ANNALS_INDEX_CA="+index.CA, "ANNALS_INDEX_NAME="+index.Name)
	console, rest := d.processes[0], d.processes[1]
	url := console.consoleAt("console")
	rest.args = []string{"--roles=write,read,projector,pipeline"}
	rest.start()
	console.start()
	d.wantConsole(console, rest, url)
}

// Two processes of each role share an event store, a Postgres and an Elasticsearch. One of each is killed or
// frozen. What was acknowledged is recalled through either reader, and what was deleted through none.
func TestRoles_TwoOfEach(t *testing.T) {
	t.Parallel()
	index := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 8)
	d.env = append(d.env, "ANNALS_INDEX="+index.URL, "ANNALS_INDEX_CA="+index.CA, "ANNALS_INDEX_NAME="+index.Name)
	for n, s := range d.processes {
		s.args = []string{"--role", []string{"write", "read", "projector", "pipeline"}[n/2]}
	}
	d.processes[4].begin()
	d.processes[0].start() // its folder gets the keys of the first start
	for n, s := range d.processes {
		if n != 0 && n != 4 {
			s.begin()
		}
	}
	for _, s := range d.processes {
		s.ready()
	}
	writers, readers := d.processes[0:2], d.processes[2:4]
	sent := 0
	// send sends through one writer, and through the other if that does not answer.
	send := func(n int) {
		t.Helper()
		for range n {
			p := client.DataPoint{ID: fmt.Sprintf("p%d", sent), Content: fmt.Sprintf("The code word of day %d is lily%d.", sent, sent)}
			runtest.Await(d.t, "a writer takes "+p.ID, func() bool {
				for _, w := range writers {
					if !w.running() {
						continue
					}
					if _, err := w.client().Ingest(t.Context(), p); err == nil {
						return true
					}
				}
				return false
			})
			sent++
		}
	}
	found := func(s *served, n int) bool {
		page, code := s.recall(fmt.Sprintf("What is the code word lily%d?", n))
		for _, r := range page.Results {
			if len(r.Sources) > 0 && r.Sources[0].SourceID == fmt.Sprintf("p%d", n) {
				return code == ""
			}
		}
		return false
	}
	send(20)
	for _, r := range readers {
		runtest.Await(d.t, "either reader recalls the last send", func() bool { return found(r, sent-1) })
	}
	for n := 0; n < 8; n += 2 {
		victim := d.processes[n]
		victim.kill()
		send(5)
		victim.start()
	}
	for n := 1; n < 8; n += 2 {
		victim := d.processes[n]
		victim.signal(syscall.SIGSTOP)
		victim.frozen = true
		if n == 5 { // projectors
			frozen := d.now()
			runtest.Await(d.t, "the other projector has every projection", func() bool { return d.led(frozen) })
			t.Logf("every projection is led again %s after a projector froze", d.now().Sub(frozen).Round(time.Millisecond))
		}
		send(5)
		victim.signal(syscall.SIGCONT)
		victim.frozen = false
	}
	runtest.Await(d.t, "the first send is deleted", func() bool {
		_, err := writers[1].client().DeleteDataPoints(t.Context(), []string{"p0"})
		return err == nil
	})
	for _, r := range readers {
		if found(r, 0) {
			t.Error("a reader recalls what was deleted")
		}
		for n := 1; n < sent; n++ {
			runtest.Await(d.t, fmt.Sprintf("%s recalls send %d", r.dir, n), func() bool { return found(r, n) })
		}
	}
	for _, name := range []string{"datapoints", "memories", "directory"} {
		d.processes[4].operate("rebuild", name) // it fails if the rows are not as many
	}
}

func (s *served) recall(query string) (page *client.RecallResponse, code string) {
	s.d.t.Helper()
	page, err := s.client().Recall(s.d.t.Context(), client.RecallRequest{Query: query, Identity: "ana"})
	if refused, ok := errors.AsType[*client.APIError](err); ok {
		return &client.RecallResponse{}, refused.Code
	}
	runtest.Must(s.d.t, err)
	return page, ""
}

// finds reports whether a query is answered with a result.
func (s *served) finds(query string) bool {
	s.d.t.Helper()
	page, code := s.recall(query)
	return code == "" && len(page.Results) > 0
}

// Of two processes the second serves everything but recall. It takes the index over when the first is
// killed, and keeps it when the first restarts. Both recall what was sent through either.
func TestStandby_TakesIndexOver(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	found := func(s *served, query string) bool {
		page, code := s.recall(query)
		if code != "" && code != fault.CodeServiceUnavailable {
			t.Fatalf("recall answers %s", code)
		}
		return len(page.Results) > 0
	}
	second.ingest("a", "The code word of spring is marigold.")
	runtest.Await(d.t, "the first recalls what the second took", func() bool { return found(first, "marigold") })
	if page, code := second.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Fatalf("the second answers %q, %+v", code, page)
	}
	is, err := second.client().Ready(t.Context())
	if err != nil || !is.Ready || is.RecallElsewhere == "" {
		t.Fatalf("the second is %+v, %v", is, err)
	}
	first.kill()
	second.ingest("b", "The code word of autumn is chrysanthemum.")
	runtest.Await(d.t, "the second has taken over", func() bool { _, code := second.recall("x"); return code == "" })
	// The index is complete from its first answer on, with what was fed to the other before.
	if !found(second, "marigold") {
		t.Error("what the first had in its index is lost")
	}
	runtest.Await(d.t, "the second recalls what it took", func() bool { return found(second, "chrysanthemum") })
	first.start()
	if _, code := first.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Errorf("the first is back with its old index and answers %q", code)
	}
	// Deletions now purge only the index of the second, so the first must not keep anything.
	runtest.Await(d.t, "the first has emptied its index", func() bool {
		return len(blevetest.Holding(t, filepath.Join(first.dir, "recall"), "marigold")) == 0
	})
	if in := blevetest.Holding(t, filepath.Join(second.dir, "recall"), "marigold"); len(in) == 0 {
		t.Error("the second has emptied its index too")
	}
	first.ingest("c", "The code word of winter is hellebore.")
	runtest.Await(d.t, "the second recalls what the first took", func() bool { return found(second, "hellebore") })
	second.stop()
	runtest.Await(d.t, "the first has taken over", func() bool { return found(first, "chrysanthemum") && found(first, "marigold") })
	if status, body := first.get("/readyz"); status != http.StatusOK {
		t.Errorf("the first is not ready: %d %s", status, body)
	}
}

// Of two processes with one Elasticsearch both answer recall, whichever feeds the index, and the one
// that is left goes on at once when the other is killed.
func TestStandby_SharedIndex(t *testing.T) {
	t.Parallel()
	options := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 2)
	d.env = []string{"ANNALS_INDEX=" + options.URL, "ANNALS_INDEX_CA=" + options.CA, "ANNALS_INDEX_NAME=" + options.Name}
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	second.ingest("a", "The code word of spring is marigold.")
	runtest.Await(d.t, "both recall it", func() bool { return first.finds("marigold") && second.finds("marigold") })
	for _, s := range d.processes {
		is, err := s.client().Ready(t.Context())
		if err != nil || !is.Ready || is.RecallElsewhere != "" {
			t.Errorf("%s is %+v, %v", s.dir, is, err)
		}
	}
	generation := elastictest.Indexes(t, options)
	first.kill()
	if !second.finds("marigold") {
		t.Error("recall of the second needs the first")
	}
	second.ingest("b", "The code word of autumn is chrysanthemum.")
	runtest.Await(d.t, "the second feeds the index", func() bool { return second.finds("chrysanthemum") })
	first.start()
	runtest.Await(d.t, "the first recalls what it missed", func() bool { return first.finds("chrysanthemum") })
	runtest.Must(t, errorOf(first.client().DeleteDataPoints(t.Context(), []string{"a"})))
	for _, s := range d.processes {
		page, code := s.recall("spring marigold")
		if code != "" {
			t.Errorf("recall answers %s", code)
		}
		for _, r := range page.Results {
			if r.Sources[0].SourceID == "a" {
				t.Errorf("what was deleted is recalled: %+v", r)
			}
		}
	}
	if now := elastictest.Indexes(t, options); len(now) != 1 || now[0] != generation[0] {
		t.Errorf("index %v was replaced by %v", generation, now)
	}
}

// A process that serves reads for another one's writes reads at the replica. Paused or stopped, the replica
// changes no answer.
func TestRoles_ReplicaOfPostgres(t *testing.T) {
	t.Parallel()
	servers := pgtest.NewReplicated(t)
	d := newDeployment(t, time.Now(), 2)
	d.database = servers.Primary
	writer, rest := d.processes[0], d.processes[1]
	writer.args = []string{"--role", "write"}
	rest.args = []string{"--roles=read,projector,pipeline", "--postgres-replica", servers.Replica}
	rest.begin()
	writer.start()
	rest.ready()
	if _, body := rest.get("/metrics"); !strings.Contains(body, "annals_postgres_replica_up 1\n") {
		t.Errorf("the replica is not up: %s", body)
	}
	if _, body := writer.get("/metrics"); strings.Contains(body, "annals_postgres_replica_up") {
		t.Error("a process without the role read has a replica")
	}

	text := "The code word of spring is marigold." + strings.Repeat(" It is told at length.", 100)
	writer.ingest("a", text)
	runtest.Await(t, "the text is recalled from the replica", func() bool {
		found := rest.finds("marigold")
		_, body := rest.get("/metrics")
		return found && strings.Contains(body, `annals_postgres_replica_reads_total{kind="bodies",result="served"}`)
	})
	servers.Pause()
	runtest.Must(t, errorOf(writer.client().DeleteDataPoints(t.Context(), []string{"a"})))
	if page, code := rest.recall("marigold"); code != "" || len(page.Results) > 0 {
		t.Errorf("recalled after its deletion was acknowledged: %+v, %q", page, code)
	}
	servers.Resume()
	servers.Stop()
	writer.ingest("b", text)
	runtest.Await(t, "a text is recalled without the replica", func() bool { return rest.finds("marigold") })
	servers.Start()
	runtest.Await(t, "the replica is up again", func() bool {
		_, body := rest.get("/metrics")
		return strings.Contains(body, "annals_postgres_replica_up 1\n")
	})
}

// A replica of another cluster refuses the start in one line.
func TestServe_ReplicaOfAnotherCluster(t *testing.T) {
	t.Parallel()
	servers := pgtest.NewReplicated(t)
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--postgres-replica", servers.Replica}
	s.refusedFor("with the replica", "the replica that ANNALS_POSTGRES_REPLICA names cannot be used: ", "another cluster")
}
