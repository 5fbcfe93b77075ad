package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/annals-project/annals/bench"
	"github.com/annals-project/annals/internal/runtest"
)

func TestPairCmd_Sizes(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  bench.PairSizes
	}{
		"default": {nil, bench.PairSizes{
			Rounds: 3, Passages: 50_000, Queries: 500, For: 10 * time.Second, Rates: []int{1000, 2000}, Import: 100_000,
		}},
		"quick": {[]string{"--quick"}, bench.PairSizes{
			Rounds: 3, Passages: 500, Queries: 20, For: 500 * time.Millisecond, Rates: []int{1000}, Import: 1000,
		}},
		"quick with others": {[]string{"--quick", "--rounds=5", "--rates=100,200", "--for=2s"}, bench.PairSizes{
			Rounds: 5, Passages: 500, Queries: 20, For: 2 * time.Second, Rates: []int{100, 200}, Import: 1000,
		}},
	} {
		var cmd PairCmd
		parser, err := kong.New(&cmd)
		runtest.Must(t, err)
		_, err = parser.Parse(append(c.flags, "--base=one,two"))
		runtest.Must(t, err)
		if got := cmd.sizes(); !reflect.DeepEqual(got, c.want) || strings.Join(cmd.Base, " ") != "one two" {
			t.Errorf("%s: bases %v, %+v, want %+v", name, cmd.Base, got, c.want)
		}
	}
}

func TestPair_WrongUse(t *testing.T) {
	for name, flags := range map[string]string{
		"no base": "--quick", "base twice": "--base=a,b,a", "empty base": "--base=",
		"nine bases": "--base=a,b,c,d,e,f,g,h,i",
		"two rounds": "--base=a --rounds=2", "rounds": "--base=a --rounds=100", "passages": "--base=a --passages=99",
		"queries": "--base=a --queries=-1", "for": "--base=a --for=6m", "rate": "--base=a --rates=1000,0",
		"import": "--base=a --import=10",
	} {
		if got := measured(t, append([]string{"pair"}, strings.Fields(flags)...)...); got.code != exitUsage ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
