package load

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
)

// memory is a server that remembers at once, but lets a text be found only after so many questions for it.
type memory struct {
	mu     sync.Mutex
	ids    map[string]int
	texts  []string
	asked  map[string]int
	hidden int
}

func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var body struct {
		client.DataPoint
		Items []client.DataPoint `json:"items"`
		Query string             `json:"query"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var answer any = struct{}{}
	switch r.URL.Path {
	case "/api/v1/ingest":
		m.ids[body.ID]++
		m.texts = append(m.texts, body.Content)
	case "/api/v1/ingest/batch":
		for _, p := range body.Items {
			m.ids[p.ID]++
		}
	case "/api/v1/recall":
		m.asked[body.Query]++
		page := client.RecallResponse{}
		for _, text := range m.texts {
			if strings.Contains(text, body.Query) && m.asked[body.Query] > m.hidden {
				page.Results = append(page.Results, client.RecallResult{})
			}
		}
		answer = page
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func start(t *testing.T, hidden int) (*client.Client, *memory) {
	t.Helper()
	m := &memory{ids: map[string]int{}, asked: map[string]int{}, hidden: hidden}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	return c, m
}

func TestSingle_EachSendOnce(t *testing.T) {
	c, m := start(t, 0)
	got, err := Single(t.Context(), c, 4, 50*time.Millisecond, "r")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Times) == 0 || len(got.Times) != len(m.ids) || got.PerSecond <= 0 ||
		got.Times.Percentile(0.99) < got.Times.Percentile(0.5) {
		t.Errorf("%d times for %d sends, %v a second", len(got.Times), len(m.ids), got.PerSecond)
	}
}

func TestBatches_EachItemOnce(t *testing.T) {
	c, m := start(t, 0)
	got, _, err := Batches(t.Context(), c, 7, 10, 5, 3, "r")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.ids) != 70 || len(got.Times) != 7 {
		t.Errorf("%d items, %d times", len(m.ids), len(got.Times))
	}
	for id, n := range m.ids {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

func TestSearchable_WaitsForTheSend(t *testing.T) {
	c, m := start(t, 3)
	got, err := Searchable(t.Context(), c, 200, 5*time.Minute, 8, "r")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 8 {
		t.Fatalf("%d probes, want 8", len(got))
	}
	for _, took := range got {
		if took < 2*probeEvery {
			t.Errorf("found after %v, though the first three questions found nothing", took)
		}
	}
	for query, n := range m.asked {
		if n != 4 {
			t.Errorf("%s was asked %d times, want 4", query, n)
		}
	}
}

func TestRecalls_FindNothing(t *testing.T) {
	c, _ := start(t, 0)
	if _, err := Recalls(t.Context(), c, 3, epoch, epoch); err == nil {
		t.Fatal("no error")
	}
	if _, err := RecallsBy(t.Context(), c, 2, time.Millisecond, epoch, epoch); err == nil {
		t.Fatal("no error with several clients")
	}
}

func TestRecallsBy_CountsEachRecall(t *testing.T) {
	c, m := start(t, 0)
	m.texts = []string{strings.Join(words(), " "), NewTexts(8).Query()}
	got, err := RecallsBy(t.Context(), c, 3, time.Millisecond, epoch, epoch)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, n := range m.asked {
		asked += n
	}
	if len(got.Times) < 3 || len(got.Times) != asked || got.PerSecond <= 0 {
		t.Errorf("%d times for %d recalls, %v a second", len(got.Times), asked, got.PerSecond)
	}
}

func TestTexts_EqualSeeds(t *testing.T) {
	a, b, other := NewTexts(3), NewTexts(3), NewTexts(4)
	if x, y := a.Text(50), b.Text(50); x != y || x == other.Text(50) {
		t.Errorf("%q, %q", x, y)
	}
	if one, two := a.Rare(), a.Rare(); one == two {
		t.Error("a rare word came twice")
	}
}

func TestReadBare(t *testing.T) {
	got, err := ReadBare(strings.NewReader(`goos: linux
BenchmarkAppend/callers=8-2     	   10000	    111111 ns/op	         3.0 appends/fsync	      9000 calls/s
BenchmarkAppend/callers=32-2    	   20000	     55555 ns/op	         9.0 appends/fsync	     18000.5 calls/s
BenchmarkEngineQuery-2          	    1000	   2500000 ns/op
PASS
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Bare{Appends: 18000.5, Query: 2.5}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRows(t *testing.T) {
	rows := []Row{
		{What: "sends", Value: 3000, Unit: "/s", Must: 1500, AtLeast: true, Bare: 6000, BareOf: "bare node"},
		{What: "slow", Value: 12, Unit: "ms", Must: 10},
		{What: "only told", Value: 5, Unit: "s"},
	}
	if !rows[0].Met() || rows[1].Met() || !rows[2].Met() || rows[0].Ratio() != 0.5 || rows[1].Ratio() != 0 {
		t.Errorf("%+v", rows)
	}
	var text strings.Builder
	if err := Table(&text, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">= 1500", "0.50 x bare node (6000)", "missed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, text.String())
		}
	}
}
