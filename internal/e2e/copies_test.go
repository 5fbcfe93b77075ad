package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/runtest"
)

// exported are the lines of an export: of data points, and of memories without our ids.
func exported(t *testing.T, text string) (points []string, memories []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, `{"type":`) {
			points = append(points, line)
			continue
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		delete(m, "id")
		memories = append(memories, m)
	}
	return points, memories
}

// invented is the n-th of many words of two syllables or more.
func invented(n int) string {
	const starts, ends = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for n += 1000; n > 0; n /= len(starts) * len(ends) {
		at := n % (len(starts) * len(ends))
		b.WriteByte(starts[at/len(ends)])
		b.WriteByte(ends[at%len(ends)])
	}
	return b.String()
}

// vocabulary is how many invented words a history has: each is in about twenty texts.
func vocabulary(points int) int { return max(500, points*2/5) }

// history is what a project of the test holds: people of two audiences talk, revise and delete. So few texts share a
// word that no question has more candidates than recall looks at.
func (s *service) history(c project, points int) {
	t, key := s.t, c.key
	t.Helper()
	s.audiences(key)
	names, random := []string{"Ana", "Bo", "Cleo", "Dan"}, rand.New(rand.NewPCG(7, 7))
	began := time.Date(2025, 3, 1, 9, 0, 0, 0, time.UTC)
	var items []json.RawMessage
	add := func(p client.DataPoint) {
		line, err := importer.Line(p)
		runtest.Must(t, err)
		items = append(items, line)
	}
	for i := range points {
		var words []string
		for range 3 + random.IntN(12) {
			words = append(words, invented(random.IntN(vocabulary(points))))
		}
		who := names[random.IntN(len(names))]
		p := client.DataPoint{
			ID: fmt.Sprintf("note %d", i), Identity: strings.ToLower(who),
			Timestamp: began.Add(time.Duration(i) * 97 * time.Minute).Format(time.RFC3339),
			Content: fmt.Sprintf("%s's favourite %s is %s. %s.", who, invented(random.IntN(20)), words[0],
				strings.Join(words[1:], " ")),
		}
		if i%3 == 0 {
			p.Label = "Talk of " + words[1]
		}
		if i%4 == 0 {
			p.Metadata = json.RawMessage(fmt.Sprintf("{\n \"n\": %d.50, \"of\": [\"<b>\", null]}", i))
		}
		if i%5 < 2 {
			p.Audience = []string{"team", "others"}[i%5]
		}
		add(p)
	}
	same := "1990-01-01T00:00:00.123456Z"
	add(client.DataPoint{ID: "b", Content: "Odd: \x00 \"quoted\" \\ \t\r\n </script> \u2028 é 漢字", Timestamp: same})
	add(client.DataPoint{ID: "é", Content: "Last of the equal times.", Timestamp: same})
	add(client.DataPoint{ID: "B", Content: "First of the equal times.", Timestamp: same})
	add(client.DataPoint{ID: "long", Content: strings.Repeat("A long text \"of\" many lines.\n", 40_000), Timestamp: same})
	add(client.DataPoint{ID: "own", Content: "A quokka.", Timestamp: same, Identity: "ana", Private: true})
	add(client.DataPoint{ID: "deleted", Content: "The password is swordfish.", Timestamp: same})
	var last *client.BatchReceipt
	for some := range slices.Chunk(items, 200) {
		var err error
		last, err = c.IngestBatch(t.Context(), client.Batch{RawItems: some})
		runtest.Must(t, err)
	}
	s.wants(key, "PUT", "/audiences/gone", map[string]any{"kind": "fixed", "identities": []string{"ana"}}, 201)
	_, err := c.Ingest(t.Context(), client.DataPoint{ID: "gone", Content: "A zebra.", Timestamp: same, Audience: "gone"})
	runtest.Must(t, err)
	s.wants(key, "DELETE", "/audiences/gone", nil, 204)
	for i := 0; i < points; i += 29 { // revised, and moved in time
		_, err := c.Ingest(t.Context(), client.DataPoint{
			ID: fmt.Sprintf("note %d", i), Content: fmt.Sprintf("Ana changed note %d, and prefers Lisbon.", i),
			Timestamp: began.Add(time.Duration(i)*97*time.Minute + 30*time.Second).Format(time.RFC3339Nano), Identity: "bo",
		})
		runtest.Must(t, err)
	}
	_, err = c.DeleteDataPoints(t.Context(), []string{"deleted"})
	runtest.Must(t, err)
	s.settled(c.Client, last.IngestionID)
}

func (s *service) audiences(key string) {
	s.t.Helper()
	for slug, body := range map[string]any{
		"team":   map[string]any{"kind": "fixed", "identities": []string{"ana", "bo"}},
		"others": map[string]any{"kind": "fixed", "identities": []string{"cleo"}},
	} {
		s.wants(key, "PUT", "/audiences/"+slug, body, 201)
	}
}

// removedAudience creates, without identities, the audience that an export names for one that was removed.
func (s *service) removedAudience(key string, lines []string) (slug string) {
	s.t.Helper()
	for _, line := range lines {
		var p struct{ ID, Audience string }
		runtest.Must(s.t, json.Unmarshal([]byte(line), &p))
		if p.ID == "gone" {
			slug = p.Audience
		}
	}
	if !strings.HasPrefix(slug, "removed-") {
		s.t.Fatalf("the removed audience is %q", slug)
	}
	s.wants(key, "PUT", "/audiences/"+slug, map[string]any{"kind": "fixed", "identities": []string{}}, 201)
	return slug
}

func (s *service) settled(c *client.Client, send string) {
	s.t.Helper()
	status, err := c.WaitSettled(s.t.Context(), send, nil)
	if err != nil || !status.Settled {
		s.t.Fatalf("not settled: %+v, %v", status, err)
	}
}

// answers are the recalls of 100 questions, without our ids.
func answers(t *testing.T, c *client.Client, points int) []client.RecallResponse {
	t.Helper()
	askers, random := []string{"ana", "bo", "cleo", "dan", "nobody"}, rand.New(rand.NewPCG(8, 8))
	all := make([]client.RecallResponse, 0, 100)
	found := 0
	for n := range cap(all) {
		words := make([]string, 1+n%4)
		for i := range words {
			words[i] = invented(random.IntN(vocabulary(points)))
		}
		page, err := c.Recall(t.Context(), client.RecallRequest{
			Query: "What about " + strings.Join(words, " or ") + "?", Identity: askers[n/20],
			QueryTimestamp: "2027-01-01T00:00:00Z",
		})
		runtest.Must(t, err)
		for i := range page.Results {
			page.Results[i].ID, page.Results[i].Artifact.ID = "", ""
		}
		found += len(page.Results)
		all = append(all, *page)
	}
	if found < 300 {
		t.Fatalf("only %d results", found)
	}
	return all
}

// A project that was exported and imported answers every question as the original does, and its export is the same.
func TestExport_ACopyRecallsTheSame(t *testing.T) {
	t.Parallel()
	points := setting(t, "ANNALS_TEST_EXPORT", 600)
	s := worked.of(t)
	original := s.project("The original")
	s.history(original, points)
	first := s.annals("export", "--project", original.slug, "--memories")
	if second := s.annals("export", "--project", original.slug, "--memories"); second != first {
		t.Error("a second export of the same project differs")
	}
	lines, memories := exported(t, first)
	if len(lines) != points+6 || len(memories) < points/2 || strings.Contains(first, "swordfish") {
		t.Fatalf("%d data points and %d memories", len(lines), len(memories))
	}
	for n, id := range []string{"B", "b", "gone", "long", "own", "é"} {
		if !strings.HasPrefix(lines[n], `{"id":"`+id+`","timestamp":"1990-01-01T00:00:00.123456Z"`) {
			t.Errorf("line %d is %.80s", n, lines[n])
		}
	}
	superseded := slices.ContainsFunc(memories, func(m map[string]any) bool { return m["supersededBy"] != nil })
	if !superseded {
		t.Error("no memory is superseded")
	}

	file := filepath.Join(t.TempDir(), "project.jsonl")
	runtest.Must(t, os.WriteFile(file, []byte(first), 0o600))
	copied := s.project("The copy")
	s.audiences(copied.key)
	removed := s.removedAudience(copied.key, lines)
	var sum struct{ Points, Sent, Skipped int }
	s.decoded(&sum, "import", "--points", file, "--wait", "--key", copied.key)
	if sum.Sent != len(lines) || sum.Skipped != len(memories) {
		t.Fatalf("import: %+v", sum)
	}
	again := s.annals("export", "--project", copied.slug, "--memories")
	copyLines, copyMemories := exported(t, again)
	if diff := cmp.Diff(lines, copyLines); diff != "" {
		t.Errorf("data points of the copy: %s", diff)
	}
	if diff := cmp.Diff(memories, copyMemories); diff != "" {
		t.Errorf("memories of the copy: %.2000s", diff)
	}
	page, err := copied.Recall(t.Context(), client.RecallRequest{Query: "zebra", Identity: "ana"})
	if err != nil || len(page.Results) > 0 {
		t.Errorf("audience %s of the copy has readers: %+v, %v", removed, page, err)
	}
	for identity, results := range map[string]int{"ana": 1, "bo": 0, "nobody": 0} {
		page, err := copied.Recall(t.Context(), client.RecallRequest{Query: "quokka", Identity: identity})
		if err != nil || len(page.Results) != results {
			t.Errorf("%s recalls what is private to ana: %+v, %v", identity, page, err)
		}
	}
	want, got := answers(t, original.Client, points), answers(t, copied.Client, points)
	for n := range want {
		if diff := cmp.Diff(want[n], got[n]); diff != "" {
			t.Errorf("question %d: %.1000s", n, diff)
		}
	}
}

// An export that is killed continues without a duplicate or a gap, and shows the project as it was when it began, but
// for what was deleted.
func TestExport_ContinuesAfterAKill(t *testing.T) {
	t.Parallel()
	s := worked.of(t)
	c := s.project("Killed exports")
	const points = 24
	send := func(i int, text string) {
		_, err := c.Ingest(t.Context(), client.DataPoint{
			ID: fmt.Sprintf("n%02d", i), Content: text, Timestamp: fmt.Sprintf("2025-01-%02dT00:00:00Z", i%28+1),
		})
		runtest.Must(t, err)
	}
	for i := range points {
		send(i, fmt.Sprintf("Text %d of many. ", i)+strings.Repeat("\x01", 512<<10)) // a line of 3 MiB
	}
	want, _ := exported(t, s.annals("export", "--project", c.slug))
	if len(want) != points {
		t.Fatalf("%d lines", len(want))
	}

	file := filepath.Join(t.TempDir(), "export.jsonl")
	begun := 0
	runtest.Await(t, "an export is killed after it began and before it ended", func() bool {
		_ = os.Remove(file)
		cmd := exec.Command(binary, "export", "--project", c.slug, "--out", file, "--data-dir", s.dir)
		runtest.Must(t, cmd.Start())
		runtest.Await(t, "the export has saved its progress", func() bool {
			text, err := os.ReadFile(file + ".progress")
			var state struct{ Points int }
			if _, ended := os.Stat(file); ended == nil {
				return true
			}
			begun = 0
			if err == nil && json.Unmarshal(text, &state) == nil {
				begun = state.Points
			}
			return begun > 0
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or had ended just before
		_, ended := os.Stat(file)
		return ended != nil && begun > 0
	})
	send(0, "The first one is revised.")
	send(points-1, "The last one is revised.")
	send(points, "This one is new.")
	_, err := c.DeleteDataPoints(t.Context(), []string{"n01", "n22"})
	runtest.Must(t, err)

	var sum struct{ Points int }
	s.decoded(&sum, "export", "--project", c.slug, "--out", file)
	text, err := os.ReadFile(file)
	runtest.Must(t, err)
	got, _ := exported(t, string(text))
	// What was deleted after its line was written stays in the file; the killed export wrote n01.
	want = slices.Delete(want, 22, 23)
	if !slices.Equal(got, want) || sum.Points != len(want) {
		var ids []string
		for _, line := range got {
			ids = append(ids, line[:40])
		}
		t.Errorf("%d points, lines %q", sum.Points, ids)
	}
	for _, left := range []string{file + ".part", file + ".progress"} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	if out, err := s.try("export", "--project", c.slug, "--out", file); err == nil || !strings.Contains(out, "exists") {
		t.Errorf("a file was replaced: %v %s", err, out)
	}
	if out, err := s.try("export", "--project", "nobody's"); err == nil || !strings.Contains(out, `there is no project "nobody's"`) {
		t.Errorf("an unknown project: %v %s", err, out)
	}
}

// A backup made under load and restored elsewhere serves everything that was acknowledged before it
// began: it is recalled, its status stands, and the keys that the first installation handed out are
// good at the second. The first one goes on. Nothing that uses a data folder depends on the characters of its name: the
// private Postgres, the index, the operator socket, the credentials, a backup and a restore.
func TestBackup_UnderLoadThenRestore(t *testing.T) {
	t.Parallel()
	const name = "ä b+c%20'"
	root, err := os.MkdirTemp("/tmp", "annals-e2e-") //nolint:usetesting // its path is too long for a socket
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, os.RemoveAll(root)) })
	s := newService(t)
	s.dir = filepath.Join(root, "1", name)
	s.start()
	for _, command := range []string{"status", "failed"} {
		s.annals(command)
	}
	c := s.client()
	before := map[string]string{} // ingestion ids by source
	for i := range 12 {
		id := fmt.Sprintf("before-%d", i)
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: fmt.Sprintf("Person%d lives in Town%d and likes tea", i, i)})
		runtest.Must(t, err)
		before[id] = r.IngestionID
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 3 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				point := client.DataPoint{
					ID:      fmt.Sprintf("during-%d-%d", w, i),
					Content: fmt.Sprintf("Visitor%d saw House%d", w, i),
				}
				if _, err := c.Ingest(context.WithoutCancel(ctx), point); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	backup := filepath.Join(root, "2", name)
	out, err := s.try("backup", backup)
	stop()
	load.Wait()
	if err != nil || !strings.Contains(out, "backed up to "+backup) {
		t.Fatalf("annals backup: %v\n%s", err, out)
	}
	// A mistake of the person is no failure of the server.
	again, err := s.try("backup", backup)
	if err == nil || !strings.HasPrefix(again, "annals: back up into ") || !strings.Contains(again, "not empty") {
		t.Errorf("a second backup into the folder: %v\n%s", err, again)
	}
	s.stop()

	restored := newService(t)
	restored.dir = filepath.Join(root, "3", name)
	restored.annals("restore", backup)
	restored.start()
	rc := restored.client()
	for i := range 12 {
		id := fmt.Sprintf("before-%d", i)
		completed(t.Context(), t, rc, before[id])
		page, err := rc.Recall(t.Context(),
			client.RecallRequest{Query: fmt.Sprintf("Where does Person%d live? Town%d", i, i), Identity: "x"})
		if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != id {
			t.Errorf("recall of %s: %+v, %v", id, page, err)
		}
	}
	store(t, rc, client.DataPoint{ID: "after", Content: "Anna moved to Porto"})
}
