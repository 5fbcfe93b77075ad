package hostile_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/bench/hostile"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/internal/runtest"
)

func TestSizes_Scaled(t *testing.T) {
	full := hostile.Sizes{
		Moves: 200, Deletions: 100_000, Rules: 60, Identities: 20_000, Resends: 200_000,
		Connections: 500, Metadata: 200, Traits: 500, Texts: 5000, Projects: 300, Revisions: 100_000,
		Hold: time.Minute, Scale: 0.01,
	}
	runtest.Must(t, full.Validate())
	if got := full.Scaled(); got.Moves != 2 || got.Deletions != 1000 || got.Rules != 1 || got.Hold != 2*time.Second {
		t.Errorf("scaled to %+v", got)
	}
	for _, scale := range []float64{0, -1, 1.01} {
		wrong := full
		if wrong.Scale = scale; wrong.Validate() == nil {
			t.Errorf("scale %v is taken", scale)
		}
	}
}

func TestResult_Missed(t *testing.T) {
	kept := func() hostile.Result {
		return hostile.Result{
			Noticed:  hostile.Noticed{Searchable: load.Times{2 * time.Second}, Recall: load.Times{300 * time.Millisecond}},
			Resident: hostile.MaxResident, Attacker: &hostile.Answers{}, Neighbour: &hostile.Answers{},
		}
	}
	if missed := kept().Missed(); len(missed) > 0 {
		t.Fatalf("at its bounds: %v", missed)
	}
	compared := kept()
	compared.Attack, compared.Idle = hostile.Attack{Adds: 10 << 20, Times: 3}, hostile.MaxResident-10<<20
	compared.Plain.Recall = load.Times{100 * time.Millisecond}
	if missed := compared.Missed(); len(missed) > 0 {
		t.Fatalf("at the bounds of what is compared: %v", missed)
	}
	for name, miss := range map[string]func(*hostile.Result){
		"searchable after": func(r *hostile.Result) { r.Noticed.Searchable = load.Times{2*time.Second + time.Millisecond} },
		"recall takes":     func(r *hostile.Result) { r.Noticed.Recall = load.Times{301 * time.Millisecond} },
		"not answered":     func(r *hostile.Result) { r.Noticed.Searchable = nil },
		"memory over":      func(r *hostile.Result) { r.Resident++ },
		"memory grows": func(r *hostile.Result) {
			r.Attack.Adds, r.Idle = 10<<20, hostile.MaxResident-10<<20-1
		},
		"times as long": func(r *hostile.Result) {
			r.Attack.Times, r.Plain.Recall = 3, load.Times{99 * time.Millisecond}
		},
		"1 restarts": func(r *hostile.Result) { r.Restarts = 1 },
		"broken":     func(r *hostile.Result) { r.Err = errors.New("broken") },
	} {
		r := kept()
		miss(&r)
		if missed := strings.Join(r.Missed(), "; "); !strings.Contains(missed, name) {
			t.Errorf("%s: missed %q", name, missed)
		}
	}
}

// A server that answers what a test wants: each attack makes its calls, and what is wrong about the answers is counted.
func TestAnswers_Wrong(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		wrong      bool
	}{
		"unavailable":                {http.StatusServiceUnavailable, "1", false},
		"unavailable without a wait": {http.StatusServiceUnavailable, "", true},
		"internal":                   {http.StatusInternalServerError, "1", true},
		"refused":                    {http.StatusBadRequest, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, `{"code":"c"}`)
			}))
			defer server.Close()
			arena := hostile.NewArena(server.URL, hostile.Tenant{Key: "k"}, hostile.Sizes{Rules: 1})
			defer arena.Close()
			for _, attack := range hostile.Attacks() {
				if attack.Name == "rules" {
					runtest.Must(t, attack.Run(t.Context(), arena))
				}
			}
			if wrong := arena.Answers.Wrong() > 0; wrong != c.wrong {
				t.Errorf("%s: wrong is %t", arena.Answers.Select(""), wrong)
			}
		})
	}
}

func TestResident_ThisProcess(t *testing.T) {
	bytes, err := hostile.Resident(os.Getpid())
	if err != nil || bytes < 1<<20 || bytes > 64<<30 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
}
