package memory_test

import (
	"math"
	"testing"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
)

func TestNextAttempt_AfterTheLastEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		last            event.Event
		revision, round int
		number          int
		ended           bool
	}{
		"no event":                            {revision: 1, number: 1},
		"started":                             {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 1, number: 3},
		"started in an earlier round":         {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 1, round: 1, number: 1},
		"an earlier revision started":         {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 2, number: 1},
		"a later revision started":            {last: &memory.DerivationStarted{Revision: 2, Attempt: 1}, revision: 1, number: 1, ended: true},
		"a later revision started, a retry":   {last: &memory.DerivationStarted{Revision: 2, Attempt: 1}, revision: 1, round: 1, number: 1},
		"failed for now":                      {last: &memory.Failed{Revision: 1, Attempt: 1}, revision: 1, number: 2},
		"failed for good":                     {last: &memory.Failed{Revision: 1, Attempt: 3, Final: true}, revision: 1, number: 4, ended: true},
		"failed for good in an earlier round": {last: &memory.Failed{Revision: 1, Attempt: 3, Final: true}, revision: 1, round: 1, number: 1},
		"a later revision failed":             {last: &memory.Failed{Revision: 2, Attempt: 3, Final: true}, revision: 1, number: 1, ended: true},
		"derived":                             {last: &memory.Derived{Revision: 1}, revision: 1, number: 1, ended: true},
		"derived, a retry":                    {last: &memory.Derived{Revision: 1}, revision: 1, round: 1, number: 1, ended: true},
		"an earlier revision derived":         {last: &memory.Derived{Revision: 1}, revision: 2, number: 1},
		"a later revision derived":            {last: &memory.Derived{Revision: 2}, revision: 1, number: 1, ended: true},
		"a later revision derived, a retry":   {last: &memory.Derived{Revision: 2}, revision: 1, round: 1, number: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if number, ended := memory.NextAttempt(tt.last, tt.revision, tt.round); number != tt.number || ended != tt.ended {
				t.Errorf("attempt %d, ended %t, want %d, %t", number, ended, tt.number, tt.ended)
			}
		})
	}
}

func TestQuantize_KeepsTheDirection(t *testing.T) {
	vector := []float32{3, -4, 0.5, 0, 1e-3}
	scale, code, ok := memory.Quantize(vector)
	if !ok || len(code) != len(vector) {
		t.Fatalf("%v, %v", code, ok)
	}
	var dot, square, length float64
	for i, x := range vector {
		got := float64(scale) * float64(int8(code[i]))
		dot, square, length = dot+got*float64(x), square+got*got, length+float64(x)*float64(x)
	}
	if cos := dot / math.Sqrt(square*length); cos < 0.9999 || math.Abs(square-1) > 0.01 {
		t.Errorf("cosine %f, length %f", cos, square)
	}
}

func TestQuantize_NoDirection(t *testing.T) {
	for _, vector := range [][]float32{nil, {0, 0}, {float32(math.NaN())}, {float32(math.Inf(1)), 1}} {
		if _, code, ok := memory.Quantize(vector); ok {
			t.Errorf("%v is %v", vector, code)
		}
	}
}
