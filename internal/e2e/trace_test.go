package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// lineage is the answer of a lineage read.
type lineage struct {
	Nodes []struct{ ID, Kind, Headline string }
	Edges []struct{ InputID, DerivedID string }
}

// read makes a GET with the project key, checks the answer against the OpenAPI document, and decodes it.
func (s *service) read(path string, into any) {
	s.t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	checked := http.Client{Transport: apitest.Load(s.t, readapi.OpenAPI).Transport(s.t, transport)}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+auth.Prefix+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.credentials()["ANNALS_PROJECT_KEY"])
	res, err := checked.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	dialogue, err := locomo.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, sharedPostgres(t))
	s.start()
	c := s.client()
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
		if err != nil {
			t.Fatal(err)
		}
		completed(t.Context(), t, c, receipt.IngestionID)
	}
	walked := map[string]bool{}
	for _, question := range dialogue.Questions {
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: question.Text, Identity: "x"})
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range page.Results {
			if result.Artifact.Kind != "source" && !walked[result.ID] && len(walked) < 10 {
				walked[result.ID] = true
				s.walkBack(result, turns)
			}
		}
		if len(walked) == 10 {
			return
		}
	}
	t.Errorf("%d memories were recalled", len(walked))
}

// walkBack walks from a recalled memory to its turn, and from the node of the turn to the memory.
func (s *service) walkBack(result client.RecallResult, turns map[string]string) {
	s.t.Helper()
	var node struct{ ID, DataPointID, Headline, Content string }
	s.read("/trace/nodes/"+result.ID, &node)
	sent := result.Sources[0]
	if node.DataPointID != sent.SourceID || !strings.HasPrefix(result.Content, strings.TrimSuffix(node.Headline, "…")) {
		s.t.Errorf("memory %q of %s is the node %+v", result.Content, sent.SourceID, node)
	}
	var back lineage
	s.read("/trace/lineage/"+result.ID, &back)
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
	s.read("/trace/nodes/"+source, &node)
	turn := turns[sent.SourceID]
	if node.DataPointID != sent.SourceID || node.Content != turn || turn == "" ||
		!strings.Contains(turn, sent.Excerpts[0]) {
		s.t.Errorf("memory %q leads to %+v, want the turn %q", result.Content, node, turn)
	}
	var forward lineage
	s.read("/trace/lineage/"+source+"?reveal="+source+":outputs", &forward)
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
	s := newService(t, sharedPostgres(t))
	s.start()
	c := s.client()
	receipt, err := c.Ingest(t.Context(), client.DataPoint{
		ID: "call-2025-05-12", Label: "Planning call", Timestamp: "2025-05-12T09:30:00Z", Identity: "ana",
		Content: "Ana moved the launch to 3 June 2025. Never deploy on Fridays.",
	})
	runtest.Must(t, err)
	completed(t.Context(), t, c, receipt.IngestionID)
	found, err := c.Recall(t.Context(), client.RecallRequest{Query: "When is the launch?", Identity: "ben"})
	runtest.Must(t, err)
	ids := map[string]string{}
	for _, r := range found.Results {
		ids[r.Artifact.Kind] = r.ID
	}
	credentials := fmt.Sprintf("ANNALS_API_URL=http://%s\nANNALS_PROJECT_KEY=%s\nID=%s\nSOURCE=%s\n",
		s.addr, s.credentials()["ANNALS_PROJECT_KEY"], ids["claim"], ids["source"])
	if out := shell(t, t.TempDir(), credentials+string(lines[2])); strings.Contains(out, "debugMessage") ||
		strings.Count(out, `"edges":[{`) != 3 {
		t.Errorf("the lines of the page print\n%s", out)
	}
	var shown, got lineage
	runtest.Must(t, json.Unmarshal(sample[1], &shown))
	s.read("/trace/lineage/"+ids["source"]+"?reveal="+ids["source"]+":outputs", &got)
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
