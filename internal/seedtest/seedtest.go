// Package seedtest gives tests the same random numbers in every run, unless the environment asks for others. Every
// package whose tests use rapid imports it.
package seedtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	_ "pgregory.net/rapid" // whose flags have to be there first
)

// Variable names the environment variable with the seed of a run: a number, or Fresh for another one in each run.
const (
	Variable = "ANNALS_SEED"
	Fresh    = "fresh"
)

// fixed is the seed of a run for which the environment asks nothing.
const fixed = 20261125

func init() {
	// A flag of the command line still replaces it. A seed that is none fails in Of: no test runs yet.
	// Rapid draws another one in each check by itself.
	if seed, err := read(); err == nil && os.Getenv(Variable) != Fresh {
		_ = flag.Set("rapid.seed", strconv.FormatUint(seed, 10))
	}
}

func read() (uint64, error) {
	switch text := os.Getenv(Variable); text {
	case "":
		return fixed, nil
	case Fresh:
		return rand.Uint64(), nil
	default:
		return strconv.ParseUint(text, 10, 64)
	}
}

// Of returns the seed of a test and logs it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := read()
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	t.Logf("%s=%d repeats it", Variable, seed)
	return seed
}
