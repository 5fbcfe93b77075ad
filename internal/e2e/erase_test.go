package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

// What is deleted is in no file of the log and of the index once "annals erase --now" has answered, and before that it
// is. The same holds for the traits of a removed identity, and a while later without that command.
func TestErase_NoWordOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newService(t, sharedPostgres(t))
	s.start()
	s.eraseTexts()
	s.eraseTraits()
}

func (s *service) eraseTexts() {
	t, c := s.t, s.client()
	gone, stays := runtest.Word(), runtest.Word()
	for id, word := range map[string]string{"gone": gone, "stays": stays} {
		store(t, c, client.DataPoint{ID: id, Content: "The password of " + id + " is " + word + "."})
	}
	// A stem of a word may be in the index.
	files := func(word string) (in []string) {
		for _, folder := range []string{"log", "recall"} {
			for _, file := range blevetest.Holding(t, filepath.Join(s.dir, folder), word[:20]) {
				in = append(in, folder+"/"+file)
			}
		}
		return in
	}
	both := func(word string) bool {
		text := strings.Join(files(word), " ")
		return strings.Contains(text, "log/") && strings.Contains(text, "recall/")
	}
	if !both(gone) || !both(stays) {
		t.Fatalf("before the deletion: %v, %v", files(gone), files(stays))
	}
	runtest.Must(t, errorOf(c.DeleteDataPoints(t.Context(), []string{"gone"})))
	s.eraseNow()
	if in := files(gone); len(in) > 0 {
		t.Errorf("erased, and still in %v", in)
	}
	if !both(stays) {
		t.Errorf("what was not deleted is in %v only", files(stays))
	}
	if out := s.annals("erase"); out != "nothing waits to be erased\n" {
		t.Errorf("annals erase: %s", out)
	}
	page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What is the password? " + stays, Identity: "x"})
	if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != "stays" {
		t.Errorf("recall of what stays: %+v, %v", page, err)
	}
	for _, result := range page.Results {
		if strings.Contains(result.Content, gone) {
			t.Errorf("recall finds what is erased: %+v", result)
		}
	}
}

// eraseNow runs "annals erase --now", which leaves nothing that was deleted, and damages no stream.
func (s *service) eraseNow() {
	s.t.Helper()
	var done struct {
		Left struct{ Deletions, Identities, FanOuts, Blobs int }
	}
	if s.decoded(&done, "erase", "--now"); done.Left != (struct{ Deletions, Identities, FanOuts, Blobs int }{}) {
		s.t.Fatalf("annals erase --now: %+v", done)
	}
	s.annals("doctor")
}

// eraseTraits removes identities: their traits go, and those of an identity that exists stay with their history.
func (s *service) eraseTraits() {
	t, key := s.t, s.credentials()["ANNALS_PROJECT_KEY"]
	call := func(want int, method, path string, body any) {
		t.Helper()
		if status, answer, err := s.ask(t.Context(), key, method, path, body); err != nil || status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
		}
	}
	said := map[string][]string{}
	for _, name := range []string{"now", "later", "never"} {
		word := runtest.Word
		words := []string{word(), word(), word(), word()}
		said[name] = words
		traits := func(word string) map[string]any { return map[string]any{"traits": map[string]string{"city": word}} }
		call(200, "PUT", "/identities/"+name, traits(words[0]))
		call(200, "PATCH", "/identities/"+name, traits(words[1]))
		call(200, "POST", "/identities/bulk", []any{
			map[string]any{
				"identity": name,
				"traits":   map[string]string{"city": words[2]},
			}, map[string]any{"identity": "other", "traits": map[string]string{}},
		})
		call(200, "PUT", "/identities/"+name, traits(words[3]))
	}
	// Of a word that stands twice in a compressed block, a part may be left.
	found := func(name string) (n int) {
		for _, word := range said[name] {
			if len(blevetest.Holding(t, filepath.Join(s.dir, "log"), word[:14]))+len(
				blevetest.Holding(t, filepath.Join(s.dir, "log"), word[14:]),
			) > 0 {
				n++
			}
		}
		return n
	}
	for name, words := range said {
		if n := found(name); n != len(words) {
			t.Fatalf("before the removal %d of the words of %q are in the log", n, name)
		}
	}
	call(204, "DELETE", "/identities/now", nil)
	s.eraseNow()
	if n := found("now"); n > 0 {
		t.Errorf("erased, and %d words are in the log", n)
	}
	call(204, "DELETE", "/identities/later", nil)
	runtest.Await(t, "nothing waits to be erased", func() bool { return s.annals("erase") == "nothing waits to be erased\n" })
	if n := found("later"); n > 0 {
		t.Errorf("nothing waits to be erased, and %d words are in the log", n)
	}
	if n := found("never"); n < 2 {
		t.Errorf("%d words of an identity that lives are in the log, and one of them is not history", n)
	}
	call(404, "GET", "/identities/now", nil)
	call(200, "GET", "/identities/never", nil)
}

// person is somebody who uses a project in every way that leaves a trace.
type person struct {
	name string
	// own are the words that only the person wrote, besides the name.
	own []string
}

func (p *person) word() string {
	p.own = append(p.own, runtest.Word())
	return p.own[len(p.own)-1]
}

// lives makes the calls of the person and about the person.
func (p *person) lives(t *testing.T, s *service, key string) {
	t.Helper()
	c := s.with(key)
	call := func(method, path string, body any, want int) {
		t.Helper()
		if status, answer, err := s.ask(t.Context(), key, method, path, body); err != nil || status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
		}
	}
	traits := func() map[string]any { return map[string]any{"traits": map[string]string{p.word(): p.word()}} }
	record := "/identities/" + p.name
	call("PUT", record, traits(), 200)
	call("PATCH", record, traits(), 200)
	call("GET", record, nil, 200)
	call("GET", "/identities", nil, 200)
	call("GET", record+"/nothing", nil, 404)
	call("POST", "/identities/bulk", []any{
		map[string]any{"traits": map[string]string{"city": p.word()}, "identity": p.name},
		map[string]any{"identity": "bo", "traits": map[string]string{}},
	}, 200)
	call("PUT", "/audiences/team", map[string]any{"kind": "fixed", "identities": []string{p.name, "bo"}}, 201)
	for n := range 3 {
		_, err := c.Ingest(t.Context(), client.DataPoint{
			ID: p.word(), Content: "I met " + p.word() + ".", Label: p.word(), Metadata: json.RawMessage(`{"k":"` + p.word() + `"}`),
			Identity: p.name, Audience: []string{"", "team"}[n%2], IdempotencyKey: p.word(),
		})
		runtest.Must(t, err)
	}
	// Others wrote some of a batch, and revised what the person began.
	batch := []any{
		map[string]any{"content": "I like " + p.word(), "identity": p.name}, map[string]any{"content": "Bo likes tea.", "identity": "bo"},
	}
	call("POST", "/ingest/batch", map[string]any{"items": batch}, 202)
	call("POST", "/ingest", map[string]any{"id": "shared", "content": "First " + p.word(), "identity": p.name}, 202)
	call("POST", "/ingest", map[string]any{"id": "shared", "content": "Then by Bo.", "identity": "bo"}, 202)
	// A re-send of what another one wrote makes no revision, nor does one to another audience.
	twice := map[string]any{"id": "twice", "content": "Bo wrote this.", "identity": "bo"}
	call("POST", "/ingest", twice, 202)
	twice["identity"] = p.name
	call("POST", "/ingest", twice, 200)
	call("POST", "/ingest/batch", map[string]any{"items": []any{twice}}, 200)
	twice["audience"] = "team"
	call("POST", "/ingest", twice, 200)
	call("POST", "/ingest", map[string]any{"id": "twice", "content": "Bo wrote this.", "identity": "bo"}, 200)
	long := map[string]any{"id": "long", "content": strings.Repeat("x ", 300_000) + p.word(), "identity": p.name}
	call("POST", "/ingest", long, 202)
	// Sends that are refused, also one whose name is beyond what the log keeps.
	call("POST", "/ingest", map[string]any{"content": p.word(), "identity": p.name, "audience": "nowhere"}, 400)
	call("POST", "/ingest/batch", map[string]any{"items": []any{
		map[string]any{"content": p.word() + strings.Repeat(" y", 200_000), "identity": p.name, "audience": "nowhere"},
		map[string]any{"content": "z", "identity": "bo"},
	}}, 400)
	for _, query := range []string{"What did I like? " + p.word(), "tea"} {
		call("POST", "/recall", map[string]any{"query": query, "identity": p.name}, 200)
	}
	call("POST", "/recall", map[string]any{"query": "Who met whom?", "identity": "bo"}, 200)
}

// After "annals erase --identity" no table and no file of log and index holds a word of the person, also if the command
// and the service were killed. What others wrote stays.
func TestErase_APerson(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	db, err := pgxpool.New(t.Context(), address)
	runtest.Must(t, err)
	t.Cleanup(db.Close)
	s := newService(t, "ANNALS_POSTGRES="+address, "ANNALS_LOG_LEVEL=debug")
	s.start()
	key := s.credentials()["ANNALS_PROJECT_KEY"]
	c := s.client()
	p := &person{name: runtest.Word() + "@example.com"}
	p.lives(t, s, key)
	last, err := c.Ingest(t.Context(), client.DataPoint{ID: "about", Content: "Bo met Cleo.", Identity: "bo"})
	runtest.Must(t, err)
	s.settled(c, last.IngestionID)
	runtest.Await(t, "the calls are in the request log", func() bool {
		return query[int64](t, db, "select count(*) from ops.requests where path = '/api/v1/recall'")[0] == 3
	})
	if in := strings.Join(holding(t, s, db, p.name), " "); !strings.Contains(in, "ops.requests") ||
		!strings.Contains(in, "directory.identities") || !strings.Contains(in, "log/") || !strings.Contains(in, "datapoints.") {
		t.Fatalf("before the erasure the name is in %s", in)
	}

	erase := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{
			"erase", "--identity", p.name, "--project", "default", "--data-dir", s.dir,
		}, args...)...)
	}
	out, err := erase().CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 2 || !strings.Contains(string(out), "wrote 6 data points") ||
		strings.Contains(string(out), "again") {
		t.Fatalf("without a terminal: %v %s", err, out)
	}
	if n := query[int64](t, db, "select count(*) from datapoints.data_points")[0]; n != 9 {
		t.Fatalf("%d data points although nobody said yes", n)
	}
	// Nobody watches, and the service is killed in the middle: it goes on by itself.
	cmd := erase("--yes")
	runtest.Must(t, cmd.Start())
	runtest.Await(t, "something is deleted", func() bool {
		return query[int64](t, db, "select count(*) from datapoints.data_points")[0] < 9
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	s.kill()
	s.start()
	runtest.Await(t, "the person is erased", func() bool {
		return query[int64](t, db, "select count(*) from ops.person_erasures")[0] == 0
	})
	// A person who writes again is erased again.
	late, err := c.Ingest(t.Context(), client.DataPoint{ID: p.word(), Content: "I am back, " + p.word() + ".", Identity: p.name})
	runtest.Must(t, err)
	s.settled(c, late.IngestionID)
	out, err = erase("--yes", "--json").Output()
	var done struct {
		DataPoints int
		Record     bool
		Erased     struct {
			Left struct{ Deletions, Identities, FanOuts int }
		}
	}
	if err != nil || json.Unmarshal(out, &done) != nil || done.Erased.Left.Deletions+done.Erased.Left.Identities != 0 ||
		done.DataPoints != 1 || !done.Record {
		t.Fatalf("erase: %v %s", err, out)
	}
	_, err = db.Exec(t.Context(), "analyze")
	runtest.Must(t, err)
	for n, word := range append([]string{p.name}, p.own...) {
		if in := holding(t, s, db, word); len(in) > 0 {
			t.Errorf("erased, and word %d is in %v", n, in)
		}
		if strings.Contains(s.log.Tail(1<<20), word[:20]) {
			t.Errorf("word %d is in the log of the process", n)
		}
	}
	page, err := c.Recall(t.Context(), client.RecallRequest{Query: "Bo tea Cleo", Identity: "bo"})
	if err != nil || len(page.Results) < 2 {
		t.Errorf("what others wrote: %+v, %v", page, err)
	}
	if n := query[int64](t, db, "select count(*) from datapoints.data_points")[0]; n != 3 {
		t.Errorf("%d data points stay, want those of the others", n)
	}
	again, err := erase("--yes").Output()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != 3 ||
		!strings.Contains(string(again), "data points deleted: 0\nrecord: no record was left\n") {
		t.Errorf("a run after the last, of nobody known: %v %s", err, again)
	}
	if n := query[string](t, db, "select path from ops.requests where identity is null and path like '%{identity}%'"); len(n) < 3 {
		t.Errorf("paths %v", n)
	}
	// Stored bodies are compressed, so a search of the table does not find every word.
	calls := query[string](t, db, "select request_id::text from ops.requests")
	bodies := 0
	for _, id := range calls {
		status, answer, err := s.ask(t.Context(), key, "GET", "/requests/"+id, nil)
		if err != nil || status != 200 {
			t.Fatalf("call %s: %d %s, %v", id, status, answer, err)
		}
		for n, word := range append([]string{p.name}, p.own...) {
			if strings.Contains(string(answer), word) {
				t.Errorf("word %d is in call %.300s", n, answer)
			}
		}
		if strings.Contains(string(answer), `"payloadExpired":false`) {
			bodies++
		}
	}
	if len(calls) < 15 || bodies > 1 { // the recall above came after the erasure
		t.Errorf("of %d calls %d have bodies", len(calls), bodies)
	}
}
