package audit_test

import (
	"testing"

	"github.com/annals-project/annals/domain/audit"
)

func TestPolicyText(t *testing.T) {
	const witnesses = "# ours\nlog old+1+A\nwitness  w1 w1+2+B https://w1.example\n\ngroup g 1 w1\nquorum g\n"
	keys := []string{"o+1+A", "o+2+B"}
	for of, want := range map[string]string{
		"":        "log o+1+A\nlog o+2+B\nquorum none\n",
		witnesses: "log o+1+A\nlog o+2+B\nwitness w1 w1+2+B https://w1.example\ngroup g 1 w1\nquorum g\n",
	} {
		if got := audit.PolicyText(keys, of); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
