package hostile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/bench/hostile"
	"github.com/annals-project/annals/internal/bench/load"
)

func TestHeard_Missed(t *testing.T) {
	known := []string{"MCP", "page", "ingest", "recall"}
	kept := func() hostile.Heard {
		h := hostile.Heard{Times: map[string]load.Times{}, Answers: map[string]*hostile.Answers{}}
		for _, class := range append(known, "sign-in", "token", "agents", "documentation") {
			h.Times[class], h.Answers[class] = load.Times{time.Second}, hostile.NewAnswers("200")
		}
		return h
	}
	h := kept()
	h.Times["sign-in"], h.Answers["token"] = load.Times{time.Minute}, hostile.NewAnswers("503 service-unavailable")
	if missed := h.Missed(); len(missed) > 0 {
		t.Errorf("at the bounds, with visitors who wait: %v", missed)
	}
	for _, class := range known {
		for name, miss := range map[string]func(*hostile.Heard){
			"takes more than 1000 ms": func(h *hostile.Heard) { h.Times[class] = load.Times{time.Second + time.Millisecond} },
			"was not called":          func(h *hostile.Heard) { delete(h.Times, class) },
			"got 503 x 1":             func(h *hostile.Heard) { h.Answers[class] = hostile.NewAnswers("200", "503") },
			"got no answer x 1":       func(h *hostile.Heard) { h.Answers[class] = hostile.NewAnswers("no answer") },
		} {
			h := kept()
			miss(&h)
			if missed := strings.Join(h.Missed(), "; "); missed != class+" "+name {
				t.Errorf("%s: missed %q", name, missed)
			}
		}
	}
}
