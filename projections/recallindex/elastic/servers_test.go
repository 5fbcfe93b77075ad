package elastic_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// deadAddress returns an address where nothing listens.
func deadAddress(t *testing.T) string { return "http://" + runtest.FreeAddress(t) }

// Of two servers one is dead from the start: no read and no write fails.
func TestIndexServers_OneDead(t *testing.T) {
	s := newScripted(t, false)
	for name, url := range map[string]string{
		"dead first": deadAddress(t) + "," + s.URL, "dead last": s.URL + ", " + deadAddress(t),
	} {
		t.Run(name, func(t *testing.T) {
			x := openScripted(t, elastic.Options{URL: url})
			for range 20 {
				if _, err := x.Count(t.Context(), uuid.New()); err != nil {
					t.Fatalf("count: %v", err)
				}
				if err := x.Apply(t.Context(), documents(3)); err != nil {
					t.Fatalf("apply: %v", err)
				}
			}
			if got := x.Stats(); got.Failed != 0 || got.NotSent != 0 || got.Paused || got.Answered < 40 {
				t.Errorf("requests: %+v", got)
			}
		})
	}
}

// A server dies between and during calls: reads and writes go to the other one, and none fails.
func TestIndexServers_OneDiesDuringCalls(t *testing.T) {
	stays, dies := newScripted(t, false), newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: stays.URL + "," + dies.URL})
	var cut atomic.Int64
	handler := dies.Config.Handler
	dies.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut.Add(1) <= 5 {
			handler.ServeHTTP(w, r)
			return
		}
		// It got the request, and ends without an answer.
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	})
	for range 50 {
		if _, err := x.Count(t.Context(), uuid.New()); err != nil {
			t.Fatalf("count: %v", err)
		}
		if err := x.Apply(t.Context(), documents(3)); err != nil {
			t.Fatalf("apply: %v", err)
		}
	}
	if n := cut.Load(); n < 6 || n > 8 {
		t.Errorf("the server that died got %d requests, want hardly one after its death", n)
	}
	stays.set(func() {
		if stays.calls < 100 {
			t.Errorf("the server that stays got %d requests", stays.calls)
		}
	})
}

// A server of several answers that it is not available: the other one gets the request.
func TestIndexServers_OneUnavailable(t *testing.T) {
	stays, unavailable := newScripted(t, false), newScripted(t, false)
	unavailable.status = http.StatusServiceUnavailable
	x := openScripted(t, elastic.Options{URL: unavailable.URL + "," + stays.URL})
	for range 20 {
		if err := x.Apply(t.Context(), documents(1)); err != nil {
			t.Fatalf("apply: %v", err)
		}
	}
}

// All servers are gone: the breaker pauses, and the counts say so.
func TestIndexServers_AllDead(t *testing.T) {
	one, two := newScripted(t, false), newScripted(t, false)
	x := openScripted(t, elastic.Options{URL: one.URL + "," + two.URL})
	one.Close()
	two.Close()
	for range elastic.BreakerLimit {
		if _, err := x.Count(t.Context(), uuid.New()); err == nil || errors.Is(err, elastic.ErrUnavailable) {
			t.Fatalf("count: %v", err)
		}
	}
	if _, err := x.Count(t.Context(), uuid.New()); !errors.Is(err, elastic.ErrUnavailable) {
		t.Errorf("count: %v, want %v", err, elastic.ErrUnavailable)
	}
	if got := x.Stats(); got.Failed != elastic.BreakerLimit || got.NotSent != 1 || !got.Paused {
		t.Errorf("requests: %+v", got)
	}
}

// A setting that cannot work is one line without the password.
func TestOptionsValidate_Addresses(t *testing.T) {
	for url, want := range map[string]string{
		"https://a:9200":                                      "",
		"https://a:9200,https://b:9200":                       "",
		"https://ana:open,sesame@a:9200, https://b:9200":      "",
		"https://ana:sesame@a:9200,https://ana:sesame@b:9200": "",
		"https://a:9200,b:9200":                               "the address must be like",
		"https://a:9200,":                                     "the address must be like",
		"https://a:9200,https://":                             "the address must be like",
		"https://a:9200,http://b:9200":                        "must all be https, or all http",
		"https://a:9200,https://b:9200,https://a:9200":        "is set twice",
		"https://ana:sesame@a:9200,https://bo:sesame@b:9200":  "different users or passwords",
		strings.Repeat("https://a:9200,", 40) + "https://b":   "41 addresses are set",
	} {
		_, err := elastic.Options{URL: url}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestMain(m *testing.M) {
	// Bleve, for the benchmark, analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func open(t *testing.T, options elastic.Options) *elastic.Index {
	t.Helper()
	x, err := elastic.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
