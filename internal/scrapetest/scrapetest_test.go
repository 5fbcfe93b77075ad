package scrapetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMetric(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "# TYPE a counter\na{x=\"1\"} 7\na{x=\"2\"} 1.5e+06\n")
	}))
	defer server.Close()
	if got, err := Metric(t.Context(), server.URL, `a{x="2"}`); got != 1.5e6 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Metric(t.Context(), server.URL, "b"); got != 0 || err != nil {
		t.Errorf("a metric that is not there: %v, %v", got, err)
	}
	if _, err := Metric(t.Context(), server.URL+"/elsewhere", "a"); err == nil {
		t.Error("no error")
	}
}
