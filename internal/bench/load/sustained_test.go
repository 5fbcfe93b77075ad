package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
)

// fakeService is a server that refuses every third send. It completes the others, and lets them be
// recalled, at the third question.
type fakeService struct {
	mu      sync.Mutex
	calls   int
	texts   map[string]string // by ingestion
	asked   map[string]int
	never   bool
	refused http.Header
}

func (k *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var answer any
	switch path := r.URL.Path; path {
	case "/api/v1/ingest":
		k.calls++
		if k.calls%3 == 0 {
			for name, values := range k.refused {
				w.Header()[name] = values
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var p client.DataPoint
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			panic(err)
		}
		id := fmt.Sprintf("i%d", k.calls)
		k.texts[id] = p.Content
		answer = client.Receipt{IngestionID: id}
	case "/api/v1/recall":
		var q client.RecallRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			panic(err)
		}
		k.asked[q.Query]++
		page := client.RecallResponse{}
		for _, text := range k.texts {
			if strings.Contains(text, q.Query) && k.asked[q.Query] > 2 {
				page.Results = append(page.Results, client.RecallResult{})
			}
		}
		answer = page
	default:
		id := strings.TrimPrefix(path, "/api/v1/ingest/")
		k.asked[id]++
		status := client.IngestionStatus{Status: "queued"}
		if _, has := k.texts[id]; has && !k.never && k.asked[id] > 2 {
			status.Status = "completed"
		}
		answer = status
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func keep(t *testing.T, k *fakeService) *client.Client {
	t.Helper()
	k.texts, k.asked = map[string]string{}, map[string]int{}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "k", client.WithMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSustained_Outcomes(t *testing.T) {
	k := &fakeService{refused: http.Header{"Retry-After": {"1"}}}
	c := keep(t, k)
	got, err := Sustained{
		To: []*client.Client{c}, PerSecond: 100, Lasts: 600 * time.Millisecond, UnderWay: 64, Run: "r",
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Made != 60 || got.Held != 0 || got.Made != k.calls || got.Refused != k.calls/3 || got.WithoutWait != 0 ||
		got.Unanswered != 0 {
		t.Errorf("of %d calls: made %d, held %d, refused %d, untold %d", k.calls, got.Made, got.Held, got.Refused, got.WithoutWait)
	}
	if got.Acknowledged != len(k.texts) || len(got.Receipts) != got.Acknowledged || len(got.Sent[0]) != got.Acknowledged {
		t.Errorf("%d acknowledged, %d times, %d remembered of %d",
			got.Acknowledged, len(got.Receipts), len(got.Sent[0]), len(k.texts))
	}
	for _, took := range append(got.Completed, got.Recalled...) {
		if took < 3*sampleFirst {
			t.Errorf("%v, though it was shown at the third question", took)
		}
	}
}

func TestSustained_SamplesASend(t *testing.T) {
	c := keep(t, &fakeService{})
	got, err := Sustained{
		To: []*client.Client{c}, PerSecond: 1, Lasts: time.Second, UnderWay: 1, Run: "r",
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Recalled) != 1 || len(got.Completed) != 1 || got.Overdue != 0 {
		t.Errorf("%d recalled, %d completed, %d overdue", len(got.Recalled), len(got.Completed), got.Overdue)
	}
}

func TestSustained_RefusalWithoutRetryAfter(t *testing.T) {
	c := keep(t, &fakeService{})
	got, err := Sustained{
		To: []*client.Client{c}, PerSecond: 50, Lasts: time.Second, UnderWay: 64, Run: "r", Blind: true,
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.WithoutWait == 0 || got.WithoutWait != got.Refused || len(got.Completed) != 0 {
		t.Errorf("%d of %d refusals were untold, %d samples", got.WithoutWait, got.Refused, len(got.Completed))
	}
}

func TestSustained_HoldsBack(t *testing.T) {
	let, enough := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 2 {
			// The load ends before a call is answered, so that none follows these two.
			time.AfterFunc(300*time.Millisecond, func() { close(enough); close(let) })
		}
		<-let
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "k", client.WithMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Sustained{
		To: []*client.Client{c}, PerSecond: 100, Lasts: time.Hour, Until: enough, UnderWay: 2, Run: "r", Blind: true,
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Made != 2 || got.Acknowledged != 2 || got.Held == 0 {
		t.Errorf("%d made, %d acknowledged, %d held back", got.Made, got.Acknowledged, got.Held)
	}
}

func TestUnfinished_NamesWhatIsOpen(t *testing.T) {
	c := keep(t, &fakeService{never: true})
	asked, open, err := Unfinished(t.Context(), []*client.Client{c, c}, [][]string{{"a", "b"}, {"c"}})
	if err != nil || asked != 3 || open != 3 {
		t.Errorf("asked %d, open %d, %v", asked, open, err)
	}
}
