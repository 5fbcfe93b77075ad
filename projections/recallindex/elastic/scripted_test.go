package elastic_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// scripted is a server that answers like an Elasticsearch with an index that exists.
type scripted struct {
	*httptest.Server
	version, product string

	mu sync.Mutex
	// bulk answers bulk requests, with the operations that each has; nil accepts everything. status is
	// that of all other answers, 0 for 200.
	bulk   func(ids []string) (status int, items []int)
	status int
	// calls counts requests, authorized are the values of Authorization.
	calls      int
	authorized map[string]bool
	versions   []string
}

const generationID = "0b4f3f4e-6a6c-4a39-8d2c-3f2f6f8f4c55"

func newScripted(t *testing.T, secure bool) *scripted {
	t.Helper()
	s := &scripted{version: "8.19.7", product: "Elasticsearch", authorized: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelError)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.authorized[r.Header.Get("Authorization")] = true
	if s.product != "" {
		w.Header().Set("X-Elastic-Product", s.product)
	}
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer, status := "", s.status
	switch {
	case status != 0:
		answer = `{"error":{"type":"broken","reason":"the password of ana is marigold"}}`
	case strings.HasPrefix(r.URL.Path, "/_nodes"):
		answer = fmt.Sprintf(`{"nodes":{"n":{"version":%q}}}`, s.version)
	case strings.HasSuffix(r.URL.Path, "/_mapping"):
		answer = fmt.Sprintf(`{"annals-v5-000001":{"mappings":{"_meta":{"format":"v5","generation":%q,"analysis":%d}}}}`,
			generationID, indextest.Analysis)
	case strings.HasSuffix(r.URL.Path, "/_bulk"):
		answer, status = s.answerBulk(body)
	default:
		answer = `{}`
	}
	if status != 0 {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, answer)
}

func (s *scripted) answerBulk(body []byte) (answer string, status int) {
	var ids []string
	for line := range bytes.Lines(body) {
		var action struct {
			Index struct {
				ID      string `json:"_id"`
				Version int64  `json:"version"`
				Type    string `json:"version_type"`
			} `json:"index"`
		}
		if json.Unmarshal(line, &action) == nil && action.Index.ID != "" {
			ids = append(ids, action.Index.ID)
			s.versions = append(s.versions, fmt.Sprint(action.Index.Version, " ", action.Index.Type))
		}
	}
	items := make([]int, len(ids))
	if s.bulk != nil {
		if status, items = s.bulk(ids); status != 0 {
			return `{}`, status
		}
	}
	lines := make([]string, len(ids))
	for i := range ids {
		switch items[i] {
		case 0:
			lines[i] = `{"index":{"status":201}}`
		default:
			lines[i] = fmt.Sprintf(`{"index":{"status":%d,"error":{"type":"refused","reason":"marigold"}}}`, items[i])
		}
	}
	return `{"errors":true,"items":[` + strings.Join(lines, ",") + `]}`, 0
}

func (s *scripted) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// documents are some of one project.
func documents(n int) []recallindex.Change {
	c := recallindex.Change{Analysis: indextest.Analysis, Project: uuid.New(), Position: 42}
	for range n {
		c.Upserts = append(c.Upserts, recallindex.Document{
			Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Terms: recall.Terms{Text: []string{"helix"}},
		})
	}
	return []recallindex.Change{c}
}

func openScripted(t *testing.T, o elastic.Options) *elastic.Index {
	t.Helper()
	x := open(t, elastic.Small(o))
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func TestIndexBulk_RefusedDocumentsAreSentAgain(t *testing.T) {
	s := newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: s.URL})
	written, tries := map[string]int{}, map[string]int{}
	s.bulk = func(ids []string) (int, []int) {
		if len(ids) > 2 {
			t.Errorf("a request has %d documents, want at most 2", len(ids))
		}
		items := make([]int, len(ids))
		for i, id := range ids {
			// The first document of each request is refused twice, by both codes.
			if tries[id]++; i == 0 && tries[id] < 3 {
				items[i] = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[tries[id]-1]
				continue
			}
			written[id]++
		}
		return 0, items
	}
	if err := x.Apply(t.Context(), documents(5)); err != nil {
		t.Fatal(err)
	}
	if len(written) != 5 {
		t.Errorf("%d documents are written, want 5", len(written))
	}
	for id, n := range written {
		if n != 1 {
			t.Errorf("%s was written %d times", id, n)
		}
	}
	for _, v := range s.versions {
		if v != "42 external_gte" {
			t.Errorf("a document has version %q, want that of its page", v)
		}
	}
}

func TestIndexBulk_Outcomes(t *testing.T) {
	for name, test := range map[string]struct {
		bulk  func(try int) (int, []int)
		fails string
		tries int
	}{
		"no answer at first":      {func(try int) (int, []int) { return []int{http.StatusBadGateway, 0}[min(try-1, 1)], []int{0} }, "", 2},
		"never room":              {func(int) (int, []int) { return 0, []int{http.StatusTooManyRequests} }, "no room for 1", 3},
		"a newer page was faster": {func(int) (int, []int) { return 0, []int{http.StatusConflict} }, "", 1},
		"refused for good":        {func(int) (int, []int) { return 0, []int{http.StatusBadRequest} }, "400 refused", 1},
		"too large as a whole":    {func(int) (int, []int) { return http.StatusRequestEntityTooLarge, nil }, "413", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, false)
			x := openScripted(t, elastic.Options{URL: s.URL})
			tries := 0
			s.bulk = func([]string) (int, []int) { tries++; return test.bulk(tries) }
			err := x.Apply(t.Context(), documents(1))
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("apply: %v, want %q", err, test.fails)
			}
			if err != nil && strings.Contains(err.Error(), "marigold") {
				t.Errorf("the error quotes a document: %v", err)
			}
			if tries != test.tries {
				t.Errorf("%d tries, want %d", tries, test.tries)
			}
		})
	}
}

func TestIndexOpen_OtherServers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scripted)
		want   error
	}{
		"another product":  {func(s *scripted) { s.product = "" }, elastic.ErrProduct},
		"an older version": {func(s *scripted) { s.version = "7.17.29" }, elastic.ErrVersion},
		"too old an 8":     {func(s *scripted) { s.version = "8.10.4" }, elastic.ErrVersion},
		"a newer version":  {func(s *scripted) { s.version = "9.0.0" }, elastic.ErrVersion},
		"no version":       {func(s *scripted) { s.version = "" }, elastic.ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, false)
			test.change(s)
			if _, err := elastic.Open(t.Context(), elastic.Small(elastic.Options{URL: s.URL})); !errors.Is(err, test.want) {
				t.Errorf("open: %v, want %v", err, test.want)
			}
			if s.calls > 1 {
				t.Errorf("%d requests, want no retry", s.calls)
			}
		})
	}
}

func TestIndexBreaker_FailsFast(t *testing.T) {
	s := newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: s.URL})
	s.set(func() { s.status, s.calls = http.StatusInternalServerError, 0 })
	for range elastic.BreakerLimit {
		if _, err := x.Count(t.Context(), uuid.New()); err == nil || errors.Is(err, elastic.ErrUnavailable) ||
			strings.Contains(err.Error(), "marigold") {
			t.Fatalf("count: %v", err)
		}
	}
	if _, err := x.Count(t.Context(), uuid.New()); !errors.Is(err, elastic.ErrUnavailable) {
		t.Errorf("count: %v, want %v", err, elastic.ErrUnavailable)
	}
	s.set(func() {
		if s.calls != elastic.BreakerLimit {
			t.Errorf("%d requests were sent, want %d", s.calls, elastic.BreakerLimit)
		}
		s.status = 0
	})
	for {
		_, err := x.Count(t.Context(), uuid.New())
		if err == nil {
			return
		}
		if !errors.Is(err, elastic.ErrUnavailable) {
			t.Fatalf("count: %v", err)
		}
	}
}

// TestIndexOpen_TrustAndCredentials reads a CA, user, password and API key from options.
func TestIndexOpen_TrustAndCredentials(t *testing.T) {
	s := newScripted(t, true)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := elastic.Open(t.Context(), elastic.Small(elastic.Options{URL: s.URL})); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("open without the CA: %v", err)
	}
	withUser := strings.Replace(s.URL, "https://", "https://ana:old@", 1)
	for name, test := range map[string]struct {
		options elastic.Options
		want    string
	}{
		"user in the address": {elastic.Options{URL: withUser}, "Basic YW5hOm9sZA=="},
		"user apart":          {elastic.Options{URL: s.URL, User: "ana", Password: "new"}, "Basic YW5hOm5ldw=="},
		"password apart":      {elastic.Options{URL: withUser, Password: "new"}, "Basic YW5hOm5ldw=="},
		"API key":             {elastic.Options{URL: s.URL, Key: "a2V5OnNlY3JldA=="}, "APIKey a2V5OnNlY3JldA=="},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(func() { clear(s.authorized) })
			test.options.CA = ca
			openScripted(t, test.options)
			s.set(func() {
				if len(s.authorized) != 1 || !s.authorized[test.want] {
					t.Errorf("authorized by %v, want %q", s.authorized, test.want)
				}
			})
		})
	}
	s.set(func() { s.status = http.StatusUnauthorized })
	_, err := elastic.Open(t.Context(), elastic.Small(elastic.Options{URL: withUser, CA: ca}))
	if err == nil || !strings.Contains(err.Error(), "refuses the credentials") || strings.Contains(err.Error(), "old") {
		t.Errorf("open with wrong credentials: %v", err)
	}
}

func TestIndexSearch_AnswerTooBig(t *testing.T) {
	s := newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: s.URL})
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Elastic-Product", "Elasticsearch")
		_, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20))
	})
	if _, err := x.Count(t.Context(), uuid.New()); err == nil || !strings.Contains(err.Error(), "too big") {
		t.Errorf("count: %v", err)
	}
}
