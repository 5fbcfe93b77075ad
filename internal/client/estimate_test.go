package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// An estimate whose answer is refused once and breaks off once is asked for again, and begins again.
func TestEstimateFull_BeginsAgain(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls++; calls {
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"service-unavailable"}`))
		case 2:
			_, _ = w.Write([]byte(`{"dataPoints":2,"points":[{"id":"a"},{"i`))
		default:
			_, _ = w.Write([]byte(`{"dataPoints":2,"points":[{"id":"a"},{"id":"b"}],"batches":[{"points":2}],"fits":true}`))
		}
	}))
	defer server.Close()
	c, err := New(server.URL, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	begin := func() error { ids = nil; return nil }
	got, err := c.EstimateFull(t.Context(), EstimateRequest{}, begin, func(p EstimatedPoint) error {
		ids = append(ids, p.ID)
		return nil
	})
	if err != nil || calls != 3 || !slices.Equal(ids, []string{"a", "b"}) || got.DataPoints != 2 || !got.Fits ||
		len(got.Batches) != 1 {
		t.Errorf("after %d calls %v, %+v, %v", calls, ids, got, err)
	}
	full := errors.New("no space left")
	_, err = c.EstimateFull(t.Context(), EstimateRequest{}, begin, func(EstimatedPoint) error { return full })
	if !errors.Is(err, full) || calls != 4 {
		t.Errorf("after %d calls %v", calls, err)
	}
}

func TestEstimateFull_Refused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = w.Write([]byte(`{"code":"content-too-large","debugMessage":"fewer files"}`))
	}))
	defer server.Close()
	c, err := New(server.URL, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.EstimateFull(t.Context(), EstimateRequest{}, func() error { return nil }, nil)
	if refused, is := errors.AsType[*Error](err); !is || refused.Code != "content-too-large" {
		t.Errorf("got %v", err)
	}
}
