package score

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
)

func TestAnswer_Missing(t *testing.T) {
	many := make([]client.RecallResult, 100)
	for i := range many {
		many[i] = result(1, "f")
	}
	for name, c := range map[string]struct {
		results []client.RecallResult
		want    []string
	}{
		"nothing is found":       {nil, []string{"a", "b"}},
		"one is found":           {[]client.RecallResult{result(10, "b", "x")}, []string{"a"}},
		"one is result 101":      {append(many[:100:100], result(1, "a"), result(1, "b")), []string{"a", "b"}},
		"one is result 100":      {append(many[:99:99], result(1, "a"), result(1, "b")), []string{"b"}},
		"one exceeds the rest":   {[]client.RecallResult{result(7000, "x"), result(1500, "a"), result(1000, "b")}, []string{"a"}},
		"both fit exactly":       {[]client.RecallResult{result(4000, "a"), result(4000, "b")}, nil},
		"by a memory that cites": {[]client.RecallResult{result(1, "a", "b")}, nil},
	} {
		got := Answer{Question: Question{Evidence: []string{"a", "b"}}, Results: c.results}.Missing()
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPrintMisses(t *testing.T) {
	var b strings.Builder
	misses := []Miss{
		{Category: "temporal", Cause: "ranked below"},
		{Category: "multi-hop", Cause: "ranked below"},
		{Category: "temporal", Cause: "ranked below"},
		{Category: "temporal", Cause: "not in the index"},
	}
	if err := PrintMisses(&b, misses, []string{"not stored", "not in the index", "ranked below"}); err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for line := range strings.Lines(strings.TrimSpace(b.String())) {
		got = append(got, strings.Fields(line))
	}
	want := [][]string{
		{"misses", "among", "100", "results", "and", "8000", "tokens:", "4"},
		{"cause", "multi-hop", "temporal", "all"},
		{"not", "in", "the", "index", "0", "1", "1"},
		{"ranked", "below", "1", "2", "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := PrintMisses(&b, nil, nil); err != nil || b.String() != "\nmisses among 100 results and 8000 tokens: 0\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
