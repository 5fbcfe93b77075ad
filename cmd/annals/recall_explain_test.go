package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recall/explained"
)

func TestRecallExplain_WrongUse(t *testing.T) {
	for _, args := range [][]string{{"--missing=a"}, {"--project=default"}, {"--org=Acme"}} {
		got := annals(t.Context(), nil, "", append([]string{"recall", "tea", "--identity=ana"}, args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, "--missing, --project and --org need --explain") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestRecallExplain_WithoutServer(t *testing.T) {
	_, dir := startFake(t) // it has an address and a key, and no socket
	for _, args := range [][]string{{}, {"--project=default"}, {"--json", "--missing=a"}} {
		got := annals(t.Context(), nil, "", append([]string{"recall", "tea", "--identity=ana", "--explain", "--data-dir", dir}, args...)...)
		if got.code != exitFailed || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, "no server is running on data folder "+dir) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	got := annals(t.Context(), nil, "", "recall", "tea", "--identity=ana", "--explain", "--data-dir", t.TempDir())
	if got.code != exitFailed || !strings.Contains(got.stderr, "no project key") {
		t.Errorf("without a key: %+v", got)
	}
}

// The commands explain recalls of a running service.
func TestRecallExplain_Served(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.start()
	command := func(args ...string) outcome {
		return annals(t.Context(), map[string]string{"ANNALS_API_URL": "http://" + s.addr}, "", append(args, "--data-dir", s.dir)...)
	}
	for id, content := range map[string]string{"call 1": "Ana moved the launch to 3 June 2025.", "rain": "It rained."} {
		if _, err := s.client().Ingest(t.Context(), client.DataPoint{ID: id, Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Await(t, "it is recalled", func() bool {
		page, code := s.recall("launch")
		return code == "" && len(page.Results) > 1 // the text and its memory
	})
	got := command("recall", "When is the launch?", "--identity=ben", "--explain", "--missing=rain", "--missing", "a, b")
	for _, want := range []string{
		"words: launch ", "asks for: a time\n", "call 1", "passed, project", "words, memory", " + time evidence ",
		"not among the candidates", "it has none of the question's words", "a, b    not stored",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("it prints no %q: %+v", want, got)
		}
	}
	got = command("recall", "When is the launch?", "--identity=ben", "--explain", "--project=default", "--missing=rain", "--json")
	var e explained.Explanation
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil || len(e.Results) == 0 || e.Results[0].Score <= 0 ||
		len(e.Sources) != 1 || e.Sources[0].Verdict != explained.NotCandidate {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	if got := command("recall", "launch", "--identity=ben", "--explain", "--limit=999"); got.code != exitFailed ||
		!strings.Contains(got.stderr, "invalid-request: limit") {
		t.Errorf("wrong limit: %+v", got)
	}
	if got := command("recall", "launch", "--identity=ben", "--explain", "--key=svc_sk_other"); got.code != exitFailed ||
		!strings.Contains(got.stderr, "no project of this server has the key") {
		t.Errorf("wrong key: %+v", got)
	}

	values, err := datafolder.ReadCredentials(s.dir)
	if err != nil || strings.Contains(got.stdout+got.stderr, values[datafolder.ProjectKeyName]) {
		t.Errorf("a key is in the output, %v", err)
	}
}
