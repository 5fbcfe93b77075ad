package seedtest_test

import (
	"flag"
	"testing"

	"github.com/annals-project/annals/internal/seedtest"
)

func TestOf(t *testing.T) {
	t.Setenv(seedtest.Variable, "")
	if one, other := seedtest.Of(t), seedtest.Of(t); one != other {
		t.Errorf("seeds %d and %d", one, other)
	}
	t.Setenv(seedtest.Variable, seedtest.Fresh)
	if one, other := seedtest.Of(t), seedtest.Of(t); one == other {
		t.Errorf("twice the seed %d", one)
	}
	t.Setenv(seedtest.Variable, "7")
	if seed := seedtest.Of(t); seed != 7 {
		t.Errorf("seed %d, want 7", seed)
	}
}

func TestRapid_HasASeed(t *testing.T) {
	if seed := flag.Lookup("rapid.seed").Value.String(); seed == "0" {
		t.Error("rapid draws its own seed")
	}
}
