package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
	blocks := tested.FindAllSubmatch(readme, -1)
	if len(blocks) < 4 {
		t.Fatalf("the README has %d blocks that are tested", len(blocks))
	}
	clone := cloneOf(newService(t))
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
	if err != nil {
		t.Fatal(err)
	}
	blocks := tested.FindAllSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks that are tested", len(blocks))
	}
	clone := cloneOf(newService(t))
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
	if err != nil {
		t.Fatal(err)
	}
	lines := tested.FindSubmatch(page)
	if lines == nil {
		t.Fatal("the page has no lines that are tested")
	}
	out := shell(t, cloneOf(newService(t)), `PATH="$PWD/bin:$PATH"`+"\n"+string(lines[2]))
	for _, want := range []string{"self-hosted", "svc_mk_", "project support", "svc_sk_", "ingestion cap 100000"} {
		if !strings.Contains(out, want) {
			t.Errorf("the answers lack %s:\n%s", want, out)
		}
	}
}

// cloneOf starts a service, and returns a folder with its data and the program where a clone has them.
func cloneOf(s *service) string {
	s.t.Helper()
	s.start()
	clone := s.t.TempDir()
	for name, target := range map[string]string{"data": s.dir, "bin/annals": binary} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(clone, name)), 0o700); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(clone, name)); err != nil {
			s.t.Fatal(err)
		}
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
