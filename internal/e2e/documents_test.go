package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// tested finds the lines of the README that the test runs: fenced sh blocks after a comment "tested".
var tested = regexp.MustCompile("(?s)<!-- (tested[^>]*) -->\n```sh\n(.*?)```")

// shown is of the answer that the README shows, and reached of what an audience is for.
const (
	shown   = `"content":"The launch is on 3 June 2025"`
	reached = "The launch may cost 40,000 euros."
)

// TestReadme types the lines of the README, exactly as they are printed, in one shell in the folder of a clone.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	runtest.Must(t, err)
	blocks := tested.FindAllSubmatch(readme, -1)
	if len(blocks) < 4 {
		t.Fatalf("the README has %d blocks that are tested", len(blocks))
	}
	s := newService(t)
	s.start()
	clone := cloneOf(s)
	credentials := string(blocks[0][2])
	var said strings.Builder
	for _, b := range blocks {
		kind, lines := string(b[1]), string(b[2])
		out := shell(t, clone, credentials+lines)
		// "A moment later": a reader who is faster than the pipeline asks again.
		awaited := map[string]string{"tested: recall": shown, "tested: reach": reached}[kind]
		for end := time.Now().Add(readyLimit); !strings.Contains(out, awaited) && time.Now().Before(end); {
			out = shell(t, clone, credentials+lines)
		}
		if n := strings.Count(out, reached); kind == "tested: reach" && n != 1 {
			t.Errorf("of two readers %d find what one of them may read:\n%s", n, out)
		}
		said.WriteString(out)
		if strings.Contains(out, `"debugMessage"`) {
			t.Errorf("refused: %s\n%s", lines, out)
		}
	}
	for _, want := range []string{
		`"status":"queued"`, `"sourceId":"call-2025-05-12"`, `"label":"Planning call"`, `{"channel":`, shown, reached,
		`"operationId"`, "everything can be recalled", "My favourite editor is Helix.", "is ready",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the answers lack %s:\n%s", want, said.String())
		}
	}
}

// TestFirstAgent_Documented types the lines of docs/first-agent.md: an agent remembers and recalls.
func TestFirstAgent_Documented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-agent.md")
	runtest.Must(t, err)
	blocks := tested.FindAllSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks that are tested", len(blocks))
	}
	clone := cloneOf(documented.of(t))
	before := string(blocks[0][2]) + string(blocks[1][2])
	if out := shell(t, clone, before); !strings.Contains(out, `"sourceId":"note-1"`) {
		t.Errorf("the receipt is %s", out)
	}
	const want = "Ana moved the launch to 3 June 2025."
	ask, out := before+"echo asked\n"+string(blocks[2][2]), ""
	for end := time.Now().Add(readyLimit); !strings.Contains(out, want) && time.Now().Before(end); {
		_, out, _ = strings.Cut(shell(t, clone, ask), "asked")
	}
	if !strings.Contains(out, want) || !strings.Contains(out, "note-1") || !strings.Contains(out, "2025") {
		t.Errorf("recall answers %s", out)
	}
}

// TestStart_Documented types the commands of docs/start.md: an organization, a project, a key and a cap.
func TestStart_Documented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/start.md")
	runtest.Must(t, err)
	lines := tested.FindSubmatch(page)
	if lines == nil {
		t.Fatal("the page has no lines that are tested")
	}
	out := shell(t, cloneOf(documented.of(t)), `PATH="$PWD/bin:$PATH"`+"\n"+string(lines[2]))
	for _, want := range []string{"self-hosted", "svc_mk_", "project support", "svc_sk_", "ingestion cap 100000"} {
		if !strings.Contains(out, want) {
			t.Errorf("the answers lack %s:\n%s", want, out)
		}
	}
}

// cloneOf returns a folder with the data of a service and the program where a clone has them.
func cloneOf(s *service) string {
	s.t.Helper()
	clone := s.t.TempDir()
	for name, target := range map[string]string{"data": s.dir, "bin/annals": binary} {
		runtest.Must(s.t, os.MkdirAll(filepath.Dir(filepath.Join(clone, name)), 0o700))
		runtest.Must(s.t, os.Symlink(target, filepath.Join(clone, name)))
	}
	return clone
}

// shell runs lines as a reader's shell does, and fails the test when one of them fails.
func shell(t *testing.T, dir, lines string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", lines)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, lines, out)
	}
	return string(out)
}

// runbookStep is a block of commands of the runbook.
type runbookStep struct {
	block string
	// before is what the reader does first by other means than the block; nil for nothing.
	before func()
	// looks is set if the block changes nothing. A reader who is faster than the service looks again.
	looks bool
	want  []string
}

// TestRunbook types the commands of the first two days of the runbook, in their order, with one service.
func TestRunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../deploy/RUNBOOK.md")
	runtest.Must(t, err)
	s := newService(t)
	r := runbook{s, t.TempDir(), map[string]string{}}
	runtest.Must(t, os.Symlink(binary, filepath.Join(r.root, "annals")))
	for _, b := range tested.FindAllSubmatch(page, -1) {
		r.blocks[strings.TrimPrefix(string(b[1]), "tested: ")] = string(b[2])
	}
	const tea = "Ana drinks green tea."
	steps := []runbookStep{
		{"install", nil, false, []string{"ok      ports: ", "ok      folder: ", "a start makes it"}},
		{"started", s.start, true, []string{"answers 200", "is ready", "backup   none is recorded", "failed   no send"}},
		{"key", nil, false, []string{"project support", "svc_sk_", "owner@annals.local"}},
		{"recall", nil, false, []string{tea}},
		{"backup", nil, false, []string{"backed up to ", "/try"}},
		{"metrics", nil, true, []string{"annals_backup_age_seconds ", "annals_disk_free_bytes ", "annals_projection_lag{"}},
		{"before the upgrade", nil, false, []string{"backed up to "}},
		{"after the upgrade", func() { s.stop(); s.start() }, true, []string{"answers 200", "is ready", "lag      "}},
		{"restore", s.stop, false, []string{"ok      keys: ", "ok      folder: "}},
		{"restored", func() { s.dir += "-restored"; s.start() }, true, []string{"answers 200", tea}},
		{"disk", nil, true, []string{"free; writes are refused below", "Use%"}},
		{"slow", nil, true, []string{"ok      service: ", "annals_writes_waiting ", "1 passed"}},
		{"erase", nil, false, []string{"ana"}},
	}
	if len(r.blocks) != len(steps) {
		t.Errorf("the runbook has %d blocks that are tested, the test %d", len(r.blocks), len(steps))
	}
	for _, step := range steps {
		r.take(step)
	}
}

// runbook is an operator who follows the runbook.
type runbook struct {
	s      *service
	root   string
	blocks map[string]string
}

// take takes a step, and fails the test unless its commands succeed and answer what is wanted.
func (r runbook) take(step runbookStep) {
	t := r.s.t
	t.Helper()
	if r.blocks[step.block] == "" {
		t.Fatalf("the runbook lacks the block %q", step.block)
	}
	if step.before != nil {
		step.before()
	}
	end := time.Now().Add(readyLimit)
	for {
		out, err := r.shell(r.blocks[step.block])
		lacks := ""
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				lacks = want
			}
		}
		if err == nil && lacks == "" {
			return
		}
		if !step.looks || time.Now().After(end) {
			t.Fatalf("%s: %v, the answers lack %q:\n%s", step.block, err, lacks, out)
		}
	}
}

// shell runs lines in the shell of an operator.
func (r runbook) shell(lines string) (string, error) {
	ctx, cancel := context.WithTimeout(r.s.t.Context(), readyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", lines)
	cmd.Env = append(os.Environ(),
		"PATH="+r.root+":"+os.Getenv("PATH"), "ANNALS_DATA_DIR="+r.s.dir, "ANNALS_API_ADDR="+r.s.addr,
		"ANNALS_CONSOLE_ADDR=127.0.0.1:0", "HTTPS_PROXY=", "HTTP_PROXY=",
		"BACKUPS="+filepath.Join(r.root, "backups"), "METRICS=http://"+r.s.addr+"/metrics")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lineage is the answer of a lineage read.
type lineage struct {
	Nodes []struct{ ID, Kind, Headline string }
	Edges []struct{ InputID, DerivedID string }
}

// read makes a GET with a project key, checks the answer against the OpenAPI document, and decodes it.
func (s *service) read(key, path string, into any) {
	s.t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	checked := http.Client{Transport: apitest.Load(s.t, readapi.OpenAPI).Transport(s.t, transport)}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+auth.Prefix+path, nil)
	runtest.Must(s.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := checked.Do(req)
	runtest.Must(s.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, into)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %.500s, %v", path, res.StatusCode, body, err)
	}
}

// TestTrace_Dialogue loads a real dialogue, where a folder of them is named, and walks ten recalled
// memories back to the turns that caused them, and forward again.
func TestTrace_Dialogue(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_LOCOMO")
	if folder == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues in %s: %v", folder, err)
	}
	file, err := os.Open(files[0])
	runtest.Must(t, err)
	defer func() { _ = file.Close() }()
	dialogue, err := locomo.Read(file)
	runtest.Must(t, err)
	s := worked.of(t)
	c := s.project("Dialogue")
	turns := map[string]string{}
	for page := range slices.Chunk(dialogue.DataPoints(), 500) {
		items := make([]json.RawMessage, len(page))
		for n, turn := range page {
			turns[turn.ID] = turn.Content
			if items[n], err = json.Marshal(turn); err != nil {
				t.Fatal(err)
			}
		}
		receipt, err := c.IngestBatch(t.Context(), client.Batch{RawItems: items})
		runtest.Must(t, err)
		completed(t.Context(), t, c.Client, receipt.IngestionID)
	}
	walked := map[string]bool{}
	for _, question := range dialogue.Questions {
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: question.Text, Identity: "x"})
		runtest.Must(t, err)
		for _, result := range page.Results {
			if result.Artifact.Kind != "source" && !walked[result.ID] && len(walked) < 10 {
				walked[result.ID] = true
				s.walkBack(c.key, result, turns)
			}
		}
		if len(walked) == 10 {
			return
		}
	}
	t.Errorf("%d memories were recalled", len(walked))
}

// walkBack walks from a recalled memory to its turn, and from the node of the turn to the memory.
func (s *service) walkBack(key string, result client.RecallResult, turns map[string]string) {
	s.t.Helper()
	var node struct{ ID, DataPointID, Headline, Content string }
	s.read(key, "/trace/nodes/"+result.ID, &node)
	sent := result.Sources[0]
	if node.DataPointID != sent.SourceID || !strings.HasPrefix(result.Content, strings.TrimSuffix(node.Headline, "…")) {
		s.t.Errorf("memory %q of %s is the node %+v", result.Content, sent.SourceID, node)
	}
	var back lineage
	s.read(key, "/trace/lineage/"+result.ID, &back)
	source := ""
	for _, n := range back.Nodes {
		if n.Kind == "source" {
			source = n.ID
		}
	}
	joined := slices.ContainsFunc(back.Edges, func(e struct{ InputID, DerivedID string }) bool {
		return e.InputID == source && e.DerivedID == result.ID
	})
	if source == "" || !joined {
		s.t.Fatalf("lineage of %q: %+v", result.Content, back)
	}
	s.read(key, "/trace/nodes/"+source, &node)
	turn := turns[sent.SourceID]
	if node.DataPointID != sent.SourceID || node.Content != turn || turn == "" ||
		!strings.Contains(turn, sent.Excerpts[0]) {
		s.t.Errorf("memory %q leads to %+v, want the turn %q", result.Content, node, turn)
	}
	var forward lineage
	s.read(key, "/trace/lineage/"+source+"?reveal="+source+":outputs", &forward)
	if !slices.ContainsFunc(forward.Nodes, func(n struct{ ID, Kind, Headline string }) bool { return n.ID == result.ID }) {
		s.t.Errorf("the turn %q does not lead to %q: %+v", turn, result.Content, forward)
	}
}

// TestTrace_Documented types the lines of docs/trace.md after the first text of the README, and compares the
// lineage that the page shows, whose ids are those of another project.
func TestTrace_Documented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/trace.md")
	runtest.Must(t, err)
	lines, sample := tested.FindSubmatch(page), lineageSample.FindSubmatch(page)
	if lines == nil || sample == nil {
		t.Fatal("the page has no lines or no sample")
	}
	s := documented.of(t)
	c := s.project("Documented")
	store(t, c.Client, client.DataPoint{
		ID: "call-2025-05-12", Label: "Planning call", Timestamp: "2025-05-12T09:30:00Z", Identity: "ana",
		Content: "Ana moved the launch to 3 June 2025. Never deploy on Fridays.",
	})
	found, err := c.Recall(t.Context(), client.RecallRequest{Query: "When is the launch?", Identity: "ben"})
	runtest.Must(t, err)
	ids := map[string]string{}
	for _, r := range found.Results {
		ids[r.Artifact.Kind] = r.ID
	}
	credentials := fmt.Sprintf("ANNALS_API_URL=http://%s\nANNALS_PROJECT_KEY=%s\nID=%s\nSOURCE=%s\n",
		s.addr, c.key, ids["claim"], ids["source"])
	if out := shell(t, t.TempDir(), credentials+string(lines[2])); strings.Contains(out, "debugMessage") ||
		strings.Count(out, `"edges":[{`) != 3 {
		t.Errorf("the lines of the page print\n%s", out)
	}
	var shown, got lineage
	runtest.Must(t, json.Unmarshal(sample[1], &shown))
	s.read(c.key, "/trace/lineage/"+ids["source"]+"?reveal="+ids["source"]+":outputs", &got)
	if diff := cmp.Diff(shown.named(), got.named()); diff != "" {
		t.Errorf("the page shows another lineage (-page +answer):\n%s", diff)
	}
}

var lineageSample = regexp.MustCompile("(?s)<!-- tested: lineage -->\n```json\n(.*?)```")

// named returns the nodes and edges by headlines instead of ids, sorted.
func (l lineage) named() (parts []string) {
	headlines := map[string]string{}
	for _, n := range l.Nodes {
		headlines[n.ID] = n.Headline
		parts = append(parts, n.Kind+": "+n.Headline)
	}
	for _, e := range l.Edges {
		parts = append(parts, headlines[e.InputID]+" -> "+headlines[e.DerivedID])
	}
	slices.Sort(parts)
	return parts
}
