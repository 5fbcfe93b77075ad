package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// setting reads a count from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// killWorkers is how many workers call at once.
const killWorkers = 8

// killClerks is how many write identities and audiences meanwhile, and killCap what the cap is
// raised by from kill to kill.
const (
	killClerks = 2
	killCap    = 12
)

// killTest is a service that is killed again and again, and its workers.
type killTest struct {
	t       *testing.T
	s       *service
	m       *model
	rng     *rand.Rand
	workers []*worker
	clients []*directoryClient
	capped  *capped
}

// TestKill kills the service ANNALS_KILLS times, by default 4 times, while workers send,
// delete, retry, poll and recall, clients of the directory write identities and audiences and move
// data points between them, and a project is filled up to its cap. After each start and at the end
// what was acknowledged is there, what was cut off is wholly there or wholly not, and nothing is
// there twice. ANNALS_SEED repeats the draws of a run; what the calls meet is up to the machine.
func TestKill(t *testing.T) {
	t.Parallel()
	kills, seed := setting(t, "ANNALS_KILLS", 4), seedtest.Of(t)
	k := &killTest{t: t, s: newService(t), m: &model{}, rng: rand.New(rand.NewPCG(seed, 0))}
	for n := range killWorkers {
		k.workers = append(k.workers, &worker{t: t, s: k.s, m: k.m, number: n, rng: rand.New(rand.NewPCG(seed, uint64(n+1)))})
	}
	for range kills {
		k.start(k.rng.IntN(4) == 0)
		if k.capped == nil {
			k.found(seed)
		}
		k.settle()
		k.load(20 + k.rng.IntN(130))
		if t.Failed() {
			return
		}
		for k.rng.IntN(4) == 0 { // a crash while the service recovers from the one before
			k.s.begin()
			k.after(time.Duration(k.rng.IntN(1500)) * time.Millisecond)
			k.s.kill()
			k.m.crashed("killed at its start")
		}
	}
	k.start(false)
	k.settle()
	k.finish()
	for line := range strings.Lines(k.s.log.String()) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "panic") {
			t.Errorf("the service said: %s", line)
		}
	}
	made := 0
	for _, c := range k.clients {
		made += c.made
	}
	t.Logf("%d calls, %d sends, %d data points, %d shared; %d calls about identities and audiences; a cap of %d, reached",
		len(k.m.history), len(k.m.sends), len(k.m.points), len(k.m.shared), made, k.capped.cap)
}

// found makes the projects of the clients and of the cap.
func (k *killTest) found(seed uint64) {
	k.t.Helper()
	key := k.s.project("Town").key
	for n := range killClerks {
		rng := rand.New(rand.NewPCG(seed, uint64(killWorkers+n+1)))
		k.clients = append(k.clients, &directoryClient{
			t:              k.t,
			s:              k.s,
			m:              k.m,
			rng:            rng,
			number:         n,
			key:            key,
			directoryModel: newDirectoryModel(),
		})
	}
	p := k.s.project("Capped")
	k.capped = &capped{t: k.t, s: k.s, m: k.m, slug: p.slug, key: p.key}
}

// after waits for a moment that the rounds draw, not for anything to happen.
func (k *killTest) after(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.t.Context().Done():
	}
}

// start starts the service, with the pipeline on or off, and gives the workers connections of their
// own.
func (k *killTest) start(off bool) {
	k.t.Helper()
	k.s.env = nil
	if off {
		k.s.env = []string{"ANNALS_PIPELINE=off"}
	}
	k.s.start()
	for _, w := range k.workers {
		w.off = off
	}
}

// client returns a client whose responses are not checked: a connection that a kill cuts off does not violate the
// OpenAPI document.
func (k *killTest) client(options ...client.Option) *client.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	k.t.Cleanup(transport.CloseIdleConnections)
	return k.s.client(append(options, client.WithAttemptTimeout(readyLimit), client.WithTransport(transport))...)
}

// settle finds out what became of the calls that the last kill cut off, and looks at some of what
// was acknowledged.
func (k *killTest) settle() {
	k.t.Helper()
	c := k.client()
	for _, w := range k.workers {
		w.c = c
	}
	barrier(k.t, k.m, c)
	eachOf(k.workers, (*worker).resolve)
	barrier(k.t, k.m, c)
	eachOf(k.clients, (*directoryClient).resolve)
	k.capped.check()
	k.capped.raise(killCap)
	some := k.m.points
	if len(some) > 60 {
		some = nil
		for _, i := range k.rng.Perm(len(k.m.points))[:60] {
			some = append(some, k.m.points[i])
		}
	}
	eachOf(some, func(p *point) { k.m.checkPoint(k.t, c, p) })
	if k.t.Failed() {
		k.t.FailNow()
	}
}

// load lets the workers work until that many calls were made, and kills the service; now and then
// it is asked to stop.
func (k *killTest) load(calls int) {
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	var group sync.WaitGroup
	var working atomic.Int64
	for _, w := range k.workers {
		w.c = k.client(client.WithMaxAttempts(1)) // the result of a refused or cut-off call is resolved later
		working.Add(1)
		group.Go(func() {
			defer working.Add(-1)
			for ctx.Err() == nil && w.step(ctx) && !k.t.Failed() {
			}
		})
	}
	for _, c := range k.clients {
		group.Go(func() {
			for ctx.Err() == nil && c.step(ctx) && !k.t.Failed() {
			}
		})
	}
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil && k.capped.step(ctx) && !k.t.Failed() {
			}
		})
	}
	reader, pick := k.client(), rand.New(rand.NewPCG(k.rng.Uint64(), 0))
	group.Go(func() {
		for ctx.Err() == nil {
			var p *point
			k.m.locked(func() {
				if n := len(k.m.points); n > 0 {
					p = k.m.points[pick.IntN(n)]
				}
			})
			if p != nil && !k.m.glance(ctx, k.t, reader, p) {
				return
			}
		}
	})
	ticks := func() (n int) {
		k.m.locked(func() { n = k.m.ticks })
		return n
	}
	until := ticks() + 2*calls
	runtest.Await(k.t, fmt.Sprintf("%d calls are made", calls), func() bool {
		return ticks() >= until || working.Load() == 0 || k.t.Failed()
	})
	k.after(time.Duration(k.rng.IntN(40_000)) * time.Microsecond)
	how := "killed under load"
	if k.rng.IntN(6) == 0 {
		how = "stopped under load"
		k.s.stop()
	} else {
		k.s.kill()
	}
	group.Wait() // each ends with its call that is cut off
	k.m.crashed(how)
}

// finish waits until everything is done, and holds all of it against the model.
func (k *killTest) finish() {
	t, m := k.t, k.m
	c := k.s.client()
	w := k.workers[0]
	eachOf(m.sends, func(s *send) {
		if s.id != "" {
			w.checkStatus(s, ended(t, c, s.id), nil)
		}
	})
	eachOf(m.points, func(p *point) { m.checkPoint(t, c, p) })
	if t.Failed() {
		return
	}
	derived, live, least, most := 0, 0, m.ingested, m.ingested
	for _, p := range m.points {
		derived += memories(p)
		if p.now() != nil {
			live++
		}
	}
	for _, p := range m.shared {
		if got := p.check(t, c); got != nil {
			live, derived = live+1, derived+extracted(fields{content: got.Content}, "")
		}
		a, b := p.bounds()
		least, most = least+a, most+b
	}
	for _, text := range m.markers {
		live, derived = live+1, derived+extracted(fields{content: text}, "")
		least, most = least+1, most+1
	}
	var status *client.IngestionStatus
	failed := m.failedSends()
	runtest.Await(t, "nothing is in progress", func() bool { // sends whose receipt was lost end too
		var err error
		status, err = c.GetIngestion(t.Context(), k.anySend())
		runtest.Must(t, err)
		return status.Readiness.Raw == 0 && status.Readiness.Comprehension == 0 && (status.Settled || status.Blocked)
	})
	if status.Readiness.Failed != failed || status.Settled != (failed == 0) || status.Blocked != (failed > 0) {
		t.Errorf("the counters are %+v, and %d sends failed", status, failed)
	}
	list, err := k.s.management().ListProjects(t.Context())
	runtest.Must(t, err)
	projects := list.Projects
	at := slices.IndexFunc(projects, func(p client.Project) bool { return p.Slug == "default" })
	if at < 0 {
		t.Fatalf("projects: %+v", projects)
	}
	if got := projects[at]; int(got.MemoryCount) != live+derived || int(got.MonthIngestions) < least ||
		int(got.MonthIngestions) > most {
		t.Errorf("the project counts %+v; it holds %d data points and %d memories, and took %d to %d revisions", got, live,
			derived, least, most)
	}
	began := time.Now()
	k.capped.fill()
	t.Logf("the cap was full after %s", time.Since(began))
}

// anySend is the id of a send that was answered.
func (k *killTest) anySend() string {
	for _, s := range k.m.sends {
		if s.id != "" {
			return s.id
		}
	}
	k.t.Fatal("no send was answered")
	return ""
}

// ended waits until a send has come to an end.
func ended(t *testing.T, c *client.Client, id string) (status *client.IngestionStatus) {
	var err error
	runtest.Await(t, "send "+id+" comes to an end", func() bool {
		if status, err = c.GetIngestion(t.Context(), id); err != nil {
			t.Errorf("send %s: %v", id, err)
			return true
		}
		return status.Status != "processing"
	})
	return status
}

// capped is a project with an ingestion cap, which is raised from kill to kill, and the sends that its workers made.
type capped struct {
	t    *testing.T
	s    *service
	m    *model
	slug string
	key  string
	cap  int
	// taken were accepted, unknown were cut off; under the model's mu.
	taken, unknown int
}

// raise raises the cap, as an operator does.
func (p *capped) raise(by int) {
	p.t.Helper()
	p.cap += by
	runtest.Await(p.t, "the cap is raised", func() bool {
		out, err := p.s.try("project", "caps", p.slug, "--ingestion-cap", strconv.Itoa(p.cap))
		if err != nil && !strings.Contains(out, "shortly") { // stored, and not visible everywhere yet
			p.t.Fatalf("annals project caps: %v\n%s", err, out)
		}
		return err == nil
	})
}

// step sends one that is new; it is false where the call got no answer, or the cap is reached.
func (p *capped) step(ctx context.Context) bool {
	id := fmt.Sprintf("capped-%d", p.m.next())
	status, answer, err := p.s.ask(ctx, p.key, http.MethodPost, "/ingest", map[string]string{"id": id, "content": "Item " + id + " of the capped project."})
	p.m.locked(func() {
		switch {
		case err != nil || status == http.StatusServiceUnavailable:
			p.unknown++
		case status == http.StatusAccepted:
			p.taken++
		case status == http.StatusTooManyRequests && bytes.Contains(answer, []byte(fault.CodeProjectCapReached)):
		default:
			p.t.Errorf("a send to a project with a cap is answered %d %s", status, answer)
		}
	})
	return err == nil && status == http.StatusAccepted
}

// stored returns how many data points the project reports for this month; it may lag for a moment.
func (p *capped) stored() int {
	p.t.Helper()
	status, answer, err := p.s.insist(p.s.credentials()["ANNALS_MANAGEMENT_KEY"], http.MethodGet, "/projects", nil)
	var listed struct{ Projects []client.Project }
	if err == nil {
		err = json.Unmarshal(answer, &listed)
	}
	at := slices.IndexFunc(listed.Projects, func(listed client.Project) bool { return listed.Slug == p.slug })
	if err != nil || status != http.StatusOK || at < 0 {
		p.t.Fatalf("projects: %d %s, %v", status, answer, err)
	}
	return int(listed.Projects[at].MonthIngestions)
}

// check holds what the project counts against what was answered, while nobody sends: the cap is never passed.
func (p *capped) check() (stored int) {
	p.t.Helper()
	runtest.Await(p.t, "every send that was taken is counted", func() bool { stored = p.stored(); return stored >= p.taken })
	if stored > p.cap || stored > p.taken+p.unknown {
		p.t.Errorf("the project took %d, of a cap of %d; %d were acknowledged, and %d cut off", stored, p.cap, p.taken, p.unknown)
	}
	return stored
}

// fill sends until the cap is reached: what was held for calls that were cut off is free again.
func (p *capped) fill() {
	p.t.Helper()
	runtest.Await(p.t, "the cap is reached", func() bool {
		for p.step(p.t.Context()) {
		}
		return p.t.Failed() || p.check() == p.cap
	})
}
