package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
)

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
		out, err := exec.CommandContext(p.t.Context(), binary, "project", "caps", p.slug,
			"--ingestion-cap", strconv.Itoa(p.cap), "--data-dir", p.s.dir).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "shortly") { // stored, and not visible everywhere yet
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
