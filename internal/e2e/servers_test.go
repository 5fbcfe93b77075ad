package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// The proxy of the deployment sends every route of the contract to a ready process of the role that
// answers it.
func TestProxy_SendsEachRouteToItsRole(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed here; .ci/run installs it")
	}
	// The port of the health checks is one for all processes, so each has an address of its own.
	write, read, console := startRole(t, "127.0.0.2", "write"), startRole(t, "127.0.0.3", "read"), startRole(t, "127.0.0.4", "console")
	api, health := runtest.FreeAddress(t), runtest.FreeAddress(t)
	log := &runtest.Output{}
	cmd := exec.CommandContext(t.Context(), haproxy, "-db", "-f", filepath.Join("..", "..", "deploy", "helm", "annals", "files", "haproxy.cfg"))
	cmd.Env = append(os.Environ(), "ANNALS_API_BIND="+api, "ANNALS_CONSOLE_BIND="+runtest.FreeAddress(t), "ANNALS_HEALTH_BIND="+health,
		"ANNALS_OPS_PORT="+opsPort, "ANNALS_WRITE="+write, "ANNALS_READ="+read, "ANNALS_CONSOLE="+console)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = readyLimit
	runtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // the context of the test ended it
		if t.Failed() {
			t.Logf("the proxy said:\n%s", log.Tail(8<<10))
		}
	})
	eventually(t, "the proxy answers", func() error { return answersOf("http://" + health + "/healthz") })
	eventually(t, "it found a process to write", func() error { return answersOf("http://" + api + "/api/v1/ingest") })
	for _, r := range auth.Routes() {
		want := "read"
		if r.Writes() {
			want = "write"
		}
		path := strings.ReplaceAll(r.Path, ":", "")
		req, err := http.NewRequestWithContext(t.Context(), r.Method, "http://"+api+path, strings.NewReader("{}"))
		runtest.Must(t, err)
		res, err := http.DefaultClient.Do(req)
		runtest.Must(t, err)
		got, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || string(got) != want {
			t.Errorf("%s %s is answered by %q, want %s: %v", r.Method, path, got, want, err)
		}
	}
}

// opsPort is the port of the health checks.
const opsPort = "19090"

// startRole starts a process of a role that is ready, and returns its address.
func startRole(t *testing.T, host, name string) string {
	t.Helper()
	serve := func(addr string, handler http.HandlerFunc) string {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skipf("this machine has no address %s: %v", host, err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler, ReadHeaderTimeout: readyLimit}}
		s.Start()
		t.Cleanup(s.Close)
		return l.Addr().String()
	}
	serve(net.JoinHostPort(host, opsPort), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
		}
	})
	return serve(net.JoinHostPort(host, "0"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

// answersOf fails unless a URL answers 200.
func answersOf(url string) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, res.StatusCode)
	}
	return nil
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline, tick := time.After(readyLimit), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not after %s: %v", what, readyLimit, err)
		case <-tick.C:
		}
	}
}

// The service over a cluster whose leader changes, and of which a member dies, while callers send:
// all that was accepted is recalled.
func TestCluster_LeaderChangesDuringIngest(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 3)
	s := newService(t, sharedPostgres(t), "ANNALS_EVENTSTORE="+c.ConnectionString("discoveryInterval=20"))
	s.start()

	const callers = 4
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	accepted := make([][]*client.Receipt, callers)
	var sent atomic.Int64
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			api := s.client()
			for n := 0; ctx.Err() == nil; n++ {
				r, err := api.Ingest(t.Context(), client.DataPoint{
					ID: fmt.Sprintf("point-%d-%d", i, n), Content: fmt.Sprintf("The code word of the call is w%dx%d.", i, n),
				})
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				accepted[i] = append(accepted[i], r)
				sent.Add(1)
			}
		})
	}
	goOn := func(when string) {
		next := sent.Load() + 2*callers
		runtest.Await(t, "sends are accepted "+when, func() bool { return sent.Load() >= next || t.Failed() })
	}
	goOn("at first")
	c.Lead(1)
	goOn("by the second leader")
	c.LoseAnswers(1, 3)
	goOn("although answers were lost")
	c.Kill(1)
	c.Lead(2)
	goOn("by the third leader")
	c.Lead(-1)
	c.Lead(0)
	c.Return(1)
	goOn("by the first leader again")
	stop()
	running.Wait()

	api := s.client()
	for i, receipts := range accepted {
		for n, r := range receipts {
			completed(t.Context(), t, api, r.IngestionID)
			id := fmt.Sprintf("point-%d-%d", i, n)
			got, err := observe(t.Context(), api, id, fmt.Sprintf("w%dx%d", i, n))
			if err != nil || got == nil {
				t.Errorf("%s was accepted and is not recalled: %v", id, err)
			}
		}
	}
	t.Logf("%d sends", sent.Load())
	if strings.Contains(s.log.String(), "sesame") {
		t.Error("the log of the service holds the password of the cluster")
	}
}

// A start with a wrong certificate, password or address of the cluster is one line, without the
// password.
func TestCluster_WrongSettings(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	right := c.ConnectionString("maxDiscoverAttempts=2")
	postgres := sharedPostgres(t)
	hosts := right[strings.LastIndex(right, "@")+1:]
	for name, test := range map[string]struct{ connection, want string }{
		"no authority":     {right[:strings.LastIndex(right, "?")], "certificate"},
		"another password": {"esdb+discover://admin:open-sesame@" + hosts, "user and password"},
		"nobody there":     {"esdb+discover://admin:open-sesame@127.0.0.1:1?maxDiscoverAttempts=2", "no leader was found"},
		"unknown setting":  {right + "&tlsCaFil=x", `ANNALS_EVENTSTORE has an unknown setting "tlsCaFil"`},
	} {
		t.Run(name, func(t *testing.T) { wantRefusedStart(t, test.want, postgres, "ANNALS_EVENTSTORE="+test.connection) })
	}
}

// wantRefusedStart starts with settings that cannot work, which is one line without a password.
func wantRefusedStart(t *testing.T, want string, settings ...string) {
	t.Parallel()
	cmd := exec.Command(binary, "serve", "--data-dir", filepath.Join(t.TempDir(), "data"), "--api-addr", runtest.FreeAddress(t),
		"--console-addr", "127.0.0.1:0")
	cmd.Env = append(append(cmd.Environ(), "ANNALS_LOG_LEVEL=error"), settings...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err == nil || !strings.Contains(text, want) || strings.Contains(text, "sesame") || strings.Contains(text, "\n") {
		t.Errorf("%v: %s; want one line with %q", err, text, want)
	}
}

// onEngines runs a test with the embedded index, and with a real Elasticsearch if there is one. The
// test gets the settings of the index.
func onEngines(t *testing.T, test func(t *testing.T, index []string)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("elasticsearch", func(t *testing.T) {
		t.Parallel()
		test(t, elasticSettings(t, elastictest.Options(t)))
	})
}

// elasticSettings are the settings for an index of the test, with user and password apart from the
// address.
func elasticSettings(t *testing.T, o elastic.Options) []string {
	t.Helper()
	u, err := url.Parse(o.URL)
	runtest.Must(t, err)
	password, _ := u.User.Password()
	settings := []string{
		"ANNALS_INDEX_NAME=" + o.Name, "ANNALS_INDEX_USER=" + u.User.Username(), "ANNALS_INDEX_PASSWORD=" + password,
		"ANNALS_INDEX_CA=" + o.CA,
	}
	u.User = nil
	return append(settings, "ANNALS_INDEX="+u.String())
}

// TestElasticsearch_ErasedRebuiltAndLost deletes, erases and rebuilds with an Elasticsearch. An index
// that an operator removes there is built from the log again.
func TestElasticsearch_ErasedRebuiltAndLost(t *testing.T) {
	t.Parallel()
	options := elastictest.Options(t)
	s := newService(t, append(elasticSettings(t, options), sharedPostgres(t))...)
	s.start()
	c := s.client()
	gone, stays, deleted := runtest.Word(), runtest.Word(), false
	send := func(id, word string) {
		t.Helper()
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "The password of " + id + " is " + word + "."})
		runtest.Must(t, err)
		completed(t.Context(), t, c, r.IngestionID)
	}
	// recalls reports whether the first result is the data point.
	recalls := func(id, word string) bool {
		t.Helper()
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What is the password " + word + "?", Identity: "x"})
		runtest.Must(t, err)
		for _, r := range page.Results {
			if deleted && strings.Contains(r.Content, gone) {
				t.Errorf("recall finds what was deleted: %+v", r)
			}
		}
		return len(page.Results) > 0 && page.Results[0].Sources[0].SourceID == id
	}
	send("gone", gone)
	send("stays", stays)
	if !recalls("gone", gone) || !recalls("stays", stays) {
		t.Fatal("what was sent is not recalled")
	}
	runtest.Must(t, errorOf(c.DeleteDataPoints(t.Context(), []string{"gone"})))
	deleted = true
	if recalls("gone", gone) {
		t.Fatal("what was deleted is recalled")
	}
	s.eraseNow()
	if out := s.annals("erase"); out != "nothing waits to be erased\n" {
		t.Errorf("annals erase: %s", out)
	}
	before := elastictest.Indexes(t, options)
	s.annals("rebuild", "recallindex")
	after := elastictest.Indexes(t, options)
	if len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("a rebuild replaced %v by %v", before, after)
	}
	if !recalls("stays", stays) {
		t.Error("after a rebuild it is not recalled")
	}
	elastictest.Remove(t, options, after[0])
	runtest.Await(t, "the lost index is built again", func() bool { return recalls("stays", stays) })
	s.stop()
	s.start()
	send("later", runtest.Word())
	if !recalls("stays", stays) {
		t.Error("after a restart it is not recalled")
	}
}

// TestElasticsearch_WrongSettings starts with settings that cannot work.
func TestElasticsearch_WrongSettings(t *testing.T) {
	t.Parallel()
	const password = "open-sesame"
	o := elastictest.Options(t)
	u, err := url.Parse(o.URL)
	runtest.Must(t, err)
	settings := map[string]struct {
		set  []string
		want string
	}{
		"nobody there": {[]string{"ANNALS_INDEX=http://annals:" + password + "@127.0.0.1:1"}, "does not answer"},
	}
	if u.User != nil && u.Scheme == "https" {
		settings["another password"] = struct {
			set  []string
			want string
		}{[]string{"ANNALS_INDEX=https://annals:" + password + "@" + u.Host, "ANNALS_INDEX_CA=" + o.CA}, "refuses the credentials"}
		settings["no authority"] = struct {
			set  []string
			want string
		}{[]string{"ANNALS_INDEX=https://annals:" + password + "@" + u.Host}, "certificate"}
	}
	for name, test := range settings {
		t.Run(name, func(t *testing.T) {
			wantRefusedStart(t, test.want, append([]string{sharedPostgres(t)}, test.set...)...)
		})
	}
}

// postmaster returns the process id of the private Postgres, 0 while there is none.
func (s *service) postmaster() int {
	text, err := os.ReadFile(filepath.Join(s.dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return pid
}

// The private Postgres is killed under load: the service starts it again and goes on. What was acknowledged is there. A
// start right after a kill of both waits for what is left of them.
func TestPostgres_KilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	c := s.client()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acknowledged := make(chan string, 1<<16)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := 0; ctx.Err() == nil; i++ {
			point := client.DataPoint{ID: fmt.Sprintf("p%d", i), Content: fmt.Sprintf("Visitor%d saw House%d.", i, i)}
			r, err := c.Ingest(context.WithoutCancel(ctx), point)
			if err != nil {
				t.Error(err)
				return
			}
			acknowledged <- r.IngestionID
		}
	}()
	for range 2 {
		before := len(acknowledged)
		runtest.Await(t, "sends are acknowledged", func() bool { return len(acknowledged) > before+20 })
		killed := s.postmaster()
		runtest.Must(t, syscall.Kill(killed, syscall.SIGKILL))
		runtest.Await(t, "another Postgres runs", func() bool { pid := s.postmaster(); return pid != 0 && pid != killed })
		runtest.Must(t, s.awaitReady())
	}
	before := len(acknowledged)
	runtest.Await(t, "sends are acknowledged again", func() bool { return len(acknowledged) > before+20 })
	stop()
	<-sent
	close(acknowledged)
	for id := range acknowledged {
		completed(t.Context(), t, c, id)
	}
	if lines := strings.Count(s.log.String(), "\n"); lines > 500 {
		t.Errorf("the service logged %d lines", lines)
	}
	for range 3 {
		runtest.Must(t, syscall.Kill(s.postmaster(), syscall.SIGKILL))
		s.kill()
		s.start()
	}
}
