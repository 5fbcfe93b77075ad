package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// The index is lost and cannot be built: everything but recall is served until it is built.
func TestServer_IndexIncomplete(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	key := h.credentials()[datafolder.ProjectKeyName]
	h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana grows marigold."})
	h.stop()
	runtest.Must(t, os.RemoveAll(filepath.Join(h.dir, "recall")))
	var held pgx.Tx
	h.arrange = func(p *Server) {
		p.index.grace = 50 * time.Millisecond
		var err error
		held, err = p.storage.db.Begin(t.Context())
		runtest.Must(t, err)
		_, err = held.Exec(t.Context(), "lock table recallindex.data_points in access exclusive mode")
		runtest.Must(t, err)
	}
	h.start()
	recall := func() answer {
		return h.fetchAPI(key, http.MethodPost, api+"/recall", point{"query": "Who grows marigold?", "identity": "Ana"})
	}
	recall().want(t, http.StatusServiceUnavailable)
	sent, _ := h.sendOnce(key, "/ingest", http.StatusAccepted, point{"id": "b", "content": "Bo grows hellebore."})
	h.must(key, http.MethodGet, api+"/ingest/"+sent, nil, nil)
	h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
	h.must(key, http.MethodGet, api+"/identities", nil, nil)
	if why := h.remarks(true).RecallElsewhere; !strings.Contains(why, "being built") {
		t.Errorf("remark on recall: %q", why)
	}
	runtest.Must(t, held.Rollback(t.Context()))
	runtest.Await(h.t, "recall is answered", func() bool { return recall().status == http.StatusOK })
	recall().want(t, http.StatusOK, "hellebore").lacks(t, "Ana grows")
}

func TestHealthOfWrites_WithoutIndex(t *testing.T) {
	health := healthOfWrites(func(context.Context) []runner.Status {
		return []runner.Status{{Name: access.Name}, {Name: recallindex.Name}, {Name: "embeddings"}}
	})
	if got := health(t.Context()); len(got) != 1 || got[0].Name != access.Name {
		t.Errorf("writes need %+v", got)
	}
}

// A damaged part of the index interrupts only recall of its projects, until it is filled from the
// log. /readyz names it meanwhile. Writes and the recall of others continue.
func TestServer_DamagedIndex(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	values := h.credentials()
	ask := func(key string) (int, int) {
		status, answer := h.call(key, http.MethodPost, api+"/recall", point{"query": "Who likes quinces?", "identity": "Ana"})
		return status, bytes.Count(answer, []byte("Ana likes quinces."))
	}
	slots := func() []string {
		found, err := filepath.Glob(filepath.Join(h.dir, "recall", "*", "shared-?"))
		runtest.Must(t, err)
		return found
	}
	keys := []string{values[datafolder.ProjectKeyName]}
	for len(keys) < 10 && len(slots()) < 2 {
		if len(slots()) > 0 {
			keys = append(keys, h.newProject(values[datafolder.ManagementKeyName], fmt.Sprint("More ", len(keys))))
		}
		h.send(keys[len(keys)-1], "/ingest", "completed", point{"id": "a", "content": "Ana likes quinces."})
	}
	if len(slots()) < 2 {
		t.Fatalf("%d projects are in one slot", len(keys))
	}
	h.stop()
	damaged := slots()[0]
	runtest.Must(t, os.WriteFile(filepath.Join(damaged, "index_meta.json"), []byte("{"), 0o600))
	// The lock of the pages delays the filling, so that the test sees the time before it.
	var page pgx.Tx
	h.arrange = func(p *Server) {
		var err error
		if page, err = p.storage.db.Begin(t.Context()); err == nil {
			_, err = page.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended(annals_schema_prefix() || 'recallindex', 10))`)
		}
		runtest.Must(t, err)
	}
	h.start()
	hurt := 0
	for _, key := range keys {
		switch status, found := ask(key); {
		case status == http.StatusServiceUnavailable:
			hurt++
		case status != http.StatusOK || found == 0:
			t.Errorf("a project of another slot: status %d, %d hits", status, found)
		}
	}
	if hurt == 0 || hurt == len(keys) {
		t.Errorf("%d of %d projects are hurt", hurt, len(keys))
	}
	h.readyz().want(t, http.StatusOK, `"recallIncomplete":["`+filepath.Base(damaged)+`"]`)
	for _, key := range keys {
		h.must(key, http.MethodPost, api+"/ingest", point{"id": "b", "content": "Ben likes plums."}, nil)
	}
	runtest.Must(t, page.Rollback(t.Context()))
	for _, key := range keys {
		runtest.Await(h.t, "recall of every project answers whole", func() bool {
			status, found := ask(key)
			return status == http.StatusOK && found > 0
		})
		h.send(key, "/ingest", "completed", point{"id": "c", "content": "Cy likes figs."})
	}
	h.readyz().want(t, http.StatusOK).lacks(t, "recallIncomplete")
}

// fakeEmbeddings is an endpoint for embeddings with a few synonyms.
type fakeEmbeddings struct {
	t *testing.T
	// dead makes calls hang. asked counts the calls, indexed the texts that are not a question. A text
	// with "unspeakable" is refused.
	dead atomic.Bool
	// slow makes the model "other" embed no text but questions.
	slow    atomic.Bool
	indexed atomic.Int64
	asked   atomic.Int64
}

// synonyms are words that mean the same to the fake models; recall knows nothing of the last.
var synonyms = strings.NewReplacer("vehicle", "automobile", "car", "automobile", "gizmotron", "automobile")

func (m *fakeEmbeddings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model string
		Input []string
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/embeddings" ||
		request.Model == "" || len(request.Input) == 0 {
		m.t.Errorf("asked %s: %+v, %v", r.URL, request, err)
	}
	m.asked.Add(1)
	if m.dead.Load() {
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the caller left
		<-r.Context().Done()
		return
	}
	type datum struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	var answer struct {
		Data []datum `json:"data"`
	}
	for i, text := range request.Input {
		if m.slow.Load() && request.Model == "other" && strings.HasPrefix(text, "note: ") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if strings.Contains(text, "unspeakable") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if strings.HasPrefix(text, "note: ") {
			m.indexed.Add(1)
		}
		vector := make([]float32, 512)
		for _, word := range strings.Fields(synonyms.Replace(strings.ToLower(text))) {
			h := fnv.New32a()
			_, _ = h.Write([]byte(request.Model + strings.Trim(word, ".,:?()"))) // vectors of two models do not compare
			vector[h.Sum32()%512]++
		}
		answer.Data = append(answer.Data, datum{i, vector})
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil && r.Context().Err() == nil {
		m.t.Error(err)
	}
}

// Synonyms are found. With a dead endpoint nothing fails. A replay does not call the endpoint,
// and an erased data point leaves no vector.
func TestServer_Embeddings(t *testing.T) {
	t.Parallel()
	m := &fakeEmbeddings{t: t}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	h := newHarness(t)
	h.set = func(s *Config) { s.Embeddings.URL, s.Embeddings.Name = server.URL+"/v1", "small" }
	h.start()
	key, _ := h.keys()
	for id, content := range map[string]string{
		"blue":    "My automobile turned blue yesterday",
		"refused": "This is unspeakable, said Bo",
	} {
		h.send(key, "/ingest", "completed", point{"id": id, "content": content, "label": "note"})
	}
	first := func(query string) string {
		t.Helper()
		if list := h.sources(key, query, "bo"); len(list) > 0 {
			return list[0].SourceID
		}
		return ""
	}
	finds := func(when, query, want string) {
		t.Helper()
		if got := first(query); got != want {
			t.Errorf("%s: %q", when, got)
		}
	}
	rows := func(where string) (n int) {
		t.Helper()
		runtest.Must(t, h.storage.db.QueryRow(t.Context(), "select count(*) from embeddings.points where "+where).Scan(&n))
		return n
	}
	runtest.Await(h.t, "both are embedded", func() bool { return rows("model = 'small'") == 2 })
	finds("by meaning", "vehicle", "blue")
	// A replay does not call the endpoint.
	indexed := m.indexed.Load()
	h.rebuilds()
	finds("after the rebuild", "vehicle", "blue")
	if n := rows("model = 'small'"); n != 2 {
		t.Errorf("after the rebuild: %d rows", n)
	}
	h.stop()
	h.start()
	finds("after a start", "vehicle", "blue")
	if again := m.indexed.Load() - indexed; again != 0 {
		t.Errorf("after a start: %d texts embedded again", again)
	}

	// The endpoint is dead: recall is lexical, and sends complete.
	m.dead.Store(true)
	finds("by words", "blue automobile", "blue")
	asked := m.asked.Load()
	finds("by words again", "blue automobile", "blue")
	if up, without := h.semantic.finder.Up(); up || without < 2 || m.asked.Load() > asked+1 {
		t.Errorf("up %v, %d recalls without, %d calls by one recall", up, without, m.asked.Load()-asked)
	}
	h.send(key, "/ingest", "completed", point{"id": "later", "content": "The garden is green", "label": "note"})
	m.dead.Store(false)

	// Another model embeds everything again. Recall goes on with the vectors of the first until that is done.
	h.stop()
	h.set = func(s *Config) { s.Embeddings.URL, s.Embeddings.Name = server.URL+"/v1", "other" }
	m.slow.Store(true)
	h.start()
	finds("while the other model embeds", "vehicle", "blue")
	h.send(key, "/ingest", "completed", point{"id": "new", "content": "Her automobile is red", "label": "note"})
	runtest.Await(h.t, "a new one is embedded by the first model", func() bool { return rows("model = 'small'") == 4 })
	if live := h.semantic.live.Vectors().Name(); live != "small" || rows("model = 'other'") != 0 {
		t.Errorf("recall uses %s", live)
	}
	finds("new while the other model embeds", "red vehicle", "new")
	m.slow.Store(false)
	runtest.Await(h.t, "all are embedded by the other model", func() bool { return rows("model = 'other'") == 4 })
	runtest.Await(h.t, "recall uses the other model", func() bool { return h.semantic.live.Vectors().Name() == "other" })
	finds("by the other model", "blue vehicle", "blue")
	h.stop()
	h.start()
	finds("by the other model after a start", "blue vehicle", "blue")
	if live := h.semantic.live.Vectors().Name(); live != "other" {
		t.Errorf("after a start recall uses %s", live)
	}

	// A deleted data point leaves no vector.
	h.must(key, http.MethodDelete, api+"/data-points/blue", nil, nil)
	h.eraseNow()
	if rows("true") != 3 || first("blue vehicle") == "blue" {
		t.Errorf("%d rows after the deletion", rows("true"))
	}
	vectors := h.count("memory.embedded.v1")
	if vectors == 0 || vectors > 6 {
		t.Errorf("%d events of vectors are left, of three data points", vectors)
	}

	// Without an endpoint no embeddings stay in the database.
	h.stop()
	h.set = nil
	h.start()
	var schemas int
	if err := h.storage.db.QueryRow(context.WithoutCancel(t.Context()),
		"select count(*) from pg_namespace where nspname like $1", embeddings.Name+"%").Scan(&schemas); err != nil || schemas != 0 {
		t.Errorf("%d schemas left, %v", schemas, err)
	}
}
