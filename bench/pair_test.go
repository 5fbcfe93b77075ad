package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
)

func TestPairReport_GainsAndTable(t *testing.T) {
	r := &PairReport{
		Programs: []PairProgram{{Name: "old", Commit: "aaaa"}, {Name: thisTree, Commit: "bbbb", Changed: true}},
		Sizes:    PairSizes{Rounds: 3, Passages: 50_000, For: 10 * time.Second}, Processors: 2,
	}
	recall, sends := PairRow{What: "recall, p50", Unit: "ms"}, PairRow{What: "sends", Unit: "/s", More: true}
	below := PairRow{What: "recall, p50: processor time of the service for a recall", Unit: "µs", Below: true}
	refused, page := PairRow{What: "refused", Unit: "%"}, PairRow{What: "page", Unit: "ms"}
	for round := range 3 {
		n := float64(round)
		r.add("old", recall, 20+10*n) // 20 30 40
		r.add("old", below, 1000)
		r.add("old", sends, 500)
		r.add("old", refused, 0)
		r.add(thisTree, recall, 10+5*n) // 10 15 20
		r.add(thisTree, below, 4000)
		r.add(thisTree, sends, 750+250*n) // 750 1000 1250
		r.add(thisTree, refused, 1)
		r.add(thisTree, page, 1234.5)
	}
	r.leaveOut("old", partPage, noConsole)
	r.leaveOut("old", partPage, noConsole)
	r.compare()
	if g := r.Rows[0].Gain["old"]; g != (PairGain{2, 2, 2}) || r.Rows[0].Median["old"] != 30 {
		t.Errorf("less is better: %+v of %+v", g, r.Rows[0])
	}
	if g := r.Rows[1].Gain["old"]; g != (PairGain{0.25, 0.25, 0.25}) {
		t.Errorf("more processor time is worse: %+v", g)
	}
	if g := r.Rows[2].Gain["old"]; g != (PairGain{2, 1.5, 2.5}) {
		t.Errorf("more is better: %+v", g)
	}
	for _, row := range r.Rows[3:] {
		if len(row.Gain) != 0 {
			t.Errorf("%s has a ratio of nothing: %+v", row.What, row.Gain)
		}
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	const want = `MEDIAN OF 3 ROUNDS                                     old    this tree  TIMES AS GOOD AS old
recall, p50                                       ms   30     15         2.00 (2.00 to 2.00)
  processor time of the service for a recall      µs   1,000  4,000      0.25 (0.25 to 0.25)
sends                                             /s   500    1,000      2.00 (1.50 to 2.50)
refused                                           %    0      1          -
page                                              ms   -      1,235      -
Left out of old: a page of the console, since it has no console that a person signs in to.
old is aaaa.
this tree is bbbb with changes.
50,000 passages, loads of 10s, 2 processors; this tree has the benchmarks.
`
	fields := func(text string) string { // whatever the widths of the columns
		return strings.Join(strings.Fields(strings.ReplaceAll(text, "\n", " | ")), " ")
	}
	if got := fields(table.String()); got != fields(want) {
		t.Errorf("got\n%s\nwant\n%s", table.String(), want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestLacking(t *testing.T) {
	const serve, node = "--eventstore --console-addr --rate-limit-per-minute", "--addr --insecure"
	for name, c := range map[string]struct {
		serve, node string
		want        []string
	}{
		"nothing":              {serve, node, nil},
		"no node":              {serve, "", []string{partNode}},
		"node with TLS alone":  {serve, "--addr --cert", []string{partNode}},
		"no other event store": {"--console-addr", node, []string{partNode}},
		"no console":           {"--eventstore", node, []string{partPage}},
	} {
		var got []string
		for part, why := range lacking(c.serve, c.node) {
			if why == "" {
				t.Errorf("%s: %s is left out without words", name, part)
			}
			got = append(got, part)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it lacks %v, want %v", name, got, c.want)
		}
	}
	if got := known("  --rate-limit-per-minute=N", "--rate-limit-per-minute=0", "--other=1"); !slices.Equal(got,
		[]string{"--rate-limit-per-minute=0"}) {
		t.Errorf("it knows %v", got)
	}
}

func TestLackOf(t *testing.T) {
	for status, want := range map[int]bool{
		400: false, 404: true, 405: true, 429: false, 500: false, 501: true, 503: false,
	} {
		why, got := lackOf(fmt.Errorf("call: %w", &client.APIError{Status: status}))
		if got != want || got != strings.Contains(why, fmt.Sprint(status)) {
			t.Errorf("status %d: %v %q", status, got, why)
		}
	}
	if _, got := lackOf(errors.New("it ended")); got {
		t.Error("any error is a lack")
	}
	if why, got := lackOf(fmt.Errorf("page: %w", lack(noConsole))); !got || why != noConsole {
		t.Errorf("a lack: %v %q", got, why)
	}
}

// A base may lack something, which is left out once and for all rounds. Of this tree it is an error.
func TestPairRun_LeavesOut(t *testing.T) {
	report, calls := &PairReport{}, 0
	run := func(name string, err error) error {
		m := &pairRun{service: pairService{PairProgram: PairProgram{Name: name}}, report: report}
		m.service.lacks = map[string]string{partNode: "it has no node"}
		m.Progress = io.Discard
		return errors.Join(
			m.part(t.Context(), pairPart{"recall", func(context.Context) error { calls++; return err }}),
			m.part(t.Context(), pairPart{partNode, func(context.Context) error { return errors.New("called") }}))
	}
	missing := &client.APIError{Status: 404}
	for range 2 {
		if err := run("old", missing); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 || len(report.LeftOut) != 2 || report.LeftOut[0].Part != "recall" || report.LeftOut[1].Part != partNode {
		t.Errorf("%d calls, left out: %+v", calls, report.LeftOut)
	}
	if err := run("other", errors.New("it ended")); err == nil {
		t.Error("a failure of a base is no error")
	}
	if err := run(thisTree, missing); err == nil {
		t.Error("what this tree lacks is no error")
	}
}

func TestWithoutSettings(t *testing.T) {
	got := withoutSettings([]string{"PATH=/bin", "ANNALS_EVENTSTORE=esdb://a", "HOME=/", "ANNALS_INDEX=x"})
	if !slices.Equal(got, []string{"PATH=/bin", "HOME=/"}) {
		t.Errorf("got %v", got)
	}
}

// Each base is built in a tree of its own, of which nothing remains, also if it cannot be built.
func TestBuildAll(t *testing.T) {
	repo, dir := t.TempDir(), t.TempDir()
	main := func(help string) string {
		return "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() {\n\tswitch os.Args[1] {\n" + help +
			"\tdefault:\n\t\tos.Exit(2)\n\t}\n}\n"
	}
	commit := func(text string) string {
		t.Helper()
		writeFile(t, filepath.Join(repo, "cmd", "annals", "main.go"), text)
		runGit(t, repo, "add", "-A")
		runGit(t, repo, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "x")
		return runGit(t, repo, "rev-parse", "HEAD")
	}
	runGit(t, repo, "init", "--quiet")
	writeFile(t, filepath.Join(repo, "go.mod"), "module example.com/x\n\ngo 1.26\n")
	old := commit(main("\tcase \"serve\":\n\t\tfmt.Println(\"--eventstore --console-addr\")\n"))
	broken := commit("package main\n\nfunc main() { undefined() }\n")
	head := commit(main(
		"\tcase \"serve\":\n\t\tfmt.Println(\"--eventstore --console-addr --rate-limit-per-minute\")\n" +
			"\tcase \"node\":\n\t\tfmt.Println(\"--insecure\")\n"))
	writeFile(t, filepath.Join(repo, "changed"), "x")

	services, err := buildAll(t.Context(), repo, []string{old}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(services) != 2 || services[0].Commit != old || services[1].Name != thisTree || services[1].Commit != head ||
		services[0].Changed || !services[1].Changed {
		t.Fatalf("got %+v", services)
	}
	if s := services[0]; s.lacks[partNode] == "" || len(s.flags) != 0 {
		t.Errorf("the base: %+v", s)
	}
	if s := services[1]; len(s.lacks) != 0 || !slices.Equal(s.flags, []string{"--rate-limit-per-minute=0"}) {
		t.Errorf("this tree: %+v", s)
	}
	for _, base := range []string{broken, "no-such-commit", "--all"} {
		if _, err := buildAll(t.Context(), repo, []string{base}, dir); err == nil {
			t.Errorf("%s was built", base)
		}
	}
	if trees := runGit(t, repo, "worktree", "list"); strings.Contains(trees, "\n") {
		t.Errorf("trees remain:\n%s", trees)
	}
	if _, err := os.Stat(filepath.Join(dir, "tree")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a tree remains: %v", err)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, output)
	}
	return strings.TrimSpace(string(output))
}
