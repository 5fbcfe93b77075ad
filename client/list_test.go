package annals_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	annals "github.com/annals-project/annals/client"
)

func names[T any](t *testing.T, list iter.Seq2[T, error], name func(T) string) (all []string) {
	t.Helper()
	for element, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name(element))
	}
	return all
}

func TestLists_ReadEveryPage(t *testing.T) {
	ctx := t.Context()
	identity := func(i annals.Identity) string { return i.Identity }
	root := func(r annals.Root) string { return r.ID }
	for name, c := range map[string]struct {
		steps   []step
		list    func(*annals.Client) []string
		queries []string
	}{
		"identities": {
			[]step{
				{status: 200, body: `{"identities":[{"identity":"a"},{"identity":"b"}],"hasMore":true,"endCursor":"x/y"}`},
				{status: 200, body: `{"identities":[{"identity":"c"}],"hasMore":false,"endCursor":"z"}`},
			},
			func(c *annals.Client) []string {
				return names(t, c.Identities(ctx, annals.ListIdentitiesRequest{TraitKey: "team", Limit: 2}), identity)
			},
			[]string{"limit=2&traitKey=team", "after=x%2Fy&limit=2&traitKey=team"},
		},
		"requests": {
			[]step{
				{status: 200, body: `{"requests":[{"requestId":"a"}],"hasMore":true,"endCursor":"x"}`},
				{status: 200, body: `{"requests":[{"requestId":"b"},{"requestId":"c"}],"hasMore":false,"endCursor":null}`},
			},
			func(c *annals.Client) []string {
				r := annals.ListRequestsRequest{RequestFilter: annals.RequestFilter{Status: []int{400, 404}}}
				return names(t, c.Requests(ctx, r), func(e annals.RequestEntry) string { return e.RequestID })
			},
			[]string{"status=400&status=404", "after=x&status=400&status=404"},
		},
		"memory roots": {
			[]step{
				{status: 200, body: `{"memories":{"nodes":[{"id":"a"}],"hasMore":true,"endCursor":"x"},"sources":{"nodes":[{"id":"s"}]}}`},
				{status: 200, body: `{"memories":{"nodes":[{"id":"b"},{"id":"c"}]}}`},
			},
			func(c *annals.Client) []string { return names(t, c.MemoryRoots(ctx, annals.ListRootsRequest{}), root) },
			[]string{"", "afterMemories=x"},
		},
		"source roots": {
			[]step{
				{status: 200, body: `{"sources":{"nodes":[{"id":"a"}],"hasMore":true,"endCursor":"x"}}`},
				{status: 200, body: `{"sources":{"nodes":[{"id":"b"},{"id":"c"}]}}`},
			},
			func(c *annals.Client) []string { return names(t, c.SourceRoots(ctx, annals.ListRootsRequest{}), root) },
			[]string{"", "afterSources=x"},
		},
		"audiences": {
			[]step{{status: 200, body: `{"audiences":[{"slug":"a"},{"slug":"b"},{"slug":"c"}]}`}},
			func(c *annals.Client) []string {
				return names(t, c.Audiences(ctx), func(a annals.Audience) string { return a.Slug })
			},
			[]string{""},
		},
		"projects": {
			[]step{{status: 200, body: `{"projects":[{"slug":"a"},{"slug":"b"},{"slug":"c"}]}`}},
			func(c *annals.Client) []string {
				return names(t, c.Projects(ctx), func(p annals.Project) string { return p.Slug })
			},
			[]string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, s := scripted(t, c.steps)
			if got := c.list(client); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("got %v", got)
			}
			var queries []string
			for _, r := range s.seen {
				queries = append(queries, r.URL.RawQuery)
			}
			if !slices.Equal(queries, c.queries) {
				t.Errorf("asked %q", queries)
			}
		})
	}
}

func TestLists_EndEarly(t *testing.T) {
	page := step{status: 200, body: `{"identities":[{"identity":"a"},{"identity":"b"}],"hasMore":true,"endCursor":"x"}`}
	client, _ := scripted(t, []step{page}) // a second page would fail the test
	for i, err := range client.Identities(t.Context(), annals.ListIdentitiesRequest{}) {
		if err != nil || i.Identity != "a" {
			t.Errorf("got %v, %v", i, err)
		}
		break
	}
	client, _ = scripted(t, []step{page, gone})
	var seen []string
	var last error
	for i, err := range client.Identities(t.Context(), annals.ListIdentitiesRequest{}) {
		seen, last = append(seen, i.Identity), err
	}
	if !slices.Equal(seen, []string{"a", "b", ""}) || last == nil {
		t.Errorf("got %q, %v", seen, last)
	}
	client, _ = scripted(t, []step{page, page}) // a cursor that repeats ends the list
	if n := len(names(t, client.Identities(t.Context(), annals.ListIdentitiesRequest{}),
		func(i annals.Identity) string { return i.Identity })); n != 4 {
		t.Errorf("got %d", n)
	}
}

func TestWait_Polls(t *testing.T) {
	polls := []step{
		{status: 200, body: `{"status":"processing","readiness":{"raw":1}}`},
		{status: 200, body: `{"status":"completed","readiness":{"comprehension":1}}`},
		{status: 200, body: `{"status":"completed","settled":true}`},
	}
	synctest.Test(t, func(t *testing.T) {
		client, s := scripted(t, polls)
		shown := 0
		got, err := client.WaitSettled(t.Context(), "i", func(*annals.IngestionStatus) { shown++ })
		if err != nil || !got.Settled || len(s.seen) != 3 || shown != 3 {
			t.Errorf("got %+v, %v after %d polls", got, err, len(s.seen))
		}
		client, s = scripted(t, polls)
		if got, err = client.WaitIngestion(t.Context(), "i"); err != nil || got.Settled || len(s.seen) != 2 {
			t.Errorf("got %+v, %v after %d polls", got, err, len(s.seen))
		}
		client, _ = scripted(t, slices.Repeat(polls[:1], 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = client.WaitIngestion(ctx, "i"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

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
	c, err := annals.New(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	begin := func() error { ids = nil; return nil }
	got, err := c.EstimateFull(t.Context(), annals.EstimateRequest{}, begin, func(p annals.EstimatedPoint) error {
		ids = append(ids, p.ID)
		return nil
	})
	if err != nil || calls != 3 || !slices.Equal(ids, []string{"a", "b"}) || got.DataPoints != 2 || !got.Fits ||
		len(got.Batches) != 1 {
		t.Errorf("after %d calls %v, %+v, %v", calls, ids, got, err)
	}
	full := errors.New("no space left")
	fail := func(annals.EstimatedPoint) error { return full }
	_, err = c.EstimateFull(t.Context(), annals.EstimateRequest{}, begin, fail)
	if !errors.Is(err, full) || calls != 4 {
		t.Errorf("after %d calls %v", calls, err)
	}
}

func TestEstimateFull_NotRepeated(t *testing.T) {
	for name, s := range map[string]step{
		"refused":      {status: 413, body: `{"code":"content-too-large","debugMessage":"fewer files"}`},
		"no JSON":      {status: 200, body: `<html>`},
		"another list": {status: 200, body: `{"points":{}}`},
		"another type": {status: 200, body: `{"points":[],"dataPoints":"many"}`},
	} {
		c, _ := scripted(t, []step{s})
		_, err := c.EstimateFull(t.Context(), annals.EstimateRequest{}, func() error { return nil }, nil)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
